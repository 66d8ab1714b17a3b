"""A drafter's graphs on ONNX Runtime, with caches of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.errors import BuildError
from edgekit.manifest import DraftGraphs
from edgekit.runtime.executors.ort import load_graph
from edgekit.runtime.session import Rows

Array = npt.NDArray[Any]


class Call:
    """One graph at one size: arrays to fill and to read, bound to the executor's memory.

    Attributes:
        inputs, outputs: by name, without the batch axis of 1; outputs hold until the next `run`.
    """

    def __init__(self, draft: OrtDraft, session: Any, sizes: dict[str, int]) -> None:
        self._draft, self._session = draft, session
        self._binding = session.io_binding()
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        for value in session.get_inputs():
            if value.name in draft.caches:
                self._binding.bind_ortvalue_input(value.name, draft.values[value.name])
            else:
                array = self._array(value, sizes)
                self._binding.bind_ortvalue_input(value.name, draft.value_of(array))
                self.inputs[value.name] = array if value.name in _FLAT else array[0]
        for value in session.get_outputs():
            cache = value.name.replace("_out.", ".")
            if cache in draft.caches:  # appended to in place
                self._binding.bind_ortvalue_output(value.name, draft.values[cache])
            else:
                array = self._array(value, sizes)
                self._binding.bind_ortvalue_output(value.name, draft.value_of(array))
                self.outputs[value.name] = array[0]

    def run(self, length: int = 0) -> None:
        """Runs the graph behind `length` cached rows."""
        inputs = self.inputs
        total = length + len(inputs["tokens"]) if "tokens" in inputs else 0
        if "total_length" in inputs:
            inputs["total_length"][...] = total
        if "last_position" in inputs:
            inputs["last_position"][...] = total - 1
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # ONNX Runtime raises its own classes and plain RuntimeError
            raise BuildError("ONNX Runtime failed to run the draft", cause=str(error)) from error

    @staticmethod
    def _array(value: Any, sizes: dict[str, int]) -> Array:
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in value.shape]
        return np.zeros(shape, _DTYPES[value.type])


_FLAT = ("rows", "cos", "sin", "total_length", "last_position")
"""Inputs without a batch axis."""

_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
_KEPT_ROWS = 16
"""Calls of more rows are made anew each time: prompts come in every length."""


class OrtDraft:
    """Runs the graphs of one drafter for one sequence.

    Args:
        beside: another one of the bundle, whose loaded graphs are used.
    """

    def __init__(
        self,
        bundle: Bundle,
        graphs: DraftGraphs,
        *,
        threads: int | None = None,
        beside: OrtDraft | None = None,
    ) -> None:
        import onnxruntime as ort

        self._ort = ort
        self._sessions: dict[str, Any] = beside._sessions if beside is not None else {}
        if beside is None:
            for name, file in graphs.graphs.items():
                self._sessions[name] = load_graph(ort, bundle, file, threads)
        self.caches: dict[str, Array] = {
            state.input: np.zeros(state.shape, state.dtype) for state in graphs.state
        }
        self.values: dict[str, Any] = {
            name: self.value_of(cache) for name, cache in self.caches.items()
        }
        self.rows = graphs.state[0].shape[-2]
        self._calls: dict[tuple[str, int, int], Call] = {}

    def value_of(self, array: Array) -> Any:
        return self._ort.OrtValue.ortvalue_from_numpy(array)

    def has(self, graph: str) -> bool:
        """Whether the drafter has this graph."""
        return graph in self._sessions

    def call(self, graph: str, T: int = 1, R: int = 1) -> Call:
        """The graph for T rows, of which R give logits."""
        call = self._calls.get((graph, T, R))
        if call is None:
            call = Call(self, self._sessions[graph], {"T": T, "R": R})
            if T <= _KEPT_ROWS:
                self._calls[graph, T, R] = call
        return call

    def store(self, first: int, outputs: dict[str, Array]) -> None:
        """Puts ``key_rows.i`` and ``value_rows.i`` [T, kv x head_dim] into the caches."""
        for name, cache in self.caches.items():
            rows = outputs[name.replace("_cache.", "_rows.")]
            T, (_, heads, _, head_dim) = len(rows), cache.shape
            cache[0, :, first : first + T] = rows.reshape(T, heads, head_dim).swapaxes(0, 1)

    def move(self, first: int, count: int) -> None:
        """Makes rows first..first + count the first ones."""
        for cache in self.caches.values():
            cache[..., :count, :] = cache[..., first : first + count, :].copy()

    def read_rows(self, first: int, last: int) -> Rows:
        """Copies of the rows in every cache: [1, kv, last - first, head_dim]."""
        return tuple(cache[..., first:last, :].copy() for cache in self.caches.values())

    def write_rows(self, first: int, rows: Sequence[Array]) -> None:
        """Puts such rows back."""
        for cache, part in zip(self.caches.values(), rows, strict=True):
            cache[..., first : first + part.shape[-2], :] = part

    def close(self) -> None:
        """Frees the caches."""
        self._calls.clear()
        self._sessions = {}
        self.caches.clear()
        self.values.clear()
