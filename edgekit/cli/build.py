"""`edgekit build`: from a checkpoint to a bundle."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edgekit.choice import Choice
from edgekit.cli.options import (
    Context,
    Device,
    Json,
    PrefillChunk,
    RecipeName,
    bundles_dir,
    complete_model,
    embedded_checkpoint,
    globals_of,
)
from edgekit.cli.output import out
from edgekit.cli.report import report_record, show_report, write_report
from edgekit.errors import UsageError
from edgekit.units import size_text

if TYPE_CHECKING:
    from edgekit.budget import Plan
    from edgekit.cli.target import Target
    from edgekit.draft import DraftRequest
    from edgekit.export.build import BuildRequest
    from edgekit.export.engines import EngineTarget
    from edgekit.export.quantize import QuantizeEvent, Way
    from edgekit.settings import Settings


class StopAfter(StrEnum):
    """Where a build may stop early."""

    graph = "graph"


class BuildFor(StrEnum):
    """What runs the bundle."""

    ort = "ort"
    kernels = "kernels"
    tensorrt = "tensorrt"
    tensorrt_rtx = "tensorrt-rtx"


class ProgressMode(StrEnum):
    """How progress is shown."""

    auto = "auto"
    plain = "plain"
    json = "json"


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """A build before it starts. `sm` is what kernels are compiled for, None without any."""

    checkpoint: Path
    source: str
    output: Path
    target: Target
    memory: Plan
    stop_after: str | None
    force: bool
    calib: Path | None
    sm: int | None
    report: bool
    quantize: Choice[Way]
    draft: Choice[DraftRequest]
    draft_values: tuple[str, ...]


def build(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=complete_model,
            help="Checkpoint folder, or `nano` for the embedded model.",
            show_default=False,
        ),
    ],
    device: Device = None,
    recipe: RecipeName = None,
    context: Context = None,
    prefill_chunk: PrefillChunk = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where to write the bundle."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Its name among your bundles."),
    ] = None,
    sm: Annotated[
        int | None,
        typer.Option(
            "--sm",
            metavar="N",
            help="Compile kernels for this compute capability (90 is 9.0), not for the device's.",
        ),
    ] = None,
    executor: Annotated[
        BuildFor | None,
        typer.Option(
            "--executor",
            help="ONNX Runtime, edgekit's CUDA kernels, or an engine, instead of the profile's.",
        ),
    ] = None,
    stop_after: Annotated[
        StopAfter | None,
        typer.Option("--stop-after", help="Stop at the canonical graph, for no executor."),
    ] = None,
    calib: Annotated[
        Path | None,
        typer.Option(
            "--calib",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Texts to calibrate quantization on: paragraphs, or .jsonl; 1024 at most.",
        ),
    ] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft",
            metavar="DIR|dspark|dflash|mtp|none",
            help="What drafts for it; repeatable. Left out: the draft it comes with.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Measure what quantizing costs, as tables and as report.png in the bundle.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a bundle that is there already.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be built, and build nothing.")
    ] = False,
    json: Json = False,
    progress: Annotated[
        ProgressMode | None, typer.Option("--progress", help="How to show progress on stderr.")
    ] = None,
) -> None:
    """Build a bundle: quantize if the recipe asks, write the graph and its weights, check it.

    Prints the bundle's folder. The bundle is written beside its place and renamed: it is there
    whole or not at all.
    """
    out.json = json
    settings = globals_of(ctx).settings(
        device=device,
        recipe=recipe,
        context=context,
        prefill_chunk=prefill_chunk,
        progress=progress.value if progress is not None else None,
    )
    if output is not None and name is not None:
        raise UsageError("--output and --name both say where the bundle goes", hint="give one")
    plan = prepare(
        settings,
        model,
        output=output,
        name=name,
        stop_after=stop_after,
        force=force,
        calib=calib,
        sm=sm,
        report=report,
        executor=executor,
        draft=tuple(draft or ()),
    )
    if dry_run:
        _show(plan)
        return
    started = time.monotonic()
    path = execute(plan)
    if out.json:
        measured = {"report": report_record(path)} if report else {}
        costs = {"seconds": time.monotonic() - started, "peak_bytes": peak_memory()}
        out.json_line({"type": "bundle", "path": str(path), **_choices(plan), **costs, **measured})
        return
    out.note(
        f"built in {time.monotonic() - started:.1f} s, at most {size_text(peak_memory())} used"
    )
    out.print(str(path))
    if report:
        show_report(path)
    if stop_after is None and output is None:
        out.hint(f"edgekit run {shlex.quote(path.name)}")


def prepare(
    settings: Settings,
    model: str,
    *,
    output: Path | None = None,
    name: str | None = None,
    stop_after: StopAfter | None = None,
    force: bool = False,
    calib: Path | None = None,
    sm: int | None = None,
    report: bool = False,
    executor: BuildFor | None = None,
    draft: tuple[str, ...] = (),
) -> BuildPlan:
    """Resolves device, recipe and sizes, and checks that the result fits the device.

    Raises:
        UsageError: a name is unknown or is no name, or the recipe asks for what is not built.
        DoesNotFitError: the memory plan has no room.
        MissingDependencyError: the GPU to build for cannot be told from here, or a report has
            nothing to draw with.
    """
    from edgekit.budget import fit_error
    from edgekit.cli import target as targets
    from edgekit.cli.drafts import choose_drafts, needs

    if report:
        from edgekit.picture import require_matplotlib

        require_matplotlib("a report's plot")
    checkpoint = targets.checkpoint_folder(model)
    described = targets.plan_model(model)
    target = targets.resolve_target(
        settings, model, executor=executor.value if executor is not None else None
    )
    if cache_type := _unwritten_cache(target):
        raise UsageError(
            f"recipe {target.recipe.name} asks for a {cache_type} KV cache",
            cause=f"executor {target.executor.value} has none: float8 is for edgekit's own kernels",
            hint="set kv_dtype: bfloat16 in the recipe, or build float8 with --executor kernels",
        )
    described, way = targets.as_recipe_leaves(described, target, model, calib)
    stop = stop_after.value if stop_after is not None else None
    lowering = lowering_of(stop, target.executor.value)
    drafts = choose_drafts(draft, checkpoint, target.recipe, lowering)
    described = replace(described, draft=needs(drafts.value, checkpoint, lowering))
    memory = targets.plan_for(target, described, elsewhere=sm is not None)
    if stop_after is None:
        if memory.headroom < 0:
            boards = list(targets.plans_for_all(settings, model, described))
            raise fit_error(memory, described, boards)
        runs_kernels = target.executor.value != "ort"
        sm = (sm or targets.compute_capability(target)) if runs_kernels else None
    if output is None:
        suffix = "-graph" if stop_after is not None else ""
        chosen = name or f"{described.name}{suffix}"
        if "/" in chosen or chosen.startswith("."):
            raise UsageError(f"{chosen!r} is no bundle name", hint="use --output for a folder")
        output = bundles_dir(settings) / chosen
    source = str(checkpoint.resolve()) if Path(model).is_dir() else model
    return BuildPlan(
        checkpoint,
        source,
        output.expanduser(),
        target,
        memory,
        stop,
        force,
        calib,
        sm,
        report,
        way,
        drafts,
        draft,
    )


def _unwritten_cache(target: Target) -> str | None:
    """The KV type that was asked for, if no lowering writes it."""
    wanted = target.recipe.kv_dtype or target.profile.defaults.kv_dtype
    if wanted == "float8" and target.executor.value in ("kernels", "tensorrt"):
        return None
    return wanted if wanted in ("float8", "float16") else None


def execute(plan: BuildPlan) -> Path:
    """Builds, with progress on stderr, and returns the bundle's folder."""
    import shutil

    from edgekit.cli.progress import show_progress
    from edgekit.export.build import BuildEvent, build_bundle
    from edgekit.export.engine.check import check_installed
    from edgekit.export.quantize import quantize_checkpoint
    from edgekit.model import load_spec
    from edgekit.runtime.check import check_text_files

    if plan.stop_after is None:
        check_text_files(plan.checkpoint, load_spec(plan.checkpoint))
    executor = plan.target.executor
    if plan.stop_after is None and executor.value != "ort":
        out.note(f"executor {executor.value} for sm_{plan.sm}: {executor.why}")
    engine = _engine_target(plan)
    if engine is not None:
        check_installed(engine.flavour, engine.sm)
    scratch = _quantized_folder(plan)
    with show_progress(plan.target.settings.values.progress) as on_event:

        def on_quantize(event: QuantizeEvent) -> None:
            on_event(BuildEvent("quantize", event.done, event.total, "bytes", event.detail))

        checkpoint = quantize_checkpoint(
            plan.checkpoint, plan.target.recipe, scratch, on_quantize, plan.calib
        )
        _warn_of_unreached(checkpoint)
        drafts = _drafts(plan, checkpoint, scratch, on_quantize)
        request = _request(plan, checkpoint, drafts)
        path = build_bundle(request, on_event)
        if plan.report:
            ask = plan.checkpoint == embedded_checkpoint() and request.lowering == "ort"
            write_report(plan.checkpoint, request, ask, on_event)
    shutil.rmtree(scratch, ignore_errors=True)
    return path


def peak_memory() -> int:
    """Most bytes that this process, or one it waited for, had resident at any time."""
    import resource

    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 1024 * max(resource.getrusage(kind).ru_maxrss for kind in kinds)


def _warn_of_unreached(checkpoint: Path) -> None:
    """Says which experts calibration did not reach: what is routed to them was not measured."""
    from edgekit.export.quantize import calibration_report, describe_unreached

    report = calibration_report(checkpoint)
    if report is None or not report["unreached"]:
        return
    missed = sum(len(experts) for experts in report["unreached"].values())
    out.warn(
        f"calibration did not reach {missed} of {report['experts']} experts\n"
        + describe_unreached(report["unreached"])
    )
    out.hint("give more texts of the kind the model will see: --calib FILE")


def _quantized_folder(plan: BuildPlan) -> Path:
    """Where a quantized checkpoint waits for its bundle, so that a stopped build can go on.

    Another place for every other checkpoint, recipe, rule file and calibration file.
    """
    import hashlib

    from edgekit.paths import cache_dir

    recipe = plan.target.recipe
    read = [*plan.checkpoint.rglob("*"), plan.calib, recipe.quantize_source, recipe.draft_source]
    files = sorted(path for path in read if isinstance(path, Path) and path.is_file())
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    wanted = f"{plan.checkpoint.resolve()}|{stats}|{recipe.model_dump_json()}|{plan.calib}"
    return cache_dir() / "quantized" / hashlib.sha256(wanted.encode()).hexdigest()[:16]


def _request(plan: BuildPlan, checkpoint: Path, drafts: DraftRequest) -> BuildRequest:
    from edgekit.export.build import BuildRequest

    return BuildRequest(
        checkpoint=checkpoint,
        output=plan.output,
        profile=plan.target.profile.name,
        recipe=plan.target.recipe.name,
        context=plan.memory.context.value,
        prefill_chunk=plan.memory.prefill_chunk.value,
        lowering=lowering_of(plan.stop_after, plan.target.executor.value),
        sm=plan.sm if plan.stop_after is None else None,
        engine=_engine_target(plan),
        kv_dtype="float8_e4m3fn" if plan.memory.kv_dtype.value == "float8" else "bfloat16",
        drafts=drafts,
        draft_values=plan.draft_values,
        force=plan.force,
        source=plan.source,
    )


def _drafts(
    plan: BuildPlan, checkpoint: Path, scratch: Path, on_event: Callable[[QuantizeEvent], None]
) -> DraftRequest:
    """The drafters, with the draft model as the recipe wants it.

    Quantizing a checkpoint takes the draft inside it along; any other draft is quantized here.
    """
    from edgekit.export.draft_checkpoint import FOLDER
    from edgekit.export.quantize.draft import quantize_draft

    request = plan.draft.value
    if request.folder is None:
        return request
    if request.folder == plan.checkpoint / FOLDER and checkpoint != plan.checkpoint:
        return replace(request, folder=checkpoint / FOLDER)
    folder = quantize_draft(request.folder, plan.target.recipe, scratch / "only-draft", on_event)
    return replace(request, folder=folder)


def lowering_of(
    stop_after: str | None, executor: str
) -> Literal["ort", "plugin", "standard", "canonical"]:
    if stop_after == "graph":
        return "canonical"
    if executor == "ort":
        return "ort"
    return "plugin" if executor in ("kernels", "tensorrt") else "standard"


def _engine_target(plan: BuildPlan) -> EngineTarget | None:
    from edgekit.export.engines import EngineTarget
    from edgekit.paths import cache_dir

    flavour = plan.target.executor.value
    if plan.stop_after is not None or flavour == "ort" or flavour == "kernels":
        return None
    assert plan.sm is not None
    timings = cache_dir() / "timing" / f"{flavour}-sm{plan.sm}"
    return EngineTarget(flavour, plan.sm, timings)


def _choices(plan: BuildPlan) -> dict[str, object]:
    from edgekit.cli.drafts import describe

    memory, target = plan.memory, plan.target
    return {
        "device": {"value": target.profile.name, "why": target.profile_why},
        "recipe": {"value": target.recipe.name, "why": target.recipe_why},
        "quantize": {"value": plan.quantize.value, "why": plan.quantize.why},
        "draft": {"value": describe(plan.draft.value), "why": plan.draft.why},
        **{
            name: {"value": getattr(memory, name).value, "why": getattr(memory, name).why}
            for name in ("executor", "context", "prefill_chunk", "kv_dtype", "snapshots")
        },
    }


def _show(plan: BuildPlan) -> None:
    from edgekit.cli.plan import plan_record

    choices = _choices(plan)
    if out.json:
        record = {"checkpoint": str(plan.checkpoint), "path": str(plan.output), **choices}
        out.json_line({"type": "dry-run", **record, "plan": plan_record(plan.memory)})
        return
    rows = [{"setting": key, **value} for key, value in choices.items() if isinstance(value, dict)]
    out.table(["setting", "value", "why"], rows)
    memory = plan.memory
    out.print("")
    out.record(
        {
            "checkpoint": plan.checkpoint,
            "bundle": plan.output,
            "memory": f"{size_text(memory.needed)} of {size_text(memory.available)}: "
            f"{memory.verdict}",
        }
    )
