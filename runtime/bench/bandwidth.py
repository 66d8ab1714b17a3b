"""How fast memory is: a large copy, the best of a few, each byte counted as read and as written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from edgekit.runtime.executors.program import Store

_CPU_BYTES = 128 << 20
"""Larger than the caches."""
_DEVICE_BYTES = 512 << 20
_REPEATS = 5


def cpu_bandwidth(threads: int) -> float:
    """Bytes a second of the CPU's memory with so many threads."""
    source = np.ones(_CPU_BYTES // 8)
    target = np.empty_like(source)
    pieces = list(
        zip(np.array_split(source, threads), np.array_split(target, threads), strict=True)
    )
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:  # NumPy lets go of the interpreter meanwhile
            for _ in pool.map(lambda piece: np.copyto(piece[1], piece[0]), pieces):
                pass

        return 2 * source.nbytes / _best(copy)


def device_bandwidth(store: Store) -> float:
    """Bytes a second of a device's own memory."""
    from edgekit.runtime.executors.program import View

    source, target = store.allocate(_DEVICE_BYTES), store.allocate(_DEVICE_BYTES)
    view = View(target, 0, (1,), "uint8")

    def copy() -> None:
        store.copy(source, target)
        store.read(view)  # waits

    return 2 * _DEVICE_BYTES / _best(copy)


def _best(run: Callable[[], None]) -> float:
    run()
    times = []
    for _ in range(_REPEATS):
        started = perf_counter()
        run()
        times.append(perf_counter() - started)
    return min(times)
