"""The drafters of a bundle: a DSpark or DFlash draft, and the target's MTP head."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from edgekit.budget import DRAFT_BLOCK, DRAFT_SLACK
from edgekit.draft import CONFIG, DraftRequest, DraftSpec
from edgekit.errors import CheckpointError
from edgekit.export.bundle_writer import BundleWriter
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.draft_checkpoint import DraftCheckpoint, open_mtp
from edgekit.export.graph.builder import sizes
from edgekit.export.graph.drafts import build_draft
from edgekit.export.graph.mtp import build_mtp
from edgekit.export.lower import ort, plugin_draft
from edgekit.export.weights import save_graph
from edgekit.manifest import DrafterKind, DraftGraphs, StateTensor
from edgekit.model import ModelSpec


@dataclass(frozen=True, slots=True)
class DraftSource:
    """One drafter before it is lowered.

    Attributes:
        graphs: canonical, by their names in `DraftGraphs`.
        tap_layers: what it reads of the target.
        spec, folder: of a draft model, None for an MTP head.
    """

    kind: DrafterKind
    graphs: dict[str, ir.Model]
    tap_layers: tuple[int, ...]
    spec: DraftSpec | None
    folder: Path | None

    def cache_rows(self, context: int) -> int:
        """Rows of its caches."""
        window = self.spec.sliding_window if self.spec is not None else None
        rows = context if window is None else min(context, window + DRAFT_SLACK)
        return rows + DRAFT_BLOCK


def open_drafts(checkpoint: Checkpoint, request: DraftRequest) -> list[DraftSource]:
    """The drafters asked for.

    Raises:
        CheckpointError: one cannot be read, or is not there.
    """
    sources = []
    if request.folder is not None:
        draft = DraftCheckpoint.open(request.folder, checkpoint)
        taps = draft.spec.target_layer_ids
        graphs = build_draft(draft)
        sources.append(DraftSource(draft.spec.kind, graphs, taps, draft.spec, request.folder))
    if request.mtp:
        mtp = open_mtp(checkpoint)
        if mtp is None:
            raise CheckpointError(
                "the checkpoint has no MTP head",
                cause="no tensor's name begins with mtp.",
                hint="build with --draft none, or with the folder of a DSpark draft",
            )
        behind_norm = (checkpoint.spec.num_hidden_layers,)
        sources.append(DraftSource("mtp", {"step": build_mtp(mtp)}, behind_norm, None, None))
    return sources


def taps(sources: Sequence[DraftSource]) -> tuple[int, ...]:
    """Everything the drafters read of the target, each layer once."""
    return tuple(dict.fromkeys(layer for source in sources for layer in source.tap_layers))


def lower_drafts(
    sources: Sequence[DraftSource],
    spec: ModelSpec,
    lowering: str,
    context: int,
    limited: bool = False,
) -> dict[DrafterKind, dict[str, ir.Model]]:
    """The drafters' graphs, lowered.

    Args:
        limited: `plugin` graphs keep to MAX_SHARED.

    Raises:
        BuildError: the `plugin` lowering has no kernels for one of them.
    """
    lowered = {}
    for source in sources:
        if lowering == "plugin":
            graphs = plugin_draft.lower_draft(
                source.graphs, source.spec, spec, source.cache_rows(context), limited
            )
        else:
            graphs = {name: ort.lower(graph, spec) for name, graph in source.graphs.items()}
        lowered[source.kind] = graphs
    return lowered


def save_drafts(
    writer: BundleWriter,
    sources: Sequence[DraftSource],
    lowered: dict[DrafterKind, dict[str, ir.Model]],
    context: int,
) -> tuple[DraftGraphs, ...]:
    """Writes the graph files and says how they connect."""
    described = []
    for source in sources:
        files = {name: f"{source.kind}.{name}.onnx" for name in lowered[source.kind]}
        for name, model in lowered[source.kind].items():
            save_graph(model, writer.path(files[name]))
        if source.folder is not None:
            shutil.copyfile(source.folder / "config.json", writer.path(CONFIG))
        cached = lowered[source.kind]["step" if source.kind == "mtp" else "block"]
        if "base" in lowered[source.kind]:  # the plugin lowering has the layers' caches together
            cached = lowered[source.kind]["context"]
        described.append(
            DraftGraphs(
                kind=source.kind,
                graphs=files,
                tap_layers=source.tap_layers,
                state=_caches(cached, source.cache_rows(context)),
            )
        )
    return tuple(described)


def _caches(model: ir.Model, rows: int) -> tuple[StateTensor, ...]:
    found = []
    for value in model.graph.inputs:
        kind, _, layer = str(value.name).partition(".")
        if kind in ("key_cache", "value_cache"):
            assert value.dtype is not None
            shape = tuple(rows if isinstance(dim, str) else dim for dim in sizes(value))
            output = f"{kind}_out.{layer}" if layer else f"{kind}_out"
            dtype = str(value.dtype.numpy())
            found.append(StateTensor(str(value.name), output, shape, dtype, "cache"))
    return tuple(found)
