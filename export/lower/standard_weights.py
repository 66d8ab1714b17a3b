"""Weights of a `standard` graph: every format as tensors that ONNX's own operators understand.

    dense   the matrix in the type products are computed in
    fp8     DequantizeLinear(e4m3 [N, K], scale [])
    nvfp4   DequantizeLinear(e2m1 [N, K], DequantizeLinear(e4m3 [N, K/16], scale_2 []), block 16)
    int4    DequantizeLinear(int4 [N, K], scale [N, K/group], block `group`)

Experts prepend an axis E, and their per-tensor scales are one for each of them. Scales are float32
and the result is cast, which is the form TensorRT keeps at four bits in a plan. ONNX has no int4
around 8: flipping the top bit of each code turns it into two's complement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import Weight, as_bytes
from edgekit.export.lower.packing import Source, converted
from edgekit.ops.formats import NVFP4_BLOCK

F32 = np.dtype(np.float32)
E2M1, INT4 = np.dtype(ml_dtypes.float4_e2m1fn), np.dtype(ml_dtypes.int4)
FLIP_TOP_BITS = np.uint8(0x88)  # of both codes in a byte


def matrix(g: GraphBuilder, source: Source, compute: ir.DataType) -> ir.Value:
    """A matrix [N, K], or the experts' [E, N, K], as a value of type `compute`."""
    weight = source.parts[0]
    name = str(weight.name)
    if source.format == "dense":
        return g.weight(in_dtype(weight, compute))
    values = _dequantized(g, source, name)
    if compute == ir.DataType.FLOAT:
        return values
    return g.op("Cast", [values], f"{name}.{compute.name.lower()}", to=compute.value)


def in_dtype(weight: Weight, dtype: ir.DataType) -> Weight:
    """A dense weight in another type; itself if it has that type."""
    numpy_dtype = dtype.numpy()
    return weight if weight.numpy_dtype == numpy_dtype else converted(weight, numpy_dtype)


def _dequantized(g: GraphBuilder, source: Source, name: str) -> ir.Value:
    parts = source.parts
    if source.format == "fp8":
        return _per_tensor(g, g.weight(parts[0]), parts[1], f"{name}.values")
    if source.format == "nvfp4":
        codes = _relabelled(parts[0], E2M1)
        scales = _per_tensor(g, g.weight(parts[1]), parts[2], f"{parts[1].name}.values")
        block = NVFP4_BLOCK
    else:
        codes = _relabelled(parts[0], INT4)
        scales = g.weight(in_dtype(parts[1], ir.DataType.FLOAT))
        block = source.matrix.group
    axis = len(codes.dims) - 1
    inputs = [g.weight(codes), scales]
    return g.op("DequantizeLinear", inputs, f"{name}.values", axis=axis, block_size=block)


def _per_tensor(g: GraphBuilder, values: ir.Value, scale: Weight, name: str) -> ir.Value:
    """[N, K] times its scale, or [E, N, K] times each expert's."""
    if scale.dims not in ((), (1,)):
        return g.op("DequantizeLinear", [values, g.weight(scale)], name, axis=0)
    scalar = Weight(f"{scale.name}.scalar", scale.numpy_dtype, (), scale.chunks)
    return g.op("DequantizeLinear", [values, g.weight(scalar)], name)


def _relabelled(weight: Weight, dtype: np.dtype[Any]) -> Weight:
    """Packed bytes [..., K/2] as ONNX's elements [..., K] of four bits."""
    shape = (*weight.dims[:-1], weight.dims[-1] * 2)
    if dtype != INT4:
        return Weight(f"{weight.name}.e2m1", dtype, shape, weight.chunks)

    def chunks() -> Iterator[memoryview]:
        for chunk in weight.chunks():
            yield as_bytes(np.frombuffer(chunk, np.uint8) ^ FLIP_TOP_BITS)

    return Weight(f"{weight.name}.int4", dtype, shape, chunks)
