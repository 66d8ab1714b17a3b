"""MTP: the checkpoint's own head, applied once for each drafted token.

Row t of its cache joins token t + 1 with the target's hidden state of token t. The row of the last
committed token waits for the anchor, and is made anew when it is known what followed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.runtime.executors.ort_draft import OrtDraft
from edgekit.runtime.session import MAX_VERIFY, Rows
from edgekit.runtime.speculate.drafter import F32, Choose

PENDING = 128
"""Rows that may wait, so that plain steps, with drafting off, cost no graph call each."""


class MtpDrafter:
    """A `Drafter` on an MTP head's graph.

    Args:
        columns: where the hidden state behind the final norm is in the target's taps.
    """

    max_tokens = MAX_VERIFY - 1

    def __init__(self, executor: OrtDraft, columns: slice) -> None:
        self.executor = executor
        self._columns = columns
        self._hidden: list[F32] = []  # of the tokens whose rows wait
        self._next: list[int] = []  # their successors: one less, the last has none yet
        self._length = 0  # rows in the cache

    def observe(self, tokens: Sequence[int], taps: F32 | None) -> None:
        if taps is None:
            raise ValueError("an MTP head needs the target's hidden states")
        self._next += tokens if self._hidden else tokens[1:]
        self._hidden += list(taps[:, self._columns].copy())
        if len(self._next) > PENDING:
            self._flush()

    def propose(self, anchor: int, k: int, choose: Choose) -> list[int]:
        if not self._hidden:
            return []
        rows = len(self._hidden)
        logits, hidden = self._run([*self._next, anchor], self._hidden, self._length)
        self._length += rows - 1  # the anchor's row stays provisional
        del self._hidden[:-1]
        self._next.clear()
        drafted = [choose(logits)]
        for i in range(1, k):
            logits, hidden = self._run([drafted[-1]], [hidden], self._length + i)
            drafted.append(choose(logits))
        return drafted

    def read_rows(self, first: int) -> Rows:
        """Rows of each cache from token `first` - 1 on, and the hidden state of the last token."""
        self._flush()
        last = np.stack(self._hidden) if self._hidden else np.zeros((0, 0), np.float32)
        return (last, *self.executor.read_rows(max(first - 1, 0), self._length))

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        self.reset()
        ends = [first for first, _ in parts[1:]] + [len(tokens)]
        for (first, (hidden, *rows)), end in zip(parts, ends, strict=True):
            at = max(first - 1, 0)
            self.executor.write_rows(at, [part[..., : end - 1 - at, :] for part in rows])
            self._hidden = list(hidden)
        self._length = max(len(tokens) - 1, 0)

    def reset(self) -> None:
        self._hidden.clear()
        self._next.clear()
        self._length = 0

    def close(self) -> None:
        self.executor.close()

    def _flush(self) -> None:
        """Makes the rows of all tokens whose successor is known."""
        if self._next:
            count = len(self._next)
            self._run(self._next, self._hidden[:count], self._length)
            self._length += count
            del self._hidden[:count]
            self._next.clear()

    def _run(self, tokens: Sequence[int], hidden: Sequence[F32], length: int) -> tuple[F32, F32]:
        """Logits and m of the last of these rows."""
        call = self.executor.call("step", len(tokens))
        call.inputs["tokens"][:] = tokens
        call.inputs["hidden"][:] = hidden
        call.inputs["rows"][0] = len(tokens) - 1
        call.run(length)
        return call.outputs["logits"][0], call.outputs["hidden_out"][0].copy()
