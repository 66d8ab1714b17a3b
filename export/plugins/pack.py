"""Weights in the order the CUDA kernels read them; weights.cuh says why and is the inverse.

    codes    [N/16, K/64, loads, 32, 16] uint8, N and K padded with zeros to whole tiles
    scales   nvfp4 [N/16, K/64, 8, 2, 4] float8_e4m3fn, int4 [N/16, K/64, 8, 2, 1 or 2] float16
    scale    float32 []: the matrix's own scale, 1 where the format has none

Experts prepend an axis E to all three. Two things are rounded: dense weights wider than bfloat16,
and float32 int4 scales, which become float16 relative to the largest of their matrix.

A register holds codes of row g in some of its bits and of row g + 8 in the others, so it is two
table look-ups and an or: packing is bound by memory, not by NumPy.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import BFLOAT16, INT4_ZERO, WeightFormat, int4_group

TILE_ROWS, TILE_COLUMNS = 16, 64
Array = npt.NDArray[Any]
U16, U32 = np.dtype(np.uint16), np.dtype(np.uint32)


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix in kernel order; `scales` is None for formats without block scales."""

    codes: npt.NDArray[np.uint8]
    scales: Array | None
    scale: npt.NDArray[np.float32]


def pack(weight_format: WeightFormat, *parts: Array) -> Packed:
    """Packs one matrix's parts ([N, K] in all, see `edgekit.ops.formats`)."""
    codes = pack_codes(weight_format, parts[0])
    if weight_format in ("dense", "fp8"):
        scale = parts[1] if weight_format == "fp8" else np.ones((), np.float32)
        return Packed(codes, None, scale.astype(np.float32).reshape(()))
    if weight_format == "nvfp4":
        scale = parts[2].astype(np.float32).reshape(())
        return Packed(codes, pack_nvfp4_scales(parts[1]), scale)
    K = parts[0].shape[1] * 2
    scale = int4_scale(parts[1])
    return Packed(codes, pack_int4_scales(parts[1], K, scale), scale)


def pack_codes(weight_format: WeightFormat, weight: Array) -> npt.NDArray[np.uint8]:
    """The codes of some rows [n, ...] of a matrix, as stored: whole tiles, padded below."""
    if weight_format == "dense":
        # Units are two columns: [N/16, row half, g, K/64, step, q, pair]
        units = _tiles(weight.astype(BFLOAT16, copy=False).view(np.uint8), 2, 128, U32)
        return _bytes(units.transpose(0, 3, 4, 2, 5, 6, 1), loads=4)
    if weight_format == "fp8":
        units = _tiles(weight.view(np.uint8), 2, 64, U16)
        words = _look_up(_fp8_tables(), units)  # [N/16, g, K/64, step, q, pair]
        by_load = words.reshape(*words.shape[:3], 2, 2, *words.shape[4:])
        return _bytes(by_load.transpose(0, 2, 3, 1, 5, 4, 6), loads=2)
    tables = _nvfp4_tables() if weight_format == "nvfp4" else _int4_tables()
    fill = 0 if weight_format == "nvfp4" else INT4_ZERO * 0x11
    words = _look_up(tables, _tiles(weight, 1, 32, U16, fill))  # [N/16, g, K/64, step, q, 1]
    return _bytes(words.transpose(0, 2, 1, 4, 3, 5), loads=1)


def pack_nvfp4_scales(scales: Array) -> Array:
    """Block scales [N, K/16] in kernel order."""
    return _scale_tiles(scales.view(np.uint8), 4).view(ml_dtypes.float8_e4m3fn)


def int4_scale(scales: Array) -> npt.NDArray[np.float32]:
    """The power of two that the float16 scales of an int4 matrix are relative to."""
    if scales.dtype == np.float16:
        return np.ones((), np.float32)
    largest = float(np.abs(scales).max(initial=0.0))
    return np.asarray(2.0 ** np.floor(np.log2(largest)) if largest else 1, np.float32)


def pack_int4_scales(scales: Array, K: int, scale: npt.NDArray[np.float32]) -> Array:
    """Group scales [N, K/group] relative to `scale`, in kernel order."""
    group = int4_group(K, scales.shape[1])
    assert group is not None
    halves = (scales / scale).astype(np.float16)
    if group == 128:
        halves = np.repeat(halves, 2, axis=1)[:, : -(-K // TILE_COLUMNS)]
    return _scale_tiles(halves, 2 if group == 32 else 1)


def _tiles(
    rows: npt.NDArray[np.uint8], pairs: int, tile_bytes: int, unit: np.dtype[Any], fill: int = 0
) -> Array:
    """Bytes [N, ...] padded and cut into units: [N/16, row half, g, K/64, step, q, pairs]."""
    N, width = rows.shape
    if N % TILE_ROWS or width % tile_bytes:
        padded = np.full((N + -N % TILE_ROWS, width + -width % tile_bytes), fill, np.uint8)
        padded[:N, :width] = rows
        rows = padded
    units = np.ascontiguousarray(rows).view(unit)
    return units.reshape(len(rows) // TILE_ROWS, 2, 8, -1, 4, 4, pairs)


def _look_up(tables: tuple[Array, Array], units: Array) -> Array:
    """Registers [N/16, g, ...]: what row g puts into each, and what row g + 8 does."""
    low, high = tables
    return low[units[:, 0]] | high[units[:, 1]]


def _bytes(ordered: Array, loads: int) -> npt.NDArray[np.uint8]:
    rows, columns = ordered.shape[:2]
    raw = np.ascontiguousarray(ordered).view(np.uint8)
    return raw.reshape(rows, columns, loads, 32, 16)


# -- tables: what 16 bits of a row become in a register. Halves of a register are its two columns.


@functools.cache
def _nvfp4_tables() -> tuple[Array, Array]:
    """Four e2m1 codes; where code i = row half + 2 pair of each half goes, see weights.cuh."""
    places = ((15, 6), (12, 3), (14, 0), (13, 9))

    def place(code: Array, i: int) -> Array:
        sign_bit, low_bit = places[i]
        return (code >> 3) << sign_bit | (code & 7) << low_bit

    return _nibble_tables(place)


@functools.cache
def _int4_tables() -> tuple[Array, Array]:
    return _nibble_tables(lambda code, i: code << 4 * i)


def _nibble_tables(place: Any) -> tuple[Array, Array]:
    units = np.arange(1 << 16, dtype=np.uint32)
    columns = [units >> 4 * c & 15 for c in range(4)]

    def table(row_half: int) -> Array:
        low = place(columns[0], row_half) | place(columns[2], row_half + 2)
        high = place(columns[1], row_half) | place(columns[3], row_half + 2)
        result: Array = low | high << 16
        return result

    return table(0), table(1)


@functools.cache
def _fp8_tables() -> tuple[Array, Array]:
    """Two e4m3 codes, one a half: row g's in place, row g + 8's around it."""
    codes = np.arange(256, dtype=np.uint32)
    sign, magnitude = codes >> 7, codes & 0x7F
    first = sign << 15 | magnitude << 4
    second = sign << 14 | (magnitude >> 4) << 11 | magnitude & 15
    units = np.arange(1 << 16)

    def table(half: Array) -> Array:
        result: Array = half[units & 255] | half[units >> 8] << 16
        return result

    return table(first), table(second)


def _scale_tiles(scales: Array, count: int) -> Array:
    """[N, K/group] -> [N/16, K/64, 8, 2, count]."""
    N, columns = scales.shape
    padded = np.zeros((N + -N % TILE_ROWS, columns + -columns % count), scales.dtype)
    padded[:N, :columns] = scales
    tiles = padded.reshape(padded.shape[0] // 16, 2, 8, -1, count)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4))
