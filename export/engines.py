"""The engines of a bundle.

`standard` graphs and their weights are written beside the bundle's files, built into plans, and
removed again: the plans hold the weights. `plugin` graphs and the weights file stay, with plans
that hold machine code only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from edgekit.budget import VERIFY_ROWS
from edgekit.engines import Flavour
from edgekit.export.bundle_writer import BundleWriter
from edgekit.export.engine import EngineReport, EngineRequest, Profile, build_engine
from edgekit.export.engine.plugin_network import read_plugin_graph
from edgekit.export.engine.plugins import most_tokens
from edgekit.export.weights import save_graph, write_weights
from edgekit.kernels.weights import MAX_TOKENS
from edgekit.manifest import plan_name

SCRATCH = "engine-build"
WEIGHTS = "weights.bin"


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """What engines are built with and for.

    Attributes:
        sm: compute capability, 121 for 12.1.
        timing_cache: a file that a flavour with timings keeps between builds.
    """

    flavour: Flavour
    sm: int
    timing_cache: Path | None = None


def profiles(kind: str, prefill_chunk: int) -> tuple[Profile, ...]:
    """Token counts an engine is made for: single steps and verify steps, and a prompt's chunks."""
    step = Profile(1, 1, VERIFY_ROWS)
    if kind != "step" or prefill_chunk <= VERIFY_ROWS:
        return (step,)
    return (step, Profile(1, prefill_chunk, prefill_chunk))


def write_engines(
    writer: BundleWriter,
    models: dict[str, ir.Model],
    files: dict[str, str],
    target: EngineTarget,
    prefill_chunk: int,
    formats: frozenset[str],
    on_weights: Callable[[int, int, str], None],
    on_progress: Callable[[int, int, str], None],
) -> dict[str, EngineReport]:
    """Builds the engine of each graph into the file of its name.

    Args:
        models, files: graphs and file names by kind.
        formats: of the stored matrices.

    Raises:
        DoesNotFitError, MissingDependencyError, BuildError: see `build_engine`.
    """
    scratch = writer.path(f"{SCRATCH}/{WEIGHTS}").parent
    try:
        write_weights(list(models.values()), scratch / WEIGHTS, WEIGHTS, on_weights)
        reports = {}
        for i, (kind, model) in enumerate(models.items()):
            graph = scratch / f"{kind}.onnx"
            save_graph(model, graph)

            def tell(done: int, total: int, phase: str, i: int = i) -> None:
                on_progress(i * total + done, len(models) * total, phase)

            request = EngineRequest(
                flavour=target.flavour,
                graph=graph,
                plan=writer.path(files[kind]),
                sm=target.sm,
                profiles=profiles(kind, prefill_chunk),
                formats=formats if kind == "step" else frozenset(),
                weight_bytes=weight_bytes(model),
                timing_cache=target.timing_cache,
            )
            reports[kind] = build_engine(request, tell)
        return reports
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_plugin_engines(
    writer: BundleWriter,
    files: dict[str, str],
    target: EngineTarget,
    prefill_chunk: int,
    on_progress: Callable[[int, int, str], None],
) -> dict[str, EngineReport]:
    """Builds an engine of each `plugin` graph into a plan beside it. Plans hold no weights.

    Args:
        files: the graphs' files, written already, by kind.

    Raises:
        MissingDependencyError, BuildError: see `build_engine`.
    """
    reports = {}
    for i, (kind, name) in enumerate(files.items()):

        def tell(done: int, total: int, phase: str, i: int = i) -> None:
            on_progress(i * total + done, len(files) * total, phase)

        graph = writer.path(name)
        request = EngineRequest(
            flavour=target.flavour,
            graph=graph,
            plan=writer.path(plan_name(name)),
            sm=target.sm,
            profiles=(_plugin_profile(kind, graph, prefill_chunk),),
            formats=frozenset(),
            weight_bytes=0,
            timing_cache=target.timing_cache,
        )
        reports[kind] = build_engine(request, tell)
    return reports


def _plugin_profile(kind: str, graph: Path, prefill_chunk: int) -> Profile:
    """A step takes as many tokens as fit, for more are a prompt's; the others take all or are
    refused."""
    if kind == "prefill":
        most = max(prefill_chunk, MAX_TOKENS)
        return Profile(1, most, most)
    most = MAX_TOKENS
    if kind == "step":
        most = max(most_tokens(read_plugin_graph(graph).launches, MAX_TOKENS), 1)
    return Profile(1, 1, most)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of a graph's weights."""
    values = model.graph.initializers.values()
    return sum(v.const_value.nbytes for v in values if v.const_value is not None)
