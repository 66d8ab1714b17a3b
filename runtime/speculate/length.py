"""How many tokens to draft, when that is not measured."""

from __future__ import annotations

from typing import Protocol


class DraftLength(Protocol):
    """Chooses the length of each draft from earlier rounds alone.

    Looking at the tokens of the draft itself would change what the text is distributed like: a cut
    that depends on a token decides, with it, whether the target's rule is applied to it.
    """

    def choose(self, limit: int) -> int:
        """0..limit tokens for the next round; 0 is a plain step."""

    def record(self, offered: int, kept: int, rejected: bool) -> None:
        """What became of a round.

        Args:
            offered: drafted tokens. kept: how many of them stayed.
            rejected: the one after them did not; else the round ended for another reason.
        """

    @property
    def why(self) -> str:
        """The present choice, for people."""


class FixedLength:
    """Always the same length."""

    def __init__(self, k: int) -> None:
        self.k = k

    def choose(self, limit: int) -> int:
        return min(self.k, limit)

    def record(self, offered: int, kept: int, rejected: bool) -> None:
        pass

    @property
    def why(self) -> str:
        return f"{self.k} as asked"
