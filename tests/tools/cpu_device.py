"""A device for `PluginSession` on the CPU: NumPy arrays; the reference or the emulator runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.runtime.executors.program import Call, View
from tests.tools import emulator
from tests.tools.plugin_reference import compute

Array = npt.NDArray[Any]
Run = Callable[[Call, Sequence[Array], Sequence[Array]], None]


def reference(call: Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Runs a launch by its NumPy definition."""
    compute(call.node.op, call.node.attributes, inputs, outputs)


def emulated(call: Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Runs a launch's kernel in the emulator."""
    emulator.run(call.launch, inputs, outputs)


class CpuDevice:
    """Memory is NumPy bytes. `calls` counts launches by node type."""

    def __init__(self, run: Run = reference) -> None:
        self._run = run
        self.calls: dict[str, int] = {}

    def allocate(self, nbytes: int) -> Array:
        return np.zeros(nbytes, np.uint8)

    def copy_of(self, memory: Array) -> Array:
        return memory.copy()

    def copy(self, source: Array, target: Array) -> None:
        target[:] = source

    def fill_zero(self, memory: Array) -> None:
        memory[:] = 0

    def write(self, view: View, data: Array) -> None:
        array(view).reshape(-1).view(np.uint8)[:] = data.reshape(-1).view(np.uint8)

    def write_file(self, memory: Array, path: Path) -> None:
        memory[:] = np.fromfile(path, np.uint8)

    def read(self, view: View) -> Array:
        return array(view).copy()

    def read_rows(self, view: View, first: int, last: int) -> Array:
        return self._entries(view)[:, first:last].copy()

    def write_rows(self, view: View, first: int, data: Array) -> None:
        self._entries(view)[:, first : first + data.shape[1]] = data

    def move_rows(self, view: View, first: int, count: int) -> None:
        entries = self._entries(view)
        entries[:, :count] = entries[:, first : first + count].copy()

    def peak_bytes(self) -> None:
        return None

    def _entries(self, view: View) -> Array:
        return array(view).view(np.uint8).reshape(view.shape[0], view.shape[1], -1)

    def ready(self, calls: Sequence[Call]) -> Callable[[], None]:
        return lambda: self.run(calls)

    def run(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.calls[call.node.op] = self.calls.get(call.node.op, 0) + 1
            self._call(call)

    def _call(self, call: Call) -> None:
        # One array for each place: that is how a kernel's output may be its input.
        arrays = {(id(v.memory), v.offset): array(v) for v in (*call.inputs, *call.outputs)}
        inputs, outputs = (
            [arrays[id(view.memory), view.offset] for view in views]
            for views in (call.inputs, call.outputs)
        )
        self._run(call, inputs, outputs)


def array(view: View) -> Array:
    dtype = np.dtype(getattr(ml_dtypes, view.dtype, None) or view.dtype)
    raw = view.memory[view.offset : view.offset + view.nbytes]
    result: Array = raw.view(dtype).reshape(view.shape)
    return result
