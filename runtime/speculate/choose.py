"""Which drafter a bundle decodes with."""

from __future__ import annotations

from typing import Literal

from edgekit.bundle import Bundle
from edgekit.paths import cache_dir
from edgekit.runtime.session import Session
from edgekit.runtime.speculate.auto import AutoLength, measured_costs
from edgekit.runtime.speculate.length import DraftLength, FixedLength
from edgekit.runtime.speculate.ngram import NgramDrafter
from edgekit.runtime.speculate.rounds import Speculator

Speculate = Literal["auto", "off", "ngram"]


def open_speculator(
    session: Session,
    bundle: Bundle,
    speculate: Speculate,
    draft_tokens: int | None,
    threads: int | None,
) -> Speculator | None:
    """The drafter for a fresh session, None for plain decoding.

    Args:
        speculate: "auto" takes the best drafter that the bundle has; n-gram lookup needs nothing.
        draft_tokens: 1..7 a round; None measures what pays.
    """
    if speculate == "off":
        return None
    length: DraftLength
    if draft_tokens is None:
        costs = measured_costs(session, bundle, threads, cache_dir() / "speculate")
        length = AutoLength(costs)
    else:
        length = FixedLength(draft_tokens)
    return Speculator(NgramDrafter(), length, "ngram")
