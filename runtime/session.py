"""The session contract: one sequence on one executor.

Every executor keeps the same promises, so sampling, chat and speculation know only this file:

- `step` runs T tokens and commits them; `verify` runs them and commits nothing.
- After `verify`, `commit(n)` accepts its first n tokens: the state is then what n steps leave.
- The KV cache is append-only: rows past `length` are garbage, so going back is setting `length`.
- `snapshot` copies the convolution and SSM state and remembers the length. Restoring it is valid
  while the tokens below that length are the ones in the cache; the caller keeps track. With
  `read_rows` and `write_rows` the cache's rows can be kept too and put back, in any session of the
  bundle on the same executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from edgekit.errors import DoesNotFitError

F32 = npt.NDArray[np.float32]

Rows = tuple[npt.NDArray[Any], ...]
"""What consecutive tokens have in each KV cache, or in a drafter: arrays of the host."""

MAX_VERIFY = 8
"""Most tokens one verify step takes."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one forward pass returns. The arrays are valid until the next call on the session.

    Attributes:
        logits: [R, vocab_size], R = 1 (the last token) or T.
        taps: [T, n_taps x hidden_size], the residual stream after the tapped layers, or None.
    """

    logits: F32
    taps: F32 | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the recurrent state after `length` tokens; its arrays belong to one executor."""

    length: int
    arrays: tuple[npt.NDArray[Any], ...]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


class Session(Protocol):
    """One sequence: committed tokens 0..length and room for `capacity`."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int:
        """Committed tokens."""

    @property
    def capacity(self) -> int:
        """Most tokens the sequence can hold: the bundle's context."""

    @property
    def prefill_chunk(self) -> int:
        """Most tokens one step takes."""

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        """Runs 1..prefill_chunk tokens and commits them.

        Raises:
            DoesNotFitError: length + T would exceed capacity.
        """

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        """Runs 1..MAX_VERIFY tokens, logits for each, committing nothing. `commit` must follow
        before the next `step`; `restore` and `reset` abandon it."""

    def commit(self, n: int) -> None:
        """Accepts the first n (0..T) tokens of the last verify step."""

    def snapshot(self) -> Snapshot:
        """Copies the recurrent state."""

    def restore(self, snapshot: Snapshot) -> None:
        """Goes to a snapshot whose tokens are in the cache."""

    def read_rows(self, first: int, last: int) -> Rows:
        """Copies the KV cache's rows of tokens first..last; () for a model without attention."""

    def write_rows(self, first: int, rows: Rows, skip: int = 0) -> None:
        """Puts rows of `read_rows` back, the first of them for token `first`. They count once
        `restore` makes the session that long.

        Args:
            skip: rows at the beginning that are there already.
        """

    def to_host(self, snapshot: Snapshot) -> Rows:
        """A snapshot's arrays as arrays of the host."""

    def from_host(self, length: int, arrays: Rows) -> Snapshot:
        """The snapshot that `to_host` was given.

        Raises:
            ValueError: the arrays are of another model.
        """

    def reset(self) -> None:
        """Forgets the sequence: zero state, length 0."""

    def close(self) -> None:
        """Frees the executor's memory."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How tokens are drawn where the logits are; the numbers are of runtime/sampling.py.

    Attributes:
        seed: 64 bits; a token's random number comes from it and the token's position.
        drafts: whether drafted tokens are drawn too, else they are the likeliest ones.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    drafts: bool


@runtime_checkable
class ChoosingSession(Protocol):
    """A session that can choose a token where its logits are, so that they need not travel."""

    def step_choose(self, token: int, draw: Draw | None) -> int:
        """Commits a token and returns the next one: drawn, or with None the likeliest.

        Raises:
            BuildError: the logits hold NaN or +inf.
        """

    def verify_choose(self, tokens: Sequence[int], draw: Draw | None) -> list[int]:
        """Like `verify`; returns the token chosen behind each.

        Raises:
            BuildError: the logits hold NaN or +inf.
        """


def check_tokens(session: Session, tokens: Sequence[int], most: int) -> None:
    """What a step or verify must refuse before it runs.

    Raises:
        ValueError: not 1..most tokens, or an id that is none.
        DoesNotFitError: they would exceed the capacity.
    """
    T = len(tokens)
    if not 1 <= T <= most:
        raise ValueError(f"a step takes 1..{most} tokens, not {T}")
    if session.length + T > session.capacity:
        raise DoesNotFitError(
            f"the context is full: {session.length} tokens and {T} more, of {session.capacity}",
            hint="start a new conversation, or build the bundle with a larger --context",
        )
    if not 0 <= min(tokens) <= max(tokens) < session.vocab_size:
        raise ValueError(f"token ids run from 0 to {session.vocab_size - 1}")


def prefill(session: Session, tokens: Sequence[int]) -> F32:
    """Commits any number of tokens (at least one) in chunks.

    Returns:
        logits [vocab_size] after the last token, valid until the next call on the session.
    """
    output = None
    for start in range(0, len(tokens), session.prefill_chunk):
        output = session.step(tokens[start : start + session.prefill_chunk])
    if output is None:
        raise ValueError("prefill needs at least one token")
    last: F32 = output.logits[-1]
    return last
