"""Puts nodes, weights and inputs together into an onnx-ir model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.export.graph.tensors import Weight, constant
from edgekit.ops import DOMAIN

OPSET = 21
IR_VERSION = 10
"""Of a graph without four-bit tensors, which came with version 11."""

Dim = int | str


@dataclass(slots=True)
class GraphBuilder:
    """Collects one graph. Values are made once and referred to by object."""

    name: str
    opset_imports: dict[str, int] = field(default_factory=lambda: {"": OPSET, DOMAIN: 1})
    inputs: list[ir.Value] = field(default_factory=list)
    outputs: list[ir.Value] = field(default_factory=list)
    nodes: list[ir.Node] = field(default_factory=list)
    initializers: dict[str, ir.Value] = field(default_factory=dict)
    ir_version: int = IR_VERSION

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> ir.Value:
        """Declares a graph input."""
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))
        self.inputs.append(value)
        return value

    def output(self, value: ir.Value, name: str, dtype: ir.DataType, shape: Sequence[Dim]) -> None:
        """Makes a node's output a graph output under `name`."""
        value.name = name
        value.dtype = dtype
        value.shape = ir.Shape(shape)
        self.outputs.append(value)

    def weight(self, weight: Weight) -> ir.Value:
        """An initializer; asking for the same name again returns the first."""
        assert weight.name is not None
        if weight.name not in self.initializers:
            self.initializers[weight.name] = ir.Value(
                name=weight.name,
                shape=weight.shape,
                type=ir.TensorType(weight.dtype),
                const_value=weight,
            )
        return self.initializers[weight.name]

    def const(self, name: str, value: Any, dtype: Any = np.int64) -> ir.Value:
        """A small constant by value."""
        return self.weight(constant(name, np.asarray(value, dtype=dtype)))

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> ir.Value:
        """A node with one output, which is called `name`."""
        return self.ops(op_type, inputs, [name], domain=domain, **attributes)[0]

    def ops(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        names: Sequence[str],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """A node with several outputs; an empty name leaves that output out."""
        node = ir.Node(
            domain,
            op_type,
            inputs=list(inputs),
            attributes=ir.convenience.convert_attributes(attributes),
            outputs=[ir.Value(name=name) for name in names],
            name=f"{op_type}:{next(name for name in names if name)}",
        )
        self.nodes.append(node)
        return node.outputs

    def model(self) -> ir.Model:
        """The finished model."""
        graph = ir.Graph(
            self.inputs,
            self.outputs,
            nodes=self.nodes,
            initializers=list(self.initializers.values()),
            opset_imports=self.opset_imports,
            name=self.name,
        )
        return ir.Model(graph, ir_version=self.ir_version, producer_name="edgekit")


def sizes(value: ir.Value) -> list[Any]:
    """A value's dimensions: numbers, and names where they vary."""
    assert value.shape is not None
    return [dim if isinstance(dim, int) else str(dim.value) for dim in value.shape]
