"""What guesses the next tokens, as decoding knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from edgekit.runtime.session import Draw, Rows

F32 = npt.NDArray[np.float32]

Choose = Callable[[F32], int]
"""Draws the next drafted token from the draft's logits [V]."""


class Drafter(Protocol):
    """Guesses the tokens that follow the sequence of one session, and belongs to it.

    It is told of every token the session commits, once and in order, before the session's next
    call; so it always knows exactly the session's committed tokens.
    """

    @property
    def max_tokens(self) -> int:
        """Most tokens it drafts at once."""

    def observe(self, tokens: Sequence[int], taps: F32 | None) -> None:
        """The session commits these tokens.

        Args:
            taps: [T, taps x hidden_size] of the target for them, valid during the call.
        """

    def propose(self, anchor: int, k: int, choose: Choose) -> list[int]:
        """Guesses what follows the observed tokens and then `anchor`.

        A drafter with probabilities gets every token by giving its logits to `choose`, in order,
        and drafts nothing else. What was chosen before may shape the next logits and whether there
        is a next token at all; a token itself may not shape whether it is offered. One without
        probabilities returns tokens as they are.

        Args:
            anchor: the last token of the text, which the target has not run yet.
            k: 1..max_tokens.

        Returns:
            at most k tokens.
        """

    def read_rows(self, first: int) -> Rows:
        """Copies what it has of the observed tokens from `first` on; () where tokens say it all."""

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        """Forgets its sequence and goes on behind these tokens.

        Args:
            parts: (first, rows) of `read_rows`, of any drafter of the same kind; in order they
                cover all tokens, each part up to where the next begins.
        """

    def reset(self) -> None:
        """Forgets the sequence."""

    def close(self) -> None:
        """Frees its memory."""


@runtime_checkable
class DeviceDrafter(Protocol):
    """A drafter that shares its session's device and runs whole rounds there."""

    def round(self, anchor: int, k: int, draw: Draw | None) -> tuple[list[int], list[int]]:
        """Drafts k tokens and verifies them behind the anchor; the session is as after `verify`.

        Returns:
            the drafted tokens [k], and what the target chose after the anchor and each [k + 1]. As
            far as drafted tokens are the chosen ones they stay, and the first that differs ends it.

        Raises:
            BuildError: the target's logits hold NaN.
        """
