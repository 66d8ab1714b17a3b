"""Weights in the order the CUDA kernels read them; weights.cuh says why and is the inverse.

    codes    [N/16, K/64, loads, 32, 16] uint8, N and K padded with zeros to whole tiles
    scales   nvfp4 [N/16, K/64, 8, 2, 4] float8_e4m3fn, int4 [N/16, K/64, 8, 2, 1 or 2] float16
    scale    float32 []: the matrix's own scale, 1 where the format has none

Experts prepend an axis E to all three. Two things are rounded: dense weights wider than bfloat16,
and float32 int4 scales, which become float16 relative to the largest of their matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import BFLOAT16, INT4_ZERO, WeightFormat, int4_group, unpack_nibbles

TILE_ROWS, TILE_COLUMNS = 16, 64
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix in kernel order; `scales` is None for formats without block scales."""

    codes: npt.NDArray[np.uint8]
    scales: Array | None
    scale: npt.NDArray[np.float32]


def pack(weight_format: WeightFormat, *parts: Array) -> Packed:
    """Packs one matrix's parts ([N, K] in all, see `edgekit.ops.formats`)."""
    one = np.ones((), np.float32)
    if weight_format == "dense":
        bits = _tiles(parts[0].astype(BFLOAT16).view(np.uint16))
        # [.., row half, g, step, q, pair, 2] -> [.., step, g, q, pair, row half, 2]
        return Packed(_bytes(bits.transpose(0, 3, 4, 2, 5, 6, 1, 7), loads=4), None, one)
    if weight_format == "fp8":
        codes = _tiles(parts[0].view(np.uint8)).astype(np.uint16)
        halves = _fp8_halves(codes.transpose(0, 3, 4, 2, 5, 6, 1, 7))  # [.., step, g, q, pair, 2]
        halves = halves.reshape(*halves.shape[:2], 2, 2, *halves.shape[3:])
        ordered = halves.transpose(0, 1, 2, 4, 5, 3, 6, 7)  # [.., load, g, q, step, pair, 2]
        return Packed(_bytes(ordered, loads=2), None, parts[1].astype(np.float32).reshape(()))
    nibbles = unpack_nibbles(parts[0])
    if weight_format == "nvfp4":
        words = _nvfp4_halves(_ordered_nibbles(nibbles, 0))
        scales = _scale_tiles(parts[1].view(np.uint8), 4).view(ml_dtypes.float8_e4m3fn)
        return Packed(_bytes(words, loads=1), scales, parts[2].astype(np.float32).reshape(()))
    group = int4_group(nibbles.shape[1], parts[1].shape[1])
    assert group is not None
    words = _int4_halves(_ordered_nibbles(nibbles, INT4_ZERO))
    scale, half_scales = _float16_scales(parts[1])
    if group == 128:
        half_scales = np.repeat(half_scales, 2, axis=1)[:, : -(-nibbles.shape[1] // TILE_COLUMNS)]
    tiles = _scale_tiles(half_scales, 2 if group == 32 else 1)
    return Packed(_bytes(words, loads=1), tiles, scale)


def _tiles(matrix: Array, fill: int = 0) -> Array:
    """[N, K] padded and cut: [N/16, row half 2, g 8, K/64, step 4, q 4, pair 2, 2]."""
    N, K = matrix.shape
    padded = np.full((N + -N % TILE_ROWS, K + -K % TILE_COLUMNS), fill, matrix.dtype)
    padded[:N, :K] = matrix
    return padded.reshape(padded.shape[0] // 16, 2, 8, padded.shape[1] // 64, 4, 4, 2, 2)


def _bytes(ordered: Array, loads: int) -> npt.NDArray[np.uint8]:
    rows, columns = ordered.shape[:2]
    raw = np.ascontiguousarray(ordered).view(np.uint8)
    return raw.reshape(rows, columns, loads, 32, 16)


def _ordered_nibbles(codes: Array, fill: int) -> Array:
    """[N/16, K/64, g, q, step, half 2, code 4]: code i of a half is fragment register a[i]."""
    tiles = _tiles(codes, fill).astype(np.uint16)
    # register a[i]: row half i % 2, pair i // 2
    ordered = tiles.transpose(0, 3, 2, 5, 4, 7, 6, 1)
    return ordered.reshape(*ordered.shape[:6], 4)


def _nvfp4_halves(codes: Array) -> npt.NDArray[np.uint16]:
    sign, magnitude = codes >> 3, codes & 7
    places = ((15, 6), (12, 3), (14, 0), (13, 9))
    halves = np.zeros(codes.shape[:-1], np.uint16)
    for i, (sign_bit, low_bit) in enumerate(places):
        halves |= sign[..., i] << sign_bit | magnitude[..., i] << low_bit
    return halves


def _int4_halves(codes: Array) -> npt.NDArray[np.uint16]:
    halves = np.zeros(codes.shape[:-1], np.uint16)
    for i in range(4):
        halves |= codes[..., i] << 4 * i
    return halves


def _fp8_halves(codes: Array) -> npt.NDArray[np.uint16]:
    """[.., row half 2, 2] codes of one register pair -> [.., half 2]: code 0 is row half 0."""
    sign, magnitude = codes >> 7, codes & 0x7F
    first = sign[..., 0, :] << 15 | magnitude[..., 0, :] << 4
    high, low = magnitude[..., 1, :] >> 4, magnitude[..., 1, :] & 15
    second = sign[..., 1, :] << 14 | high << 11 | low
    halves: npt.NDArray[np.uint16] = (first | second).astype(np.uint16)
    return halves


def _scale_tiles(scales: Array, count: int) -> Array:
    """[N, K/group] -> [N/16, K/64, 8, 2, count]."""
    N, columns = scales.shape
    padded = np.zeros((N + -N % TILE_ROWS, columns + -columns % count), scales.dtype)
    padded[:N, :columns] = scales
    tiles = padded.reshape(padded.shape[0] // 16, 2, 8, -1, count)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4))


def _float16_scales(scales: Array) -> tuple[npt.NDArray[np.float32], Array]:
    """A power of two and float16 scales whose product is `scales`."""
    if scales.dtype == np.float16:
        return np.ones((), np.float32), scales
    largest = float(np.abs(scales).max(initial=0.0))
    power = np.float32(2.0 ** np.floor(np.log2(largest))) if largest else np.float32(1)
    return np.asarray(power, np.float32), (scales / power).astype(np.float16)
