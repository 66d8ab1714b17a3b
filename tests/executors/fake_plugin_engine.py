"""An engine whose plan is a `plugin` graph, each node run by its NumPy definition on the memory
that it was told of. What comes out must be where it went in, as a plugin's aliased state is."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx

from edgekit.export.engine import EngineReport, EngineRequest
from edgekit.kernels.nodes import form, tokens_at
from edgekit.runtime.executors.plugin_graph import DTYPES
from tests.executors.fake_tensorrt import SCRATCH, FakeMemory
from tests.tools.plugin_reference import compute

Array = npt.NDArray[Any]
VERSION = "10.13.3.9"
MARK = b"plugins"
"""A stand-in plan begins with this, a line of JSON with the most tokens, and then the graph."""


def graph_as_plan(request: EngineRequest, on_progress: Any) -> EngineReport:
    """ "Builds" a plan that is the graph."""
    (profile,) = request.profiles
    head = json.dumps({"most": profile.largest}).encode()
    request.plan.write_bytes(MARK + head + b"\n" + request.graph.read_bytes())
    return EngineReport(request.plan, VERSION, request.plan.stat().st_size, 1, 0.0, 0)


def most_tokens(plan: Path) -> int:
    """What the plan's profile ends with."""
    with plan.open("rb") as file:
        most: int = json.loads(file.readline().removeprefix(MARK))["most"]
    return most


class PluginEngine:
    """Keeps what `Engine` asks of TensorRT's engine."""

    num_optimization_profiles = 1

    def __init__(self, data: bytes, memory: FakeMemory) -> None:
        assert data.startswith(MARK)
        head, _, graph = data.removeprefix(MARK).partition(b"\n")
        self.most, self.memory = json.loads(head)["most"], memory
        self.graph = onnx.load_from_string(graph).graph
        self.inputs: dict[str, tuple[str, tuple[int, ...]]] = {}
        for value in self.graph.input:
            dims = value.type.tensor_type.shape.dim
            shape = tuple(-1 if dim.HasField("dim_param") else dim.dim_value for dim in dims)
            self.inputs[value.name] = (DTYPES[value.type.tensor_type.elem_type], shape)
        for weight in self.graph.initializer:
            self.inputs[weight.name] = (DTYPES[weight.data_type], tuple(weight.dims))
        self.outputs = [value.name for value in self.graph.output]
        if any("arrivals" in node.input for node in self.graph.node):
            self.outputs += [] if "arrivals_out" in self.outputs else ["arrivals_out"]
        self._names = [*self.inputs, *self.outputs]
        self.num_io_tensors = len(self._names)

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.inputs[name][1] if name in self.inputs else (1,)

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name in self.inputs else "out"

    def get_tensor_profile_shape(self, name: str, profile: int) -> tuple[tuple[int, ...], ...]:
        rest = self.inputs[name][1][1:]
        return ((1, *rest), (1, *rest), (self.most, *rest))

    def get_device_memory_size_for_profile_v2(self, profile: int) -> int:
        return SCRATCH

    def create_execution_context(self, strategy: str) -> PluginContext:
        assert strategy == "ours"
        return PluginContext(self)


class PluginContext:
    active_optimization_profile = 0

    def __init__(self, engine: PluginEngine) -> None:
        self._engine = engine
        self._addresses: dict[str, int] = {}
        self._tokens = engine.most
        self._scratch = 0

    def set_device_memory(self, address: int, nbytes: int) -> None:
        assert nbytes >= SCRATCH
        self._scratch = address

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._tokens = shape[0]
        return 1 <= shape[0] <= self._engine.most

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == FakeMemory.stream
        assert self._scratch
        engine, values = self._engine, dict[str, Array]()
        for name, (dtype, dims) in engine.inputs.items():
            shape = tuple(self._tokens if dim == -1 else dim for dim in dims)
            values[name] = self._array(name, shape, dtype)
        for node in engine.graph.node:
            self._run(node, values)
        for name in engine.outputs:
            source = name.replace("_out", "", 1)
            if source in engine.inputs:
                assert self._addresses[name] == self._addresses[source], "state stays where it is"
        return True

    def _run(self, node: Any, values: dict[str, Array]) -> None:
        given = [values[name] for name in node.input]
        attributes = {one.name: _plain(one) for one in node.attribute}
        at = tokens_at(node.op_type)
        T = given[at[0]].shape[at[1]] if at is not None else self._tokens
        made = form(node.op_type, attributes, T)
        results = []
        for i, (name, output) in enumerate(zip(node.output, made.outputs, strict=True)):
            if i in made.state:
                values[name] = given[made.state[i]]
            else:
                dtype = np.dtype(getattr(ml_dtypes, output.dtype, None) or output.dtype)
                values[name] = np.zeros(output.shape, dtype)
            results.append(values[name])
        compute(node.op_type, attributes, given, results)
        for i, name in enumerate(node.output):
            if i not in made.state:
                values[name] = self._place(name, values[name])

    def _place(self, name: str, array: Array) -> Array:
        """Where an output of the engine is, or the array itself."""
        if name not in self._engine.outputs:
            return array
        place = self._array(name, array.shape, str(array.dtype))
        place[...] = array
        return place

    def _array(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
        nbytes = int(np.prod(shape)) * kind.itemsize
        address = self._addresses[name]
        self._engine.memory.check(address, nbytes)
        raw = (ctypes.c_uint8 * nbytes).from_address(address)
        return np.frombuffer(raw, kind).reshape(shape)


def _plain(attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value
