"""What the writers of the `standard` lowering share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder

FLOAT = ir.DataType.FLOAT
END = int(np.iinfo(np.int64).max)
"""Slices to the end of an axis."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which of T rows comes first, made once for all layers.

    Four axes, as those have that it is compared with: TensorRT for RTX 1.7 fails on masks it has
    to give axes itself.

    Attributes:
        column: int64 [1, 1, T, 1], 0..T-1.
        strictly_before, not_after: bool [1, 1, T, T], of the last axis' row and the column's.
    """

    column: ir.Value
    strictly_before: ir.Value
    not_after: ir.Value


def write_order(g: GraphBuilder, rows: ir.Value) -> Order:
    """The order of the rows [T, ...] of a value."""
    part = PartWriter(g, "order", FLOAT)
    T = part.op("Squeeze", [part.op("Shape", [rows], "shape", start=0, end=1)], "T")
    index = part.op("Range", [part.scalar(0), T, part.scalar(1)], "index")
    column = part.op("Reshape", [index, part.ints(1, 1, -1, 1)], "column")
    row = part.op("Reshape", [index, part.ints(1, 1, 1, -1)], "row")
    return Order(
        column,
        part.op("Greater", [column, row], "strictly_before"),
        part.op("GreaterOrEqual", [column, row], "not_after"),
    )


class PartWriter:
    """Writes the nodes of one layer, whose names begin with `prefix`.

    Args:
        compute: type of matrix products.
    """

    def __init__(self, g: GraphBuilder, prefix: str, compute: ir.DataType) -> None:
        self.g, self.prefix, self.compute = g, prefix, compute

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None], name: str, **attributes: Any
    ) -> ir.Value:
        """A node with one output."""
        return self.g.op(op_type, inputs, f"{self.prefix}.{name}", **attributes)

    def ops(
        self, op_type: str, inputs: Sequence[ir.Value | None], names: Sequence[str], **attrs: Any
    ) -> Sequence[ir.Value]:
        """A node with several outputs."""
        return self.g.ops(op_type, inputs, [f"{self.prefix}.{name}" for name in names], **attrs)

    def ints(self, *values: int) -> ir.Value:
        """A constant vector of int64."""
        return self.g.const("ints." + ".".join(map(str, values)), list(values))

    def scalar(self, value: int) -> ir.Value:
        """A constant int64 []."""
        return self.g.const(f"int.{value}", value)

    def number(self, value: float) -> ir.Value:
        """A constant float32 []."""
        return self.g.const(f"number.{value:g}", value, np.float32)

    def reshape(self, x: ir.Value, shape: Sequence[ir.Value], name: str) -> ir.Value:
        """x in a shape whose pieces are put together at run time. None is 0, and TensorRT wants
        to be told so: it would plan for "0 copies the dimension"."""
        dims = self.op("Concat", shape, f"{name}.shape", axis=0)
        return self.op("Reshape", [x, dims], name, allowzero=1)

    def transpose(self, x: ir.Value, name: str, *perm: int) -> ir.Value:
        """A node, since ONNX's MatMul has no transposed operand."""
        return self.op("Transpose", [x], name, perm=perm)

    def cast(self, x: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
        """x in another type; itself where everything is float32."""
        return x if self.compute == FLOAT else self.op("Cast", [x], name, to=dtype.value)
