"""The one operation that every trained draft offers, for training and for decoding alike."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from edgekit.recipes.nano.speculative.target import Features

# (slot, logits [B, A, V]) -> the token [B, A] that stands at this slot. Training returns the true
# token (teacher forcing), decoding an argmax or a sample.
Choose = Callable[[int, Tensor], Tensor]


class Draft(Protocol):
    """Anything that drafts tokens behind anchors.

    An anchor is a token that is known but that the target has not read: with the anchor at position
    p the target's features of positions below p may be used. Slot i predicts position p + 1 + i.
    """

    def draft(
        self, features: Features, tokens: Tensor, anchors: Tensor, slots: int, choose: Choose
    ) -> Tensor:
        """Logits [B, A, slots, V] behind anchors [B, A] of sequences tokens [B, T]."""
        ...
