"""A session whose logits depend on every committed token, so that any mistake in the state shows.

It has the two kinds of state a hybrid model has: a cache with one row a token, rows past `length`
being garbage, and a recurrent state that only snapshots bring back. Logits mix a digest of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from edgekit.errors import DoesNotFitError
from edgekit.runtime.session import MAX_VERIFY, Session, Snapshot, StepOutput

_MASK = (1 << 64) - 1


def _mix(state: int, token: int) -> int:
    state = (state ^ (token + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9 & _MASK
    return state ^ state >> 29


class FakeSession:
    """Honours the session contract.

    Args:
        script: given the committed tokens, the token that must come next, or None for any.
    """

    def __init__(
        self,
        vocab_size: int = 320,
        capacity: int = 64,
        prefill_chunk: int = 8,
        script: Callable[[list[int]], int | None] | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.capacity = capacity
        self.prefill_chunk = prefill_chunk
        self.length = 0
        self.closed = False
        self.steps: list[int] = []
        self.restored: list[int] = []
        self.resets = 0
        self.fail_after: int | None = None
        self._script = script
        self._cache = np.full(capacity, -1, dtype=np.int64)
        self._recurrent = 0
        self._pending: list[int] | None = None

    @property
    def committed(self) -> list[int]:
        return [int(token) for token in self._cache[: self.length]]

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        assert self._pending is None
        assert 1 <= len(tokens) <= self.prefill_chunk
        self.steps.append(len(tokens))
        rows = self._run(tokens)
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                # As a fault between running and committing would leave it.
                self._recurrent = 12345
                raise KeyboardInterrupt
        self.length += len(tokens)
        return StepOutput(rows if logits == "all" else rows[-1:], None)

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        assert self._pending is None
        assert 1 <= len(tokens) <= MAX_VERIFY
        before = self._recurrent
        rows = self._run(tokens)
        self._recurrent = before
        self._pending = list(tokens)
        return StepOutput(rows, None)

    def commit(self, n: int) -> None:
        assert self._pending is not None
        assert 0 <= n <= len(self._pending)
        for token in self._pending[:n]:
            self._recurrent = _mix(self._recurrent, token)
        self.length += n
        self._pending = None

    def snapshot(self) -> Snapshot:
        assert self._pending is None
        return Snapshot(self.length, (np.array([self._recurrent], dtype=np.uint64),))

    def restore(self, snapshot: Snapshot) -> None:
        self._recurrent = int(snapshot.arrays[0][0])
        self.length = snapshot.length
        self.restored.append(snapshot.length)
        self._pending = None

    def read_rows(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        assert 0 <= first <= last <= self.length
        return (self._cache[first:last, None].copy(),)

    def write_rows(self, first: int, rows: tuple[np.ndarray, ...], skip: int = 0) -> None:
        (part,) = rows
        self._cache[first + skip : first + len(part)] = part[skip:, 0]

    def to_host(self, snapshot: Snapshot) -> tuple[np.ndarray, ...]:
        return snapshot.arrays

    def from_host(self, length: int, arrays: tuple[np.ndarray, ...]) -> Snapshot:
        return Snapshot(length, arrays)

    def reset(self) -> None:
        self._recurrent = 0
        self.length = 0
        self.resets += 1
        self._pending = None

    def close(self) -> None:
        self.closed = True

    def _run(self, tokens: Sequence[int]) -> np.ndarray:
        if self.length + len(tokens) > self.capacity:
            raise DoesNotFitError("the context is full")
        rows = []
        for i, token in enumerate(tokens, start=self.length):
            self._cache[i] = token
            self._recurrent = _mix(self._recurrent, token)
            digest = self._recurrent
            for cached in self._cache[: i + 1]:
                digest = _mix(digest, int(cached))
            rows.append(self._logits(digest, i + 1))
        return np.stack(rows)

    def _logits(self, digest: int, length: int) -> np.ndarray:
        noise = np.arange(self.vocab_size, dtype=np.uint64) * np.uint64(0x94D049BB133111EB)
        noise ^= np.uint64(digest)
        noise *= np.uint64(0xBF58476D1CE4E5B9)
        noise ^= noise >> np.uint64(31)
        logits = ((noise >> np.uint64(40)).astype(np.float64) / 2**24 * 8 - 4).astype(np.float32)
        if self._script is not None:
            forced = self._script([int(token) for token in self._cache[:length]])
            if forced is not None:
                logits[forced] = 50.0
        return logits


def scripted(prompt_length: int, answer: Sequence[int]) -> Callable[[list[int]], int | None]:
    """A script that answers a prompt of this length with these tokens."""

    def script(tokens: list[int]) -> int | None:
        i = len(tokens) - prompt_length
        return answer[i] if 0 <= i < len(answer) else None

    return script


def _is_a_session(session: FakeSession) -> Session:
    return session
