"""Which drafter a bundle decodes with."""

from __future__ import annotations

from typing import Literal

from edgekit.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.manifest import DraftGraphs
from edgekit.paths import cache_dir
from edgekit.runtime.session import ChoosingSession, Session
from edgekit.runtime.speculate.auto import AutoLength, measured_costs
from edgekit.runtime.speculate.choosing import Choosing
from edgekit.runtime.speculate.drafter import Drafter
from edgekit.runtime.speculate.length import DraftLength, FixedLength
from edgekit.runtime.speculate.ngram import NgramDrafter
from edgekit.runtime.speculate.rounds import Speculator

Speculate = Literal["auto", "off", "dspark", "dflash", "mtp", "ngram"]

BEST_FIRST: tuple[Speculate, ...] = ("dspark", "dflash", "mtp", "ngram")
"""Tokens a round: DSpark 3.75, DFlash 3.16 and MTP 1.8 for Lightning, as published."""


def open_speculator(
    session: Session,
    bundle: Bundle,
    speculate: Speculate,
    draft_tokens: int | None,
    threads: int | None,
    beside: Speculator | None = None,
) -> Speculator | None:
    """The drafter for a fresh session, None for plain decoding.

    Args:
        speculate: "auto" takes the first of `BEST_FIRST` that the bundle has; n-gram lookup needs
            nothing.
        draft_tokens: 1..7 a round; None measures what pays.
        beside: another session's, whose loaded graphs are used.

    Raises:
        UsageError: the bundle has no such drafter.
    """
    if speculate == "off":
        return None
    drafts = {graphs.kind: graphs for graphs in bundle.manifest.drafts}
    kind = speculate
    if speculate == "auto":
        kind = next(one for one in BEST_FIRST if one in drafts or one == "ngram")
    if kind == "ngram":
        drafter: Drafter = NgramDrafter()
    elif kind in drafts:
        before = beside.drafter if beside is not None else None
        drafter = _on_graphs(session, bundle, drafts[kind], threads, before)
    else:
        have = ", ".join([*drafts, "ngram"])
        raise UsageError(
            f"bundle {bundle.manifest.name!r} has no {kind} draft",
            cause=f"it can draft with: {have}",
            hint=f"--speculate auto, or build it again with one: {bundle.rebuild_command} --draft",
        )
    if draft_tokens is not None:
        return Speculator(drafter, FixedLength(draft_tokens), kind)

    cache = cache_dir() / "speculate"
    ways: list[Choosing] = ["greedy", "drawn"]
    if isinstance(session, ChoosingSession):
        ways.append("host")
    lengths: dict[Choosing, DraftLength] = {
        way: AutoLength(
            measured_costs(session, drafter, kind, bundle, threads, cache, choosing=way)
        )
        for way in ways
    }
    return Speculator(drafter, lengths["drawn"], kind, lengths)


def _on_graphs(
    session: Session,
    bundle: Bundle,
    graphs: DraftGraphs,
    threads: int | None,
    before: Drafter | None,
) -> Drafter:
    if bundle.manifest.lowering == "plugin":
        from edgekit.runtime.executors.plugin import PluginSession
        from edgekit.runtime.executors.plugin_draft import PluginDraft

        assert isinstance(session, PluginSession)
        return PluginDraft(session, bundle, graphs)
    from edgekit.draft import CONFIG, load_draft_spec
    from edgekit.runtime.executors.ort_draft import OrtDraft
    from edgekit.runtime.speculate.block import BlockDrafter
    from edgekit.runtime.speculate.mtp import MtpDrafter

    taps = bundle.manifest.target.tap_layers
    at = taps.index(graphs.tap_layers[0])
    if taps[at : at + len(graphs.tap_layers)] != graphs.tap_layers:
        raise ValueError("a drafter's taps must be together among the target's")
    width = bundle.spec.hidden_size
    columns = slice(at * width, (at + len(graphs.tap_layers)) * width)
    loaded = before.executor if isinstance(before, BlockDrafter | MtpDrafter) else None
    executor = OrtDraft(bundle, graphs, threads=threads, beside=loaded)
    if graphs.kind == "mtp":
        return MtpDrafter(executor, columns)
    return BlockDrafter(load_draft_spec(bundle.file(CONFIG)), executor, columns)
