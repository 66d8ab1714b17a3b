"""Weights of a `plugin` graph: packed for the kernels while they are written, rows at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.export.graph.tensors import Weight, as_bytes, computed
from edgekit.export.plugins.pack import (
    int4_scale,
    pack_codes,
    pack_int4_scales,
    pack_nvfp4_scales,
)
from edgekit.kernels.weights import Matrix
from edgekit.ops.formats import (
    BFLOAT16,
    FLOAT8_E4M3,
    PACKED,
    WeightFormat,
    dequantize,
    int4_group,
)

Array = npt.NDArray[Any]
F32, F16, U8 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.uint8)

BLOCK_BYTES = 8 << 20
"""About what is packed at once."""

_LOADS = {"dense": 4, "fp8": 2, "nvfp4": 1, "int4": 1}


@dataclass(frozen=True, slots=True)
class Source:
    """A matrix [N, K], or the experts' [E, N, K], as the canonical graph holds it."""

    format: WeightFormat
    parts: tuple[Weight, ...]

    @property
    def experts(self) -> int | None:
        return self.parts[0].dims[0] if len(self.parts[0].dims) == 3 else None

    @property
    def matrix(self) -> Matrix:
        N, K = self.parts[0].dims[-2:]
        if self.format in PACKED:
            K *= 2
        group = int4_group(K, self.parts[1].dims[-1]) if self.format == "int4" else None
        return Matrix(N, K, self.format, group or 64)


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """What a kernel takes of a matrix; `scales` is None for formats without block scales."""

    matrix: Matrix
    codes: Weight
    scales: Weight | None
    scale: Weight


def pack_source(name: str, source: Source) -> PackedWeights:
    """A matrix, or all experts', in kernel order under `name`."""
    matrix, form, experts = source.matrix, source.format, source.experts
    lead = (experts,) if experts is not None else ()
    tiles = (*lead, matrix.row_tiles, matrix.column_tiles)

    def codes() -> Iterator[memoryview]:
        for rows in _row_blocks(source.parts[0], matrix.N):
            yield as_bytes(pack_codes(form, rows))

    packed = Weight(f"{name}.codes", U8, (*tiles, _LOADS[form], 32, 16), codes)
    scales = None
    scale = computed(f"{name}.scale", F32, lead or (1,), lambda: _matrix_scales(source))
    if form == "nvfp4":

        def nvfp4_scales() -> Iterator[memoryview]:
            for rows in _row_blocks(source.parts[1], matrix.N):
                yield as_bytes(pack_nvfp4_scales(rows).view(np.uint8))

        scales = Weight(f"{name}.scales", FLOAT8_E4M3, (*tiles, 8, 2, 4), nvfp4_scales)
    elif form == "int4":

        def int4_scales() -> Iterator[memoryview]:
            for one in _each_expert(source.parts[1]):
                yield as_bytes(pack_int4_scales(one, matrix.K, int4_scale(one)))

        count = 2 if matrix.group == 32 else 1
        scales = Weight(f"{name}.scales", F16, (*tiles, 8, 2, count), int4_scales)
    return PackedWeights(matrix, packed, scales, scale)


def stack_rows(name: str, sources: Sequence[Source]) -> Source:
    """Several matrices of one width, one below the other.

    They keep their format where they share it and the matrix's own scale, and become bfloat16
    otherwise.
    """
    first = sources[0]
    if all(_stackable(first, other) for other in sources):
        count = 1 if first.format in ("dense", "fp8") else 2
        parts = [_stack(name, [source.parts[i] for source in sources]) for i in range(count)]
        return Source(first.format, (*parts, *first.parts[count:]))

    def chunks() -> Iterator[memoryview]:
        for source in sources:
            values = dequantize(source.format, *(part.numpy() for part in source.parts))
            yield as_bytes(values.astype(BFLOAT16))

    N = sum(source.matrix.N for source in sources)
    return Source("dense", (Weight(name, BFLOAT16, (N, first.matrix.K), chunks),))


def slice_columns(name: str, source: Source, first: int, count: int) -> Source:
    """Columns first..first + count of a matrix [N, K], as a matrix of its own.

    Columns that share a scale stay together: `first` and `count` are multiples of a block.
    """
    K = source.matrix.K

    def cut(part: Weight) -> Weight:
        if len(part.dims) < 2:
            return part
        per = K // part.dims[1]  # columns that an entry of this part stands for
        begin, end = first // per, (first + count) // per
        own = f"{name}.{str(part.name).rsplit('.', 1)[-1]}"
        shape = (part.dims[0], end - begin)
        return computed(own, part.numpy_dtype, shape, lambda: part.numpy()[:, begin:end])

    return Source(source.format, tuple(cut(part) for part in source.parts))


def converted(weight: Weight, dtype: np.dtype[Any], name: str | None = None) -> Weight:
    """The same values in another type, a chunk at a time."""

    def chunks() -> Iterator[memoryview]:
        for chunk in weight.chunks():
            yield as_bytes(np.frombuffer(chunk, weight.numpy_dtype).astype(dtype))

    return Weight(name or f"{weight.name}.{dtype}", dtype, weight.dims, chunks)


def _stackable(one: Source, other: Source) -> bool:
    if one.format != other.format or one.matrix.group != other.matrix.group:
        return False
    if one.parts[0].numpy_dtype != other.parts[0].numpy_dtype:
        return False
    own = {"dense": (), "fp8": (1,), "nvfp4": (2,), "int4": ()}[one.format]
    if one.format == "int4" and one.parts[1].numpy_dtype != other.parts[1].numpy_dtype:
        return False
    return all(np.array_equal(one.parts[i].numpy(), other.parts[i].numpy()) for i in own)


def _stack(name: str, weights: Sequence[Weight]) -> Weight:
    rows = sum(weight.dims[0] for weight in weights)
    suffix = str(weights[0].name).rsplit(".", 1)[-1]

    def chunks() -> Iterator[bytes | memoryview]:
        return itertools.chain.from_iterable(weight.chunks() for weight in weights)

    shape = (rows, *weights[0].dims[1:])
    return Weight(f"{name}.{suffix}", weights[0].numpy_dtype, shape, chunks)


def _row_blocks(weight: Weight, N: int) -> Iterator[Array]:
    """The rows of [N, ...] or [E, N, ...] in whole row tiles; none holds rows of two experts."""
    width = weight.dims[-1]
    row_bytes = width * weight.numpy_dtype.itemsize
    most = max(16, BLOCK_BYTES // row_bytes // 16 * 16)
    reader = _Reader(weight)
    for _ in range(weight.dims[0] if len(weight.dims) == 3 else 1):
        for first in range(0, N, most):
            count = min(most, N - first)
            data = reader.take(count * row_bytes)
            yield np.frombuffer(data, weight.numpy_dtype).reshape(count, width)


def _each_expert(weight: Weight) -> Iterator[Array]:
    """The matrices of [N, ...] or [E, N, ...], one after another."""
    reader = _Reader(weight)
    shape = weight.dims[-2:]
    nbytes = shape[0] * shape[1] * weight.numpy_dtype.itemsize
    for _ in range(weight.dims[0] if len(weight.dims) == 3 else 1):
        yield np.frombuffer(reader.take(nbytes), weight.numpy_dtype).reshape(shape)


def _matrix_scales(source: Source) -> Array:
    """The float32 scale [1] of a matrix, or [E] of the experts'."""
    shape = (source.experts or 1,)
    if source.format == "dense":
        return np.ones(shape, np.float32)
    if source.format == "int4":
        scales = [int4_scale(one) for one in _each_expert(source.parts[1])]
        return np.array(scales, np.float32).reshape(shape)
    return source.parts[-1].numpy().astype(np.float32).reshape(shape)


class _Reader:
    """Reads a weight's bytes in portions of any size."""

    def __init__(self, weight: Weight) -> None:
        self._chunks = iter(weight.chunks())
        self._rest = memoryview(b"")

    def take(self, nbytes: int) -> bytes | memoryview:
        pieces = []
        while nbytes:
            if not self._rest:
                self._rest = memoryview(next(self._chunks)).cast("B")
            piece = self._rest[:nbytes]
            self._rest = self._rest[len(piece) :]
            nbytes -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
