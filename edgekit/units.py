"""Numbers as people read them."""

from __future__ import annotations


def size_text(nbytes: int) -> str:
    """A size in the unit that suits it."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def rate_text(per_second: float) -> str:
    """Tokens a second: three digits or thousands."""
    if per_second >= 1000:
        return f"{per_second / 1000:.1f}k tok/s"
    return f"{per_second:.1f} tok/s"
