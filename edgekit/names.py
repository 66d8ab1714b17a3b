"""Names that people type: what to say when one is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from edgekit.errors import UsageError


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was probably meant to be, or None."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def unknown_name(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> UsageError:
    """The error for a name that is none of `known`.

    Args:
        kind: what it names, as in "device profile".
        hint: used when no known name is close; a close one becomes the hint.
    """
    names = sorted(known)
    match = closest(name, names)
    return UsageError(
        f"no {kind} named {name!r}",
        cause=f"known: {', '.join(names)}" if names else "",
        hint=f"did you mean {match!r}?" if match else hint,
    )
