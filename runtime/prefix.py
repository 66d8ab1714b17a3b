"""Beginnings of prompts that need not be computed again.

The recurrent state of a hybrid model cannot be cut back to an earlier token, so it is copied where
later prompts are likely to agree: after the system message, before the last message, before the
generation prompt. Together with the rows that the tokens have in the KV cache and in the drafter,
such a copy lets any session go on from there.

Prefixes of one another share what they have in common: each keeps the rows since the one before it.
The store holds a number of bytes. When it is full, what was used least recently goes, leaves first,
system messages last.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from edgekit.runtime.session import Rows, Snapshot

ITEM = array("i").itemsize


def key_of(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes, so that comparing beginnings is one memcmp."""
    return array("i", tokens).tobytes()


@dataclass(eq=False, slots=True)
class Prefix:
    """A computed beginning.

    Attributes:
        key: of its tokens. snapshot: the recurrent state after them.
        first: the token that its rows begin with; those before are its parents'.
        rows: of the KV cache. draft: of the drafter.
        pinned: goes last.
    """

    key: bytes
    snapshot: Snapshot
    parent: Prefix | None
    first: int
    rows: Rows
    draft: Rows
    pinned: bool
    children: int = 0
    used: int = 0

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.key) // ITEM

    @property
    def tokens(self) -> list[int]:
        return array("i", self.key).tolist()

    @property
    def nbytes(self) -> int:
        rows = sum(part.nbytes for part in (*self.rows, *self.draft))
        return self.snapshot.nbytes + rows + len(self.key)

    def chain(self) -> list[Prefix]:
        """Its parents and itself, the shortest first."""
        found: list[Prefix] = []
        one: Prefix | None = self
        while one is not None:
            found.append(one)
            one = one.parent
        return found[::-1]


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """What a store did so far."""

    entries: int
    nbytes: int
    budget: int
    evicted: int


@dataclass(eq=False, slots=True)
class PrefixStore:
    """Computed beginnings, within a number of bytes. For one thread, and sessions of one bundle.

    Args:
        budget: bytes; 0 keeps nothing.
    """

    budget: int
    _entries: dict[bytes, Prefix] = field(default_factory=dict)
    _clock: Any = field(default_factory=lambda: count(1))
    _nbytes: int = 0
    _evicted: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def stats(self) -> PrefixStats:
        return PrefixStats(len(self._entries), self._nbytes, self.budget, self._evicted)

    def find(self, tokens: Sequence[int], most: int | None = None) -> Prefix | None:
        """The longest that these tokens begin with.

        Args:
            most: tokens it may have at most.
        """
        key = key_of(tokens if most is None else tokens[:most])
        fitting = (one for one in self._entries.values() if key.startswith(one.key))
        return max(fitting, key=lambda one: len(one.key), default=None)

    def use(self, prefix: Prefix) -> None:
        """Notes that it was of use, and its parents with it."""
        now = next(self._clock)
        for one in prefix.chain():
            one.used = now

    def add(
        self,
        tokens: Sequence[int],
        snapshot: Snapshot,
        read: Callable[[int], tuple[Rows, Rows]],
        *,
        pinned: bool = False,
    ) -> Prefix | None:
        """Keeps a beginning.

        Args:
            snapshot: after these tokens.
            read: copies the rows from a token on, of the KV cache and of the drafter.
            pinned: let it go last.

        Returns:
            what is kept, None if it is larger than the whole store.
        """
        key = key_of(tokens)
        known = self._entries.get(key)
        if known is None:
            parent = self.find(tokens)
            first = parent.length if parent is not None else 0
            rows, draft = read(first)
            known = Prefix(key, snapshot, parent, first, rows, draft, pinned)
            if parent is not None:
                parent.children += 1
            self._entries[key] = known
            self._nbytes += known.nbytes
        known.pinned |= pinned
        self.use(known)
        while self._nbytes > self.budget:
            self._evict()
        return self._entries.get(key)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self._nbytes = 0

    def entries(self) -> list[Prefix]:
        """Everything, parents before their children."""
        return sorted(self._entries.values(), key=lambda one: one.length)

    def put(self, prefix: Prefix) -> bool:
        """Adds one that was kept elsewhere, whose parent is here already; false without room."""
        if self._nbytes + prefix.nbytes > self.budget or prefix.key in self._entries:
            return False
        if prefix.parent is not None:
            prefix.parent.children += 1
        self._entries[prefix.key] = prefix
        self._nbytes += prefix.nbytes
        self.use(prefix)
        return True

    def _evict(self) -> None:
        leaves = (one for one in self._entries.values() if not one.children)
        gone = min(leaves, key=lambda one: (one.pinned, one.used))
        if gone.parent is not None:
            gone.parent.children -= 1
        del self._entries[gone.key]
        self._nbytes -= gone.nbytes
        self._evicted += 1
