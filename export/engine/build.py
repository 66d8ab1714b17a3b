"""Builds one engine in a process of its own, and says in one error why it did not.

A builder holds a copy of all weights, and on a board whose GPU shares the CPU's memory it can take
the machine down with it. So its need is predicted and compared with what is free first, and it runs
where the kernel can kill it alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgekit import errors
from edgekit.detect import read_meminfo
from edgekit.errors import BuildError, DoesNotFitError, EdgekitError
from edgekit.export.engine.request import STEPS, EngineReport, EngineRequest
from edgekit.units import size_text

BASE_BYTES = 700 << 20
BYTES_PER_WEIGHT_BYTE = 1.2
"""A build of a model without weights, and for each byte of them (docs/measurements.md). The weights
file is mapped besides, but the kernel can drop its pages, and counts them as available."""


def predicted_bytes(weight_bytes: int) -> int:
    """The most memory a build is expected to need at once."""
    return BASE_BYTES + int(BYTES_PER_WEIGHT_BYTE * weight_bytes)


def build_engine(
    request: EngineRequest,
    on_progress: Callable[[int, int, str], None] = lambda done, total, phase: None,
    *,
    command: tuple[str, ...] = (sys.executable, "-m", "edgekit.export.engine.worker"),
    root: Path = Path("/"),
) -> EngineReport:
    """Builds an engine, or leaves nothing.

    Args:
        on_progress: called with (parts done, parts in all, phase).
        command: what builds. root: of the file system whose /proc/meminfo is read.

    Raises:
        DoesNotFitError: less memory is free than the build is expected to need.
        MissingDependencyError: the flavour is missing, too old or known to be bad.
        BuildError: it refused or failed, its process was killed, or the engine is not there.
    """
    check_memory(request.weight_bytes, root)
    try:
        report = _run(command, request, on_progress)
        if not request.plan.is_file() or request.plan.stat().st_size != report.nbytes:
            raise BuildError(
                f"the engine {request.plan.name} is not there",
                cause="its builder said it was done",
                hint="free some disk space and build again",
            )
    except BaseException:
        for path in (request.plan, request.plan.with_name(f"{request.plan.name}.part")):
            path.unlink(missing_ok=True)
        raise
    return report


def check_memory(weight_bytes: int, root: Path = Path("/")) -> None:
    """Compares what a build is expected to need with what is free.

    Raises:
        DoesNotFitError: less is free.
    """
    needed, free = predicted_bytes(weight_bytes), read_meminfo(root)["MemAvailable"]
    if needed > free:
        raise DoesNotFitError(
            f"building this engine needs about {size_text(needed)}, {size_text(free)} is free",
            cause=f"TensorRT holds a copy of the {size_text(weight_bytes)} of weights"
            if weight_bytes
            else "that is what TensorRT takes for itself",
            hint="close other programs, build on a larger machine, or use --executor kernels",
        )


def _run(
    command: tuple[str, ...],
    request: EngineRequest,
    on_progress: Callable[[int, int, str], None],
) -> EngineReport:
    answer: dict[str, Any] = {}
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True
        ) as worker,
    ):
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it died early: its exit code tells more
                worker.stdin.write(request.to_json())
                worker.stdin.close()
            for line in worker.stdout:
                record = json.loads(line)
                if record["type"] == "progress":
                    on_progress(record["done"], STEPS, record["phase"])
                else:
                    answer = record
            worker.wait()
        except BaseException:
            worker.kill()
            raise
        complaints.seek(0)
        said = complaints.read()
    kind = answer.get("type")
    if kind == "error":
        raise _error(answer)
    if kind != "done":
        raise _death(worker.returncode, said, request)
    on_progress(STEPS, STEPS, "done")
    fields = {name: answer[name] for name in EngineReport.__slots__}
    return EngineReport(**{**fields, "plan": Path(answer["plan"])})


def _error(answer: dict[str, Any]) -> EdgekitError:
    """The error that the worker met."""
    kind = getattr(errors, answer["kind"])
    error: EdgekitError = kind(answer["error"], cause=answer["cause"], hint=answer["hint"])
    return error


def _death(code: int, complaints: str, request: EngineRequest) -> BuildError:
    if code == -signal.SIGKILL:
        return BuildError(
            "the engine's builder was killed",
            cause="most likely the kernel ran out of memory: "
            f"about {size_text(predicted_bytes(request.weight_bytes))} was expected to be enough",
            hint="close other programs, build on a larger machine, or use --executor kernels",
        )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return BuildError(
        f"the engine's builder died with {how}",
        cause="\n".join(complaints.strip().splitlines()[-5:]),
        hint="use another version of TensorRT, or build with --executor kernels",
    )
