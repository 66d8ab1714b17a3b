"""Activations in tile order, as export/plugins/stream.cuh lays them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def poisoned(*shape: int) -> np.ndarray:
    """bfloat16 NaN in rows of whole column tiles."""
    return np.full((*shape[:-1], -(-shape[-1] // 64) * 64), np.nan, BFLOAT16)


def tile_order(columns: int) -> np.ndarray:
    """Where column c of a row stands."""
    c = np.arange(columns)
    u = c // 4
    return (u // 16 * 16 + u % 4 * 4 + u % 16 // 4) * 4 + c % 4


def from_tiles(rows: np.ndarray, columns: int) -> np.ndarray:
    """The first `columns` columns of rows in tile order."""
    return np.ascontiguousarray(rows[..., tile_order(columns)])


def to_tiles(rows: np.ndarray) -> np.ndarray:
    """Rows in tile order, zeros up to a whole column tile."""
    columns = -(-rows.shape[-1] // 64) * 64
    tiles = np.zeros((*rows.shape[:-1], columns), rows.dtype)
    tiles[..., tile_order(rows.shape[-1])] = rows
    return tiles
