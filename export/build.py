"""Checkpoint to bundle: export the graph, lower it, write weights, golden logits and manifest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import onnx_ir as ir

import edgekit
from edgekit.draft import DraftRequest
from edgekit.errors import UsageError
from edgekit.export.bundle_writer import BundleWriter, write_bundle
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.drafts import lower_drafts, open_drafts, save_drafts, taps
from edgekit.export.engine import EngineReport
from edgekit.export.engine.build import check_memory
from edgekit.export.engine.check import check_installed
from edgekit.export.engines import EngineTarget, weight_bytes, write_engines, write_plugin_engines
from edgekit.export.golden import compute_golden
from edgekit.export.graph.nemotron_h import build_commit, build_step
from edgekit.export.lower import ort, plugin, plugin_commit, plugin_prefill, standard
from edgekit.export.lower.plugin_parts import check_kernels
from edgekit.export.plugins.collect import write_kernels
from edgekit.export.weights import save_graph, weight_sizes, write_weights
from edgekit.kernels.attention import KvCache
from edgekit.manifest import DraftGraphs, Graphs, Manifest, StateTensor
from edgekit.model import ModelSpec
from edgekit.units import size_text

COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Files of a checkpoint that a bundle carries unchanged."""

WEIGHTS = "weights/weights.bin"
GOLDEN_TOKENS = 32


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build.

    Attributes:
        output: the bundle's directory, whose name is the bundle's.
        context: KV rows. prefill_chunk: most tokens a step.
        lowering: ``ort``, ``plugin``, ``standard`` for an engine, or ``canonical`` to stop at the
            canonical graph with packed weights.
        sm: what the kernels of a ``plugin`` bundle are compiled for, 90 for compute capability
            9.0; None leaves them out, and then only a CPU can stand in for them.
        engine: what a ``standard`` bundle's engines, or those of a ``plugin`` bundle for TensorRT,
            are built with and for.
        kv_dtype: what a ``plugin`` bundle's KV caches hold.
        taps: layers whose residual stream the graph returns, besides those the drafters read.
        drafts: what shall draft for it. draft_values: how `edgekit build --draft` was told.
        source: what `edgekit build` is called with to build it again; the checkpoint when empty.
    """

    checkpoint: Path
    output: Path
    profile: str
    recipe: str
    context: int
    prefill_chunk: int
    lowering: Literal["ort", "plugin", "standard", "canonical"] = "ort"
    sm: int | None = None
    engine: EngineTarget | None = None
    kv_dtype: KvCache = "bfloat16"
    taps: tuple[int, ...] = ()
    drafts: DraftRequest = field(default_factory=DraftRequest)
    draft_values: tuple[str, ...] = ()
    force: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class BuildEvent:
    """Progress of one step of a build: `done` of `total` in `unit`."""

    step: Literal["quantize", "read", "weights", "golden", "engine", "engines", "finish"]
    done: int
    total: int
    unit: Literal["bytes", "nodes", "parts", "files"]
    detail: str = ""


def build_bundle(
    request: BuildRequest, on_event: Callable[[BuildEvent], None] = lambda event: None
) -> Path:
    """Builds a bundle, or nothing.

    Returns:
        the bundle's directory.

    Raises:
        CheckpointError: the checkpoint cannot be read as it is.
        UsageError: the output exists, or the request makes no sense.
        DoesNotFitError, MissingDependencyError, BuildError: an engine cannot be built here.
    """
    checkpoint = Checkpoint.open(request.checkpoint)
    _check(request, checkpoint.spec)
    if request.engine is not None:
        formats = frozenset(str(form) for form in checkpoint.formats.values())
        check_installed(request.engine.flavour, request.engine.sm, formats)
    on_event(BuildEvent("read", 1, 1, "files", f"{len(checkpoint.tensors)} tensors"))
    if request.lowering == "plugin" and request.sm is not None:
        check_kernels(checkpoint.spec)
    sources = open_drafts(checkpoint, request.drafts)
    request = replace(request, taps=tuple(dict.fromkeys((*request.taps, *taps(sources)))))
    canonical = build_step(checkpoint, request.taps)
    models = lower_graphs(
        canonical,
        build_commit(checkpoint),
        checkpoint.spec,
        request.lowering,
        request.context,
        request.kv_dtype,
        request.taps,
        limited=request.engine is not None,
    )
    limited = request.engine is not None
    drafts = lower_drafts(sources, checkpoint.spec, request.lowering, request.context, limited)
    every = [*models.values(), *(m for graphs in drafts.values() for m in graphs.values())]

    if request.engine is not None and request.lowering == "standard":
        check_memory(max(weight_bytes(model) for model in models.values()))
    versions = _versions(("onnx", "onnx-ir", "onnxruntime", "numpy"))
    with write_bundle(request.output, force=request.force) as writer:
        for name in COMPANIONS:
            if (request.checkpoint / name).exists():
                shutil.copyfile(request.checkpoint / name, writer.path(name))
        if request.lowering == "plugin" and request.sm is not None and request.engine is None:
            hash_of_kernels = write_kernels(every, request.sm, writer)
            versions |= {"sm": str(request.sm), "kernels": hash_of_kernels}
        if request.lowering != "canonical":  # nothing runs that one but the reference itself
            golden = compute_golden(
                canonical,
                checkpoint.spec,
                min(GOLDEN_TOKENS, request.context),
                lambda done, total: on_event(BuildEvent("golden", done, total, "nodes")),
            )
            writer.path("golden.json").write_text(json.dumps(golden.to_json()) + "\n")

        def on_weights(done: int, total: int, name: str) -> None:
            on_event(BuildEvent("weights", done, total, "bytes", name))

        drafters: tuple[DraftGraphs, ...] = ()
        if request.engine is not None and request.lowering == "standard":
            graphs = describe_graphs(models, request)
            versions |= _build_engines(writer, models, request, checkpoint, on_weights, on_event)
        else:
            entry = write_weights(every, writer.path(WEIGHTS), WEIGHTS, on_weights)
            writer.add_hashed(WEIGHTS, entry)
            graphs = save_graphs(writer, models, request)
            drafters = save_drafts(writer, sources, drafts, request.context)
            if request.engine is not None:
                files = {kind: _graph_file(kind) for kind in models}
                for draft in drafters:
                    files |= {f"{draft.kind}.{name}": file for name, file in draft.graphs.items()}
                versions |= _build_plugin_engines(writer, files, request, request.engine, on_event)
        sizes = weight_sizes(models)
        writer.finish(_manifest(request, checkpoint, graphs, drafters, versions, sizes))
        on_event(BuildEvent("finish", 1, 1, "files"))
    return request.output


def _build_engines(
    writer: BundleWriter,
    models: dict[str, ir.Model],
    request: BuildRequest,
    checkpoint: Checkpoint,
    on_weights: Callable[[int, int, str], None],
    on_event: Callable[[BuildEvent], None],
) -> dict[str, str]:
    """Builds the engines and returns the versions they depend on."""
    target = request.engine
    assert target is not None
    reports = write_engines(
        writer,
        models,
        {kind: _graph_file(kind, ".plan") for kind in models},
        target,
        request.prefill_chunk,
        frozenset(str(form) for form in checkpoint.formats.values()),
        on_weights,
        lambda done, total, phase: on_event(BuildEvent("engine", done, total, "parts", phase)),
    )
    return _tell_engines(reports, target, on_event)


def _build_plugin_engines(
    writer: BundleWriter,
    files: dict[str, str],
    request: BuildRequest,
    target: EngineTarget,
    on_event: Callable[[BuildEvent], None],
) -> dict[str, str]:
    """Builds an engine beside each graph and returns the versions they depend on."""
    reports = write_plugin_engines(
        writer,
        files,
        target,
        request.prefill_chunk,
        lambda done, total, phase: on_event(BuildEvent("engine", done, total, "parts", phase)),
    )
    return _tell_engines(reports, target, on_event)


def _tell_engines(
    reports: dict[str, EngineReport], target: EngineTarget, on_event: Callable[[BuildEvent], None]
) -> dict[str, str]:
    for report in reports.values():
        said = f"{size_text(report.nbytes)}, {report.layers} layers, {report.seconds:.0f} s"
        on_event(BuildEvent("engines", 1, 1, "files", f"{report.plan.name}: {said}"))
    return {target.flavour: reports["step"].version, "sm": str(target.sm)}


def _check(request: BuildRequest, spec: ModelSpec) -> None:
    if request.drafts != DraftRequest() and request.lowering not in ("ort", "plugin"):
        raise UsageError(
            f"executor {request.lowering} runs no drafter yet", hint="build with --draft none"
        )
    if request.context < 1 or request.prefill_chunk < 1:
        raise UsageError("context and prefill chunk must be at least 1")
    if request.context > spec.max_position_embeddings:
        raise UsageError(
            f"context {request.context} is longer than the model's {spec.max_position_embeddings}",
            hint=f"--context {spec.max_position_embeddings}",
        )
    bad = [tap for tap in request.taps if not 0 <= tap <= spec.num_hidden_layers]
    if bad:
        raise UsageError(f"tapped layers {bad} are not in 0..{spec.num_hidden_layers}")


def lower_graphs(
    step: ir.Model,
    commit: ir.Model | None,
    spec: ModelSpec,
    lowering: str,
    context: int,
    kv_dtype: KvCache = "bfloat16",
    taps: Sequence[int] = (),
    limited: bool = False,
) -> dict[str, ir.Model]:
    """The graphs of a bundle by their names in `Graphs`, from the canonical ones.

    Args:
        limited: `plugin` graphs keep to MAX_SHARED; see `plugin.lower`.
    """
    models: dict[str, ir.Model] = {}
    if lowering == "plugin":
        kinds: tuple[plugin.GraphKind, ...] = ("step", "verify", "head")
        models |= {
            kind: plugin.lower(step, spec, kind, context, kv_dtype, taps, limited) for kind in kinds
        }
        models["pick"] = plugin.lower_pick(spec)
        models["draw"] = plugin.lower_draw(spec)
        models["judge"] = plugin.lower_judge(spec)
        models["prefill"] = plugin_prefill.lower(step, spec, context, kv_dtype, taps, limited)
        if commit is not None:
            models["commit"] = plugin_commit.lower_commit(commit, spec)
    elif lowering == "standard":
        models["step"] = standard.lower(step, spec, context, "bfloat16")
        if commit is not None:
            models["commit"] = standard.lower(commit, spec, context, "bfloat16")
    elif lowering == "ort":
        models["step"] = ort.lower(step, spec)
        if commit is not None:
            models["commit"] = ort.lower(commit, spec)
    else:
        models["step"] = step
        if commit is not None:
            models["commit"] = commit
    return models


def save_graphs(writer: BundleWriter, models: dict[str, ir.Model], request: BuildRequest) -> Graphs:
    """Writes the graph files and says how they connect."""
    for kind, model in models.items():
        save_graph(model, writer.path(_graph_file(kind)))
    return describe_graphs(models, request)


def describe_graphs(models: dict[str, ir.Model], request: BuildRequest) -> Graphs:
    """The graphs' files and how they connect."""
    # Graphs of plugins stay in the bundle: they say where the engines' weights are.
    suffix = ".plan" if request.engine is not None and request.lowering == "standard" else ".onnx"
    files = {kind: _graph_file(kind, suffix) for kind in models}
    # A plugin commit stacks the layers, whose stashes the verify graph returns one by one.
    stash = models["verify"].graph.outputs if "verify" in models else ()
    if "verify" not in models and "commit" in models:
        stash = models["commit"].graph.inputs
    return Graphs(
        step=files["step"],
        commit=files.get("commit"),
        state=_state_tensors(models["step"], request.context),
        stash=tuple(str(value.name) for value in stash if str(value.name).startswith("stash")),
        tap_layers=request.taps,
        verify=files.get("verify"),
        prefill=files.get("prefill"),
        head=files.get("head"),
        pick=files.get("pick"),
        draw=files.get("draw"),
        judge=files.get("judge"),
    )


def _graph_file(kind: str, suffix: str = ".onnx") -> str:
    return f"target{suffix}" if kind == "step" else f"target.{kind}{suffix}"


def _state_tensors(step: ir.Model, context: int) -> tuple[StateTensor, ...]:
    """State of a step graph: an input ``name.layer`` is written back by ``name_out.layer``."""
    tensors = []
    outputs = {str(value.name) for value in step.graph.outputs}
    for value in step.graph.inputs:
        kind, _, layer = str(value.name).partition(".")
        output = f"{kind}_out.{layer}"
        if output not in outputs:
            continue
        assert value.shape is not None
        assert value.dtype is not None
        shape = tuple(context if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape)
        tensors.append(
            StateTensor(
                input=f"{kind}.{layer}",
                output=output,
                shape=shape,
                dtype=str(value.dtype.numpy()),
                kind="cache" if kind.endswith("_cache") else "recurrent",
            )
        )
    return tuple(tensors)


def _manifest(
    request: BuildRequest,
    checkpoint: Checkpoint,
    graphs: Graphs,
    drafters: tuple[DraftGraphs, ...],
    versions: dict[str, str],
    sizes: tuple[int, int],
) -> Manifest:
    executors = {"ort": "onnxruntime-cpu", "plugin": "torch-cuda", "canonical": "reference"}
    if request.engine is not None:
        executors[request.lowering] = request.engine.flavour
    return Manifest(
        name=request.output.name,
        source=request.source or str(request.checkpoint.resolve()),
        recipe=request.recipe,
        profile=request.profile,
        lowering=request.lowering,
        executor=executors[request.lowering],
        context=request.context,
        prefill_chunk=request.prefill_chunk,
        weights_format=_describe_weights(checkpoint, request.lowering),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions,
        weight_bytes=sizes[0],
        expert_bytes=sizes[1],
        target=graphs,
        drafts=drafters,
        draft_values=request.draft_values,
    )


def _describe_weights(checkpoint: Checkpoint, lowering: str) -> str:
    """The formats that the matrices have in the bundle."""
    if lowering == "ort":
        return "float32+int4" if "int4" in checkpoint.formats.values() else "float32"
    stored = {str(form) for form in checkpoint.formats.values() if form != "dense"}
    for module, form in checkpoint.formats.items():
        if form == "dense":
            stored.add(str(checkpoint.entry(f"{module}.weight").dtype))
    return "+".join(sorted(stored))


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {"edgekit": edgekit.__version__}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
