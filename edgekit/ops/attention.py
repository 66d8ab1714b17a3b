"""Attention: append to the KV cache, then causal grouped-query attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import F32, FLOAT8_E4M3


def attention(
    query: F32,
    key: F32,
    value: F32,
    key_cache: F32,
    value_cache: F32,
    length: int,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float,
    window: int = 0,
    sinks: F32 | None = None,
) -> tuple[F32, F32, F32]:
    """Attends from T new tokens to `length` cached ones and to each other.

    NemotronH has no positional encoding: position enters only through the causal mask.

    Args:
        query: [T, num_heads x head_dim].
        key, value: [T, kv_num_heads x head_dim].
        key_cache, value_cache: [kv_num_heads, S, head_dim], rows below `length` valid.
        length: tokens already cached; length + T <= S.
        window: keys that a token sees, itself among them; 0 is all.
        sinks: [num_heads], a score of each head that takes its share of the weights and has no
            value; not scaled.

    Returns:
        output [T, num_heads x head_dim], and both caches with rows length..length+T written.
    """
    T = query.shape[0]
    total = length + T
    keys, values = key_cache.copy(), value_cache.copy()
    keys[:, length:total] = _by_head(key, kv_num_heads)
    values[:, length:total] = _by_head(value, kv_num_heads)
    behind = length + np.arange(T)[:, None] - np.arange(total)[None, :]  # [T, total]
    visible = (behind >= 0) & (behind < (window or total))
    output = _attend(query, keys[:, :total], values[:, :total], visible, scale, sinks)
    return output, keys, values


def block_attention(
    query: F32,
    key: F32,
    value: F32,
    key_cache: F32,
    value_cache: F32,
    length: int,
    sinks: F32 | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float,
    window: int = 0,
    causal: bool = True,
) -> F32:
    """Attends from the T rows of a drafted block to `length` cached rows and to each other.

    The cache is what the target's features became; the block leaves nothing in it that counts.

    Args:
        query, key, value, key_cache, value_cache, length, sinks, window: as for `attention`.
        causal: a row sees the block's rows up to itself, else all of them.

    Returns:
        output [T, num_heads x head_dim].
    """
    T = query.shape[0]
    total = length + T
    keys = np.concatenate([key_cache[:, :length], _by_head(key, kv_num_heads)], axis=1)
    values = np.concatenate([value_cache[:, :length], _by_head(value, kv_num_heads)], axis=1)
    behind = length + np.arange(T)[:, None] - np.arange(total)[None, :]
    visible = (behind >= 0) if causal else np.ones_like(behind, dtype=bool)
    visible &= behind < (window or total)
    return _attend(query, keys, values, visible, scale, sinks)


def _by_head(rows: F32, heads: int) -> F32:
    """[T, heads x head_dim] as [heads, T, head_dim]."""
    return rows.reshape(rows.shape[0], heads, -1).swapaxes(0, 1)


def _attend(
    query: F32,
    keys: F32,
    values: F32,
    visible: npt.NDArray[np.bool_],
    scale: float,
    sinks: F32 | None,
) -> F32:
    """Softmax attention of query [T, heads x head_dim] over keys and values [kv, total, head_dim].

    Query head h reads KV head h // (heads / kv).
    """
    kv_num_heads, _, head_dim = keys.shape
    T = query.shape[0]
    q = query.reshape(T, kv_num_heads, -1, head_dim)  # [T, kv, group, d]
    scores = np.einsum("tkgd,ksd->kgts", q, keys) * np.float32(scale)
    scores = np.where(visible, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        sink = sinks.astype(np.float32).reshape(kv_num_heads, -1, 1, 1)
        largest = np.maximum(largest, sink)
    weights = np.exp(scores - largest)
    all_weights = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        all_weights += np.exp(sink - largest)
    weights /= all_weights
    output: F32 = np.einsum("kgts,ksd->tkgd", weights, values).reshape(T, -1).astype(np.float32)
    return output


def to_fp8_cache(x: F32, scale: float) -> npt.NDArray[Any]:
    """Keys or values as an e4m3 cache stores them: over the scale, saturating. `x` is what a token
    itself and those beside it attend to; those after it read the stored value times the scale."""
    with np.errstate(over="ignore"):
        scaled = x / np.float32(scale)
    stored: npt.NDArray[Any] = np.clip(scaled, -448, 448).astype(FLOAT8_E4M3)
    return stored
