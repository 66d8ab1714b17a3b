"""Quantizing a checkpoint by a recipe.

Three ways, and `foresee` says which and why: a checkpoint that is quantized stays as it is;
weights alone are quantized by edgekit in NumPy, with ModelOpt's bits, in constant memory; what
looks at activations runs NVIDIA ModelOpt, which needs memory for the whole model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.choice import Choice
from edgekit.errors import EdgekitError, UsageError
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize.declaration import kept_modules
from edgekit.export.quantize.draft import carry_draft, quantize_draft
from edgekit.export.quantize.encode import outputs
from edgekit.export.quantize.plan import WeightPlan, plan_weights
from edgekit.export.quantize.process import (
    calibration_report,
    describe_unreached,
    run_modelopt,
)
from edgekit.export.quantize.rules import read_rules
from edgekit.export.quantize.stream import QuantizeEvent, Source, quantize_stream
from edgekit.recipe import Recipe

__all__ = [
    "Outcome",
    "QuantizeEvent",
    "Way",
    "calibration_report",
    "describe_unreached",
    "foresee",
    "quantize_checkpoint",
    "quantize_draft",
]

Way = Literal["unchanged", "numpy", "modelopt"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `quantize_checkpoint` would do.

    Attributes:
        nbytes: of the weights that the model uses, afterwards.
    """

    way: Choice[Way]
    nbytes: int


def foresee(checkpoint: Path, recipe: Recipe, calib: Path | None = None) -> Outcome:
    """How `quantize_checkpoint` would go about it, and how large the result would be.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        EdgekitError: the recipe cannot be applied to this model.
    """
    opened = Checkpoint.open(checkpoint)
    way, plan = _choose(opened, recipe, calib)
    size = opened.nbytes
    for module, numerics in plan.modules.items() if plan is not None else ():
        weight = opened.entry(f"{module}.weight")
        size += sum(output.nbytes for output in outputs(weight, numerics)) - weight.nbytes
    return Outcome(way, size)


def quantize_checkpoint(
    checkpoint: Path,
    recipe: Recipe,
    out: Path,
    on_event: Callable[[QuantizeEvent], None] = lambda event: None,
    calib: Path | None = None,
) -> Path:
    """The checkpoint as the recipe wants it: itself, or quantized into `out`.

    A draft in its folder `draft` goes with it, by the draft's own rules.

    Args:
        out: a folder that is new or that an earlier, interrupted call left.
        calib: texts to calibrate on; giving some measures activations even where the recipe
            does not.

    Raises:
        CheckpointError, EdgekitError, MissingDependencyError: see `foresee` and the ways.
    """
    opened = Checkpoint.open(checkpoint)
    way, plan = _choose(opened, recipe, calib)
    if plan is None or way.value == "unchanged":
        return checkpoint
    if way.value == "numpy":
        kept = kept_modules(opened.spec, plan.modules)
        source = Source(checkpoint, opened.tensors, kept)
        quantize_stream(source, plan.modules, out, on_event)
    elif not (out / "config.json").exists():
        size = opened.nbytes

        def progress(done: int, total: int) -> None:
            on_event(QuantizeEvent(size * done // total, size, f"calibration text {done}"))

        run_modelopt(checkpoint, str(recipe.quantize_source), out, calib, progress)
        on_event(QuantizeEvent(size, size, "calibrated"))
    carry_draft(checkpoint, recipe, out, on_event)
    return out


def _choose(
    checkpoint: Checkpoint, recipe: Recipe, calib: Path | None
) -> tuple[Choice[Way], WeightPlan | None]:
    source = recipe.quantize_source
    if recipe.quantize is None or source is None:
        if calib is not None:
            raise UsageError(
                f"recipe {recipe.name} quantizes nothing, so there is nothing to calibrate",
                hint="edgekit recipes lists those that do",
            )
        return Choice("unchanged", f"recipe {recipe.name} keeps the weights as published"), None
    stored = Counter(form for form in checkpoint.formats.values() if form != "dense")
    if stored:
        found = ", ".join(f"{count} {form}" for form, count in sorted(stored.items()))
        return Choice("unchanged", f"the checkpoint is quantized already: {found} weights"), None
    plan = plan_weights(read_rules(source), checkpoint.spec)
    calibrated = recipe.quantize.activations == "calibrated" or calib is not None
    if not calibrated and not plan.beyond:
        why = "the recipe quantizes weights from themselves alone"
        if plan.activations:
            why = f"recipe {recipe.name} ignores activations ({', '.join(plan.activations)})"
        return Choice("numpy", why), plan
    if any(numerics.format == "int4" for numerics in plan.modules.values()):
        raise EdgekitError(
            f"recipe {recipe.name} cannot calibrate INT4",
            cause="ModelOpt 0.47 cannot export INT4 experts of NemotronH",
            hint="set activations: ignored, and give no calibration file",
        )
    why = plan.beyond or ("--calib" if calib is not None else "activations: calibrated")
    return Choice("modelopt", why), plan
