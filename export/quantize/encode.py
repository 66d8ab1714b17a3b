"""One tensor of a checkpoint to the tensors of its format, in pieces of whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.export.quantize import numerics as nm
from edgekit.export.quantize.plan import Numerics
from edgekit.safetensors import TensorEntry

PIECE = 4 << 20
"""Bytes of weight at a time. Quantizing a piece takes about twelve times as much memory."""


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor of the new checkpoint, by its safetensors dtype."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def outputs(entry: TensorEntry, numerics: Numerics) -> tuple[Output, ...]:
    """What a weight becomes, in the order `encode` yields it."""
    N, K = entry.shape
    module = entry.name.removesuffix(".weight")
    if numerics.format == "fp8":
        return (
            Output(entry.name, "F8_E4M3", (N, K), N * K),
            Output(f"{module}.weight_scale", "F32", (), 4),
        )
    packed = Output(entry.name, "U8", (N, K // 2), N * K // 2)
    scales = K // numerics.group
    if numerics.format == "int4":
        return packed, Output(f"{module}.weight_scale", "F32", (N, scales), 4 * N * scales)
    return (
        packed,
        Output(f"{module}.weight_scale", "F8_E4M3", (N, scales), N * scales),
        Output(f"{module}.weight_scale_2", "F32", (), 4),
    )


def encode(entry: TensorEntry, numerics: Numerics) -> Iterator[bytes]:
    """The bytes of a weight's outputs, one after another.

    The weight is read once for its maximum (and once more for fp8's search) and once for its
    codes, so only a piece and the block scales are in memory.

    Raises:
        CheckpointError: NaN, infinity, or values too small for a scale.
    """
    amax = np.float32(0)
    for rows in pieces(entry):
        amax = np.maximum(amax, nm.absolute_max(rows, entry.name))
    if numerics.format == "fp8":
        if numerics.kind == "fp8_mse":
            errors = np.zeros(2)
            for rows in pieces(entry):
                errors += nm.fp8_errors(rows, amax)
            amax = nm.fp8_amax(amax, errors, entry.dtype)
        _, scale = nm.quantize_fp8(np.zeros((0, 1), entry.dtype), amax)
        for rows in pieces(entry):
            yield nm.quantize_fp8(rows, amax)[0].tobytes()
        yield scale.tobytes()
        return
    scales: list[npt.NDArray[Any]] = []
    scale_2: np.float32 | None = None
    for rows in pieces(entry):
        if numerics.format == "int4":
            packed, block_scales = nm.quantize_int4(rows, numerics.group)
        else:
            packed, block_scales, scale_2 = nm.quantize_nvfp4(
                rows, amax, four_over_six=numerics.kind == "nvfp4_4o6"
            )
        scales.append(block_scales)
        yield packed.tobytes()
    for block_scales in scales:
        yield block_scales.tobytes()
    if scale_2 is not None:
        yield scale_2.tobytes()


def pieces(entry: TensorEntry, size: int = PIECE) -> Iterator[npt.NDArray[Any]]:
    """Consecutive rows of a matrix, about `size` bytes at a time."""
    row = entry.shape[1] * entry.dtype.itemsize
    step = max(1, size // row) * row
    rest = b""
    for chunk in entry.chunks(step):
        data = rest + chunk if rest else chunk
        whole = len(data) // row * row
        rest = data[whole:]
        if whole:
            yield np.frombuffer(data[:whole], entry.dtype).reshape(-1, entry.shape[1])
