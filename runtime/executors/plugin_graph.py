"""Reads a `plugin` graph: launches in order, and where in the weights file their weights are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

DTYPES = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.INT32: "int32",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A weight.

    Attributes:
        offset: where it is in the weights file, None where `data` holds its bytes.
    """

    shape: tuple[int, ...]
    dtype: str
    offset: int | None
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Node:
    """One launch. Nodes of a graph with equal attributes have the same mapping."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order, and weights by name."""

    nodes: tuple[Node, ...]
    weights: Mapping[str, Tensor]


def read_graph(path: Path) -> Graph:
    """Reads a graph file without its weights file."""
    proto = onnx.load(path, load_external_data=False).graph
    nodes = []
    distinct: dict[tuple[tuple[str, Any], ...], Mapping[str, Any]] = {}
    for node in proto.node:
        attributes: Mapping[str, Any] = {one.name: _attribute(one) for one in node.attribute}
        attributes = distinct.setdefault(tuple(sorted(attributes.items())), attributes)
        nodes.append(Node(node.op_type, tuple(node.input), tuple(node.output), attributes))
    return Graph(tuple(nodes), {tensor.name: _tensor(tensor) for tensor in proto.initializer})


def _attribute(attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def _tensor(proto: Any) -> Tensor:
    shape, dtype = tuple(proto.dims), DTYPES[proto.data_type]
    if proto.data_location != onnx.TensorProto.EXTERNAL:
        return Tensor(shape, dtype, None, onnx.numpy_helper.to_array(proto).tobytes())
    where = {entry.key: entry.value for entry in proto.external_data}
    return Tensor(shape, dtype, int(where.get("offset", 0)))
