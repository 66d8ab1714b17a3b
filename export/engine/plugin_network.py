"""A network of TensorRT from a `plugin` graph: every node is a plugin, every weight an input.

So a plan holds machine code and no weights, and the engines of a bundle share one copy of them, as
it lies in the weights file. Weights in a type that networks do not have are given as int32 words:
only kernels read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import onnx

from edgekit.export.engine.plugins import PluginLibrary
from edgekit.kernels.nodes import DOMAIN, DType, form

Dims = tuple[int, ...]

_TYPES: dict[int, DType] = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.INT32: "int32",
}
_ITEM_BYTES: dict[int, int] = {
    onnx.TensorProto.FLOAT16: 2,
    onnx.TensorProto.UINT8: 1,
    onnx.TensorProto.FLOAT8E4M3FN: 1,
}


ARRIVALS_OUT = "arrivals_out"
"""The counters after the last launch; they are bound where they were before the first."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A node of a `plugin` graph."""

    op: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PluginGraph:
    """A `plugin` graph without its weights' values.

    Attributes:
        inputs: types and shapes by name, weights too; -1 is the number of tokens.
        outputs: their names.
    """

    nodes: tuple[Launched, ...]
    inputs: Mapping[str, tuple[DType, Dims]]
    outputs: tuple[str, ...]

    @property
    def launches(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(node.op, node.attributes) for node in self.nodes]


def read_plugin_graph(path: Path) -> PluginGraph:
    """Reads a graph file; its weights file is not needed."""
    graph = onnx.load(path, load_external_data=False).graph
    inputs = {}
    for value in graph.input:
        shape = value.type.tensor_type.shape.dim
        dims = tuple(-1 if dim.HasField("dim_param") else dim.dim_value for dim in shape)
        inputs[value.name] = network_type(value.type.tensor_type.elem_type, dims)
    for weight in graph.initializer:
        inputs[weight.name] = network_type(weight.data_type, tuple(weight.dims))
    nodes = tuple(
        Launched(
            node.op_type,
            {one.name: _plain(onnx.helper.get_attribute_value(one)) for one in node.attribute},
            tuple(node.input),
            tuple(node.output),
        )
        for node in graph.node
    )
    assert all(node.domain == DOMAIN for node in graph.node)
    return PluginGraph(nodes, inputs, tuple(value.name for value in graph.output))


def network_type(onnx_type: int, dims: Dims) -> tuple[DType, Dims]:
    """Type and shape of a network's input for a tensor of a graph."""
    if onnx_type in _TYPES:
        return _TYPES[onnx_type], dims
    nbytes = math.prod(dims) * _ITEM_BYTES[onnx_type]
    assert nbytes % 4 == 0, dims
    return "int32", (nbytes // 4,)


def add_graph(network: Any, trt: Any, library: PluginLibrary, graph: PluginGraph) -> None:
    """Adds a graph to an empty network.

    State that a plugin updates is what later plugins read, so their order is the graph's.
    """
    types = {
        "float32": trt.DataType.FLOAT,
        "bfloat16": trt.DataType.BF16,
        "int32": trt.DataType.INT32,
    }
    tensors: dict[str, Any] = {}
    dtypes: dict[str, DType] = {}
    counted = False
    for name, (dtype, dims) in graph.inputs.items():
        tensors[name], dtypes[name] = network.add_input(name, types[dtype], dims), dtype
    for node in graph.nodes:
        given = [tensors[name] for name in node.inputs]
        made = form(node.op, node.attributes, 1)
        operator = library.operator(
            node.op, node.attributes, tuple(dtypes[name] for name in node.inputs)
        )
        layer = network.add_plugin(operator(*given), aot=True)
        layer.name = f"{node.op}:{node.outputs[0]}"
        for i, (name, output) in enumerate(zip(node.outputs, made.outputs, strict=True)):
            tensors[name], dtypes[name] = layer.get_output(i), output.dtype
            if i in made.state:
                updated = node.inputs[made.state[i]]
                tensors[updated], dtypes[name] = tensors[name], dtypes[updated]
                counted = counted or updated == "arrivals"
    marked = {name: tensors[name] for name in graph.outputs}
    if counted:
        marked[ARRIVALS_OUT] = tensors["arrivals"]
    for name, tensor in marked.items():
        tensor.name = name
        network.mark_output(tensor)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else cast(Any, value)
