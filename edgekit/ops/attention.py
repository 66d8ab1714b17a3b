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
    head_dim = query.shape[1] // num_heads
    total = length + T
    keys, values = key_cache.copy(), value_cache.copy()
    keys[:, length:total] = key.reshape(T, kv_num_heads, head_dim).swapaxes(0, 1)
    values[:, length:total] = value.reshape(T, kv_num_heads, head_dim).swapaxes(0, 1)

    # Query head h reads KV head h // (num_heads / kv_num_heads).
    q = query.reshape(T, kv_num_heads, -1, head_dim)  # [T, kv, group, d]
    scores = np.einsum("tkgd,ksd->kgts", q, keys[:, :total]) * np.float32(scale)
    behind = length + np.arange(T)[:, None] - np.arange(total)[None, :]  # [T, total]
    visible = (behind >= 0) & (behind < (window or total))
    scores = np.where(visible, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        sink = sinks.reshape(kv_num_heads, -1, 1, 1)
        largest = np.maximum(largest, sink)
    weights = np.exp(scores - largest)
    all_weights = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        all_weights += np.exp(sink - largest)
    weights /= all_weights
    output = np.einsum("kgts,ksd->tkgd", weights, values[:, :total])
    return output.reshape(T, -1).astype(np.float32), keys, values


def to_fp8_cache(x: F32, scale: float) -> npt.NDArray[Any]:
    """Keys or values as an e4m3 cache stores them: over the scale, saturating. `x` is what a token
    itself and those beside it attend to; those after it read the stored value times the scale."""
    with np.errstate(over="ignore"):
        scaled = x / np.float32(scale)
    stored: npt.NDArray[Any] = np.clip(scaled, -448, 448).astype(FLOAT8_E4M3)
    return stored
