"""Weight formats: how a matrix [N, K] is stored, and what it means.

    dense   weight          float32, float16 or bfloat16 [N, K]

    fp8     weight          float8_e4m3fn [N, K]
            weight_scale    float32 []
            value           weight x weight_scale

    nvfp4   weight          uint8 [N, K/2], two e2m1 codes a byte, even k in the low nibble
            weight_scale    float8_e4m3fn [N, K/16]
            weight_scale_2  float32 []
            value           e2m1(code) x weight_scale x weight_scale_2

    int4    weight          uint8 [N, K/2], two codes a byte, even k in the low nibble
            weight_scale    float32 or float16 [N, K/group], group 32, 64 or 128
            value           (code - 8) x weight_scale

Experts prepend an axis E to weight and weight_scale, and their per-tensor scales are [E].
The fp8 and nvfp4 layouts are those NVIDIA ModelOpt exports. The int4 layout is edgekit's:
ModelOpt packs along N, which no row can be decoded from alone. Its codes and scales are ModelOpt's.
"""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

WeightFormat = Literal["dense", "fp8", "nvfp4", "int4"]
F32 = npt.NDArray[np.float32]

NVFP4_BLOCK = 16
INT4_GROUPS = (32, 64, 128)
"""Columns that may share a scale. 128 does not divide 1856, the width of Lightning's experts."""

INT4_ZERO = 8
"""The int4 code that stands for zero."""

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
E2M1_VALUES: F32 = np.concatenate([_E2M1, -_E2M1])
"""The sixteen values of a 4-bit float: sign, two exponent bits, one mantissa bit."""

PARTS: dict[WeightFormat, tuple[str, ...]] = {
    "dense": ("weight",),
    "fp8": ("weight", "weight_scale"),
    "nvfp4": ("weight", "weight_scale", "weight_scale_2"),
    "int4": ("weight", "weight_scale"),
}
"""The tensors of each format, in the order an operator takes them."""


PACKED: frozenset[WeightFormat] = frozenset({"nvfp4", "int4"})
"""Formats that hold two codes a byte: [N, K] is stored as [N, K/2]."""


def unpack_nibbles(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Codes [..., K] of packed bytes [..., K/2]."""
    codes = np.empty((*packed.shape[:-1], packed.shape[-1] * 2), dtype=np.uint8)
    codes[..., 0::2] = packed & 0xF
    codes[..., 1::2] = packed >> 4
    return codes


def pack_nibbles(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Packed bytes [..., K/2] of codes [..., K] below 16: the inverse of `unpack_nibbles`."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8, copy=False)


def int4_group(columns: int, scales: int) -> int | None:
    """How many of K columns share one of the scales, None when no int4 layout has that."""
    return next((group for group in INT4_GROUPS if group * scales == columns), None)


def dequantize(weight_format: WeightFormat, *parts: npt.NDArray[Any]) -> F32:
    """The float32 matrix [..., N, K] that `parts` stand for; see the table above."""
    weight = parts[0]
    if weight_format == "dense":
        return weight.astype(np.float32)
    if weight_format == "fp8":
        return weight.astype(np.float32) * _per_tensor(parts[1], weight.ndim)
    scale = parts[1].astype(np.float32)
    codes = unpack_nibbles(weight)
    if weight_format == "nvfp4":
        scale = scale * _per_tensor(parts[2], weight.ndim)
        values = E2M1_VALUES[codes]
    else:
        values = codes.astype(np.float32) - np.float32(INT4_ZERO)
    blocks = values.reshape(*scale.shape, values.shape[-1] // scale.shape[-1])
    blocks *= scale[..., None]
    return blocks.reshape(values.shape)


def _per_tensor(scale: npt.NDArray[Any], ndim: int) -> F32:
    """A scale [] or [E] shaped to multiply [N, K] or [E, N, K]."""
    flat = scale.astype(np.float32).reshape(-1)
    return flat.reshape(-1, *([1] * (ndim - 1))) if ndim == 3 else flat.reshape([1] * ndim)


FLOAT8_E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DENSE = frozenset({np.dtype(np.float32), np.dtype(np.float16), BFLOAT16})
"""What a dense weight, and every tensor that is not a quantized matrix, may be stored in."""

INT4_SCALES: frozenset[np.dtype[Any]] = frozenset({np.dtype(np.float32), np.dtype(np.float16)})
"""What int4 group scales may be stored in."""
