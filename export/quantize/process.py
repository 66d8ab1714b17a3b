"""Starts ModelOpt in a process of its own and follows it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import BuildError, CheckpointError, EdgekitError, MissingDependencyError

_ERRORS = {1: CheckpointError, 3: MissingDependencyError, 4: BuildError}
REPORT = "calibration.json"
"""In the quantized folder: how many texts, tokens and experts calibration saw."""


def calibration_report(folder: Path) -> dict[str, Any] | None:
    """What `run_modelopt` noted in a folder it made; None for any other folder."""
    path = folder / REPORT
    return json.loads(path.read_text()) if path.is_file() else None


def describe_unreached(unreached: Mapping[str, Sequence[int]]) -> str:
    """Experts by layer, for people: `model.layers.1.mixer.experts: 3, 5`."""
    lines = (f"{layer}: {', '.join(map(str, experts))}" for layer, experts in unreached.items())
    return "\n".join(lines)


def run_modelopt(
    checkpoint: Path,
    source: str,
    out: Path,
    calib: Path | None,
    on_progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Quantizes with ModelOpt; `out` appears whole or not at all.

    Args:
        source: a recipe's file, or its name in ModelOpt's library.
        on_progress: called with (texts done, texts in all).

    Returns:
        the report: texts, tokens, experts, and those no token reached, by layer.

    Raises:
        MissingDependencyError: ModelOpt is not installed.
        EdgekitError: what the process said, or the end of what it printed.
    """
    command = [sys.executable, "-m", "edgekit.export.quantize.modelopt"]
    command += [str(checkpoint), source, str(out)]
    command += ["--calib", str(calib)] if calib is not None else []
    report: dict[str, Any] | None = None
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                event = json.loads(line)
                if event["type"] == "progress":
                    on_progress(event["done"], event["total"])
                elif event["type"] == "error":
                    kind = _ERRORS.get(event["exit_code"], EdgekitError)
                    raise kind(event["error"], cause=event["cause"], hint=event["hint"])
                else:
                    report = event
        except BaseException:
            process.kill()
            raise
        process.wait()
        if process.returncode != 0 or report is None:
            log.seek(0)
            raise BuildError(
                "ModelOpt failed",
                cause="\n".join(log.read().splitlines()[-12:]) or f"exit {process.returncode}",
                hint="set activations: ignored in the recipe to quantize the weights without it",
            )
    del report["type"]
    (out / REPORT).write_text(json.dumps(report) + "\n")
    return report
