"""Weights that are not in memory: where their bytes are, or how to compute them.

A graph's initializers are these. They are evaluated one at a time while the weights file is
written, so a graph of any size needs only as much memory as its largest computed tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgekit.export.checkpoint import check_finite
from edgekit.safetensors import CHUNK, TensorEntry

_IR_DTYPES: dict[np.dtype[Any], ir.DataType] = {
    np.dtype(np.float32): ir.DataType.FLOAT,
    np.dtype(np.float16): ir.DataType.FLOAT16,
    np.dtype(ml_dtypes.bfloat16): ir.DataType.BFLOAT16,
    np.dtype(ml_dtypes.float8_e4m3fn): ir.DataType.FLOAT8E4M3FN,
    np.dtype(ml_dtypes.float4_e2m1fn): ir.DataType.FLOAT4E2M1,
    np.dtype(ml_dtypes.int4): ir.DataType.INT4,
    np.dtype(np.uint8): ir.DataType.UINT8,
    np.dtype(np.int64): ir.DataType.INT64,
    np.dtype(np.int32): ir.DataType.INT32,
}


def ir_dtype(dtype: np.dtype[Any]) -> ir.DataType:
    """The ONNX name of a NumPy dtype."""
    return _IR_DTYPES[dtype]


class Weight(ir.LazyTensor):
    """An initializer whose bytes come in chunks, in row-major order.

    Args:
        shape: dimensions. dtype: of the elements.
        chunks: returns a fresh iterator over the bytes; called once a pass. Elements of four bits
            come two a byte, the first in the low nibble, as ONNX and the checkpoints have them.
    """

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        shape: Sequence[int],
        chunks: Callable[[], Iterator[bytes | memoryview]],
    ) -> None:
        super().__init__(self._evaluate, ir_dtype(dtype), ir.Shape(shape), name=name)
        self.numpy_dtype = dtype
        self.dims = tuple(shape)
        self.chunks = chunks

    def _evaluate(self) -> ir.TensorProtocol:
        data = b"".join(self.chunks())
        if self.dtype.bitwidth == 4:
            packed = np.frombuffer(data, np.uint8)
            return ir.PackedTensor(packed, self.dtype, shape=self.shape, name=self.name)
        array = np.frombuffer(data, dtype=self.numpy_dtype).reshape(self.dims)
        return ir.Tensor(array, dtype=self.dtype, name=self.name)

    @property
    def nbytes(self) -> int:
        return math.prod(self.dims) * self.dtype.bitwidth // 8


def stored(name: str, entries: Sequence[TensorEntry], shape: Sequence[int] | None = None) -> Weight:
    """One checkpoint tensor, or several of one shape and dtype stacked on a new first axis.

    The bytes pass through unchanged; values are checked to be finite on the way.
    """
    first = entries[0]
    if shape is None:
        shape = first.shape if len(entries) == 1 else (len(entries), *first.shape)

    def chunks() -> Iterator[bytes]:
        for entry in entries:
            for chunk in entry.chunks(CHUNK):
                check_finite(entry.name, np.frombuffer(chunk, dtype=entry.dtype))
                yield chunk

    return Weight(name, first.dtype, shape, chunks)


def computed(
    name: str,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    compute: Callable[[], npt.NDArray[Any]],
) -> Weight:
    """A tensor that `compute` returns when it is needed."""

    def chunks() -> Iterator[memoryview]:
        array = np.asarray(compute(), dtype=dtype, order="C")  # ascontiguousarray has no []
        if array.shape != tuple(shape):
            raise AssertionError(f"{name}: computed {array.shape}, promised {tuple(shape)}")
        yield as_bytes(array)

    return Weight(name, dtype, shape, chunks)


def as_bytes(array: npt.NDArray[Any]) -> memoryview:
    """An array's bytes in row-major order, without a copy where its layout allows."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def constant(name: str, array: npt.NDArray[Any]) -> Weight:
    """A small tensor that is known already."""
    return computed(name, array.dtype, array.shape, lambda: array)
