"""Stop strings over a stream: what may become one is held back, what is one is never shown."""

from __future__ import annotations

from collections.abc import Sequence


class PartialMatch:
    """How much of the end of a text may be the start of a pattern."""

    __slots__ = ("_prefixes",)

    def __init__(self, patterns: Sequence[str]) -> None:
        prefixes = {pattern[:n] for pattern in patterns for n in range(1, len(pattern))}
        self._prefixes = tuple(sorted(prefixes, key=len, reverse=True))

    def length(self, text: str) -> int:
        """Characters of the longest end of `text` that starts a pattern without completing it."""
        if not text.endswith(self._prefixes):
            return 0
        return next(len(prefix) for prefix in self._prefixes if text.endswith(prefix))


class StopStrings:
    """Cuts a stream at the first stop string.

    The first is the one that is complete first, and of several complete at the same character the
    longest; so the cut does not depend on how the stream was divided.

    Args:
        stops: strings of at least one character.
    """

    __slots__ = ("_held", "_partial", "_stops", "matched")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._partial = PartialMatch(self._stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that can be shown now; nothing more once `matched` is set."""
        if not self._stops:
            return text
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            self._held = ""
            return text[:at]
        shown = len(text) - self._partial.length(text)
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """What was held back, when the stream ends without a stop string."""
        held, self._held = self._held, ""
        return held
