"""Lookup in the text so far: what followed the last tokens the last time they appeared.

No weights, no probabilities. Good where an answer repeats its prompt: code, quotations, tables
(Saxena 2023, "prompt lookup decoding").
"""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.runtime.session import MAX_VERIFY, Rows
from edgekit.runtime.speculate.drafter import F32, Choose

LONGEST, SHORTEST = 4, 2
"""Tokens an ending must share with an earlier place; the longest match wins."""


class NgramDrafter:
    """A `Drafter` that reads nothing but tokens."""

    max_tokens = MAX_VERIFY - 1

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._follows: dict[tuple[int, ...], int] = {}  # n-gram: position after its last place

    def observe(self, tokens: Sequence[int], taps: F32 | None = None) -> None:
        for token in tokens:
            self._tokens.append(token)
            end = len(self._tokens)
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                self._follows[tuple(self._tokens[end - n :])] = end

    def propose(self, anchor: int, k: int, choose: Choose) -> list[int]:
        text = [*self._tokens[-LONGEST + 1 :], anchor]
        for n in range(min(LONGEST, len(text)), SHORTEST - 1, -1):
            start = self._follows.get(tuple(text[-n:]))
            if start is not None:
                return self._continue(start, anchor, k)
        return []

    def _continue(self, start: int, anchor: int, k: int) -> list[int]:
        """k tokens from `start` on; past the end of the text they repeat themselves."""
        known = len(self._tokens)
        drafted: list[int] = []
        for at in range(start, start + k):
            if at < known:
                drafted.append(self._tokens[at])
            else:
                drafted.append(anchor if at == known else drafted[at - known - 1])
        return drafted

    def read_rows(self, first: int) -> Rows:
        return ()

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        self.reset()
        self.observe(tokens)

    def reset(self) -> None:
        self._tokens = []
        self._follows = {}

    def close(self) -> None:
        self.reset()
