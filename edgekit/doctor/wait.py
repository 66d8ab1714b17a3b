"""Waits for what a service needs before it may start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from edgekit.detect import read_meminfo
from edgekit.doctor.device import GPU_NODES
from edgekit.errors import DoesNotFitError, MissingDependencyError
from edgekit.units import size_text


def wait_for(
    need: int,
    *,
    gpu: bool,
    seconds: float,
    root: Path = Path("/"),
    clock: Callable[[], float] = monotonic,
    pause: Callable[[float], None] = sleep,
) -> None:
    """Returns once so many bytes are available and, if asked for, a GPU device node is there.

    Raises:
        DoesNotFitError: the memory did not come in time.
        MissingDependencyError: the GPU did not.
    """
    end = clock() + seconds
    while True:
        available = read_meminfo(root)["MemAvailable"]
        found = not gpu or any((root / "dev" / name).exists() for name in GPU_NODES)
        if available >= need and found:
            return
        if clock() >= end:
            break
        pause(1.0)
    if not found:
        raise MissingDependencyError(
            f"no GPU device node after {seconds:g} s", hint="edgekit doctor"
        )
    raise DoesNotFitError(
        f"{size_text(available)} of memory are available after {seconds:g} s, {size_text(need)} "
        "are needed",
        hint="stop other programs: ps aux --sort=-rss | head",
    )
