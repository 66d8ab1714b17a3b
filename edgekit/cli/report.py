"""`edgekit build --report`: what quantizing cost, as tables, JSON and a picture in the bundle.

The error of the weights is measured from the two checkpoints. For the embedded model, which has
questions with known answers and runs here, a bundle of the unquantized weights is built beside it
and both answer the same questions.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cli.output import out
from edgekit.cli.progress import Sink, Step

if TYPE_CHECKING:
    from edgekit.export.build import BuildRequest
    from edgekit.runtime.quality import Quality

REPORT, PLOT = "report.json", "report.png"
PER_SKILL = 6
_SEED = 11


def write_report(original: Path, request: BuildRequest, ask: bool, on_event: Sink) -> None:
    """Measures and writes report.json, and report.png where something was quantized, into the
    finished bundle.

    Args:
        original: the checkpoint before quantization; `request` built the bundle from the other.
        ask: whether the model answers nano's questions.
    """
    from edgekit.export.quantize import calibration_report
    from edgekit.export.quantize.plot import plot_report
    from edgekit.export.quantize.report import by_format, by_layer, weight_errors

    def progress(done: int, total: int) -> None:
        on_event(Step("errors", done, total, "weights"))

    errors = weight_errors(original, request.checkpoint, progress)
    quality = _quality(original, request, on_event) if ask and errors else None
    record = {
        "recipe": request.recipe,
        "formats": [error.as_dict() for error in by_format(errors)],
        "layers": [error.as_dict() for error in by_layer(errors)],
        "weights": [error.as_dict() for error in errors],
        "quality": quality.as_dict() if quality is not None else None,
        "calibration": calibration_report(request.checkpoint),
    }
    part = request.output / f"{REPORT}.part"
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.rename(request.output / REPORT)
    if not errors:
        return
    lost = quality.skills if quality is not None else None
    title = f"{request.output.name}, recipe {request.recipe}"
    plot_report(request.output / PLOT, title, by_layer(errors), lost)


def show_report(bundle: Path) -> None:
    """Prints the tables of a bundle's report."""
    report = json.loads((bundle / REPORT).read_text())
    if not report["layers"]:
        out.note("nothing was quantized: the weights are the checkpoint's own")
        return
    columns = ["name", "format", "weights", "rms_error", "largest_error"]
    out.table(columns, _rows(report["layers"]))
    out.print("")
    out.table(columns, _rows(report["formats"]))
    if (quality := report["quality"]) is not None:
        out.print("")
        out.record(
            {
                "questions": quality["questions"],
                "right": f"{quality['right']:.1%}, unquantized {quality['reference_right']:.1%}",
                "lost": f"{quality['lost']:+.1f} points, 95 % within {quality['interval']:.1f}",
                "KL": f"{quality['kl']:.5f} nats a token, at worst {quality['kl_worst']:.3f}",
            }
        )
        changed = {name: lost for name, lost in quality["skills"].items() if lost}
        if changed:
            out.print("")
            rows = [{"skill": name, "lost": lost} for name, lost in changed.items()]
            out.table(["skill", "lost"], rows)
    out.note(f"plot: {bundle / PLOT}")


def report_record(bundle: Path) -> dict[str, Any]:
    """The report for `--json`, with where the picture is, if there is one."""
    report: dict[str, Any] = json.loads((bundle / REPORT).read_text())
    return {**report, "plot": str(bundle / PLOT) if report["layers"] else None}


def _rows(errors: Sequence[dict[str, Any]]) -> list[dict[str, object]]:
    return [
        {
            "name": error["name"],
            "format": error["format"],
            "weights": error["elements"],
            "rms_error": f"{error['rms']:.2%}",
            "largest_error": f"{error['worst']:.2%}",
        }
        for error in errors
    ]


def _quality(original: Path, request: BuildRequest, on_event: Sink) -> Quality:
    from edgekit.export.build import build_bundle
    from edgekit.recipes.nano.questions import questions
    from edgekit.runtime.model import load_model
    from edgekit.runtime.quality import compare, record_reference

    asked = [question for question in questions(PER_SKILL, _SEED) if question.checked]

    def progress(before: int) -> Any:
        return lambda done, _: on_event(Step("ask", before + done, 2 * len(asked), "questions"))

    with tempfile.TemporaryDirectory(dir=request.output.parent) as folder:
        unquantized = replace(request, checkpoint=original, output=Path(folder) / "unquantized")
        with load_model(build_bundle(unquantized)) as model:
            reference = record_reference(model, asked, progress(0))
    with load_model(request.output) as model:
        return compare(reference, model, progress(len(asked)))
