"""Where the tokens of a request are chosen."""

from __future__ import annotations

from typing import Literal

from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import ChoosingSession, Session
from edgekit.runtime.speculate.drafter import DeviceDrafter, Drafter

Choosing = Literal["greedy", "drawn", "host"]
"""The likeliest tokens, or drawn ones, by the session if it can; or, of a session that can, on the
host, because something looks at the logits. Rounds cost differently."""


def choosing_of(session: Session, sampler: Sampler) -> Choosing:
    """How a request's tokens are chosen."""
    if sampler.needs_logits and isinstance(session, ChoosingSession):
        return "host"
    return "greedy" if sampler.is_greedy else "drawn"


def choosers(
    session: Session, drafter: Drafter, sampler: Sampler
) -> tuple[ChoosingSession | None, DeviceDrafter | None]:
    """The session if it chooses, and then the drafter if it runs whole rounds."""
    if sampler.needs_logits or not isinstance(session, ChoosingSession):
        return None, None
    return session, drafter if isinstance(drafter, DeviceDrafter) else None
