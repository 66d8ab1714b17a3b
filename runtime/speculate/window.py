"""Which tokens a draft's caches hold, when they hold the last ones only."""

from __future__ import annotations

from edgekit.runtime.session import MAX_VERIFY


class Window:
    """Bookkeeping of caches that keep a sliding window of rows in order.

    Attributes:
        rows: of the caches. size: rows that a later token may look back.
        position: tokens that were seen. length: rows in the caches, those of the last tokens.
    """

    __slots__ = ("length", "position", "rows", "size")

    def __init__(self, rows: int, sliding_window: int | None) -> None:
        self.rows = rows
        self.size = sliding_window or rows
        self.position = self.length = 0

    def make_room(self, count: int) -> tuple[int, int] | None:
        """Before `count` rows are added: (first, kept), the rows to move to the front, if any.

        A drafted block is written behind them too, and forgotten.
        """
        if self.length + count + MAX_VERIFY <= self.rows:
            return None
        kept = max(min(self.length, self.size - count), 0)
        first, self.length = self.length - kept, kept
        return first, kept

    def add(self, count: int) -> None:
        """The rows of the next `count` tokens were added."""
        self.length += count
        self.position += count

    def skip(self, count: int) -> None:
        """The next `count` tokens are beyond the window already."""
        self.go_to(self.position + count)

    def go_to(self, position: int) -> None:
        """What is added next is of this token; what lies between is missing."""
        if position != self.position:
            self.position, self.length = position, 0

    def from_token(self, first: int) -> tuple[int, int]:
        """The first token from `first` on that has a row, and that row."""
        start = max(first, self.position - self.length)
        return start, self.length - (self.position - start)

    def clear(self) -> None:
        self.position = self.length = 0
