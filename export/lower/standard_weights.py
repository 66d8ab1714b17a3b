"""Weights of a `standard` graph: every format as tensors that ONNX's own operators understand.

    dense   the matrix in the type products are computed in
    fp8     DequantizeLinear(e4m3 [N, K], 1)
    nvfp4   DequantizeLinear(e2m1 [N, K], DequantizeLinear(e4m3 [N, K/16], 1), block 16)
    int4    DequantizeLinear(int4 [N, K], scale [N, K/group], block `group`)

Experts prepend an axis E. DequantizeLinear returns the type of its scales, and only where that is
the type of the product does TensorRT read the weight's own bits inside it; after a cast it writes
the whole matrix out first. So scales have that type. e4m3 values, and e2m1 values times them, are
exact in bfloat16; int4 scales are rounded to it. The scale of the whole tensor is not, because it
multiplies the product, in float32.

ONNX has no int4 around 8: flipping the top bit of each code turns it into two's complement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix [N, K], or the experts' [E, N, K], without the scale of the whole tensor.

    Attributes:
        scale: [], or [E] of the experts', that a product is to be multiplied by; None is 1.
    """

    values: ir.Value
    scale: Weight | None = None


def matrix(g: GraphBuilder, source: Source, compute: ir.DataType) -> Matrix:
    """A matrix in any format as values of type `compute`."""
    codes, *scales = source.parts
    name = f"{codes.name}.values"
    if source.format == "dense":
        return Matrix(g.weight(in_dtype(codes, compute)))
    if source.format == "int4":
        groups = g.weight(in_dtype(scales[0], compute))
        int4 = g.weight(_relabelled(codes, INT4))
        return Matrix(_dequantize(g, int4, groups, name, source.matrix.group))
    one = g.const(f"one.{compute.name.lower()}", 1, compute.numpy())
    if source.format == "fp8":
        return Matrix(_dequantize(g, g.weight(codes), one, name), _per_tensor(scales[0]))
    blocks = _dequantize(g, g.weight(scales[0]), one, f"{scales[0].name}.values")
    e2m1 = g.weight(_relabelled(codes, E2M1))
    return Matrix(_dequantize(g, e2m1, blocks, name, NVFP4_BLOCK), _per_tensor(scales[1]))


def in_dtype(weight: Weight, dtype: ir.DataType) -> Weight:
    """A dense weight in another type; itself if it has that type."""
    numpy_dtype = dtype.numpy()
    return weight if weight.numpy_dtype == numpy_dtype else converted(weight, numpy_dtype)


def _dequantize(
    g: GraphBuilder, codes: ir.Value, scale: ir.Value, name: str, block: int = 0
) -> ir.Value:
    if not block:
        return g.op("DequantizeLinear", [codes, scale], name)
    return g.op("DequantizeLinear", [codes, scale], name, axis=-1, block_size=block)


def _per_tensor(scale: Weight) -> Weight:
    """Stored scales are [] or [1] of a matrix, and [E] of experts."""
    scale = in_dtype(scale, ir.DataType.FLOAT)
    return scale if scale.dims != (1,) else Weight(f"{scale.name}.scalar", F32, (), scale.chunks)


def _relabelled(weight: Weight, dtype: np.dtype[Any]) -> Weight:
    """Packed bytes [..., K/2] as ONNX's elements [..., K] of four bits."""
    shape = (*weight.dims[:-1], weight.dims[-1] * 2)
    if dtype != INT4:
        return Weight(f"{weight.name}.e2m1", dtype, shape, weight.chunks)

    def chunks() -> Iterator[memoryview]:
        for chunk in weight.chunks():
            yield as_bytes(np.frombuffer(chunk, np.uint8) ^ FLIP_TOP_BITS)

    return Weight(f"{weight.name}.int4", dtype, shape, chunks)
