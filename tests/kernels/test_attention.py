"""Attention against its definition."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.attention import AttentionLayer, attention_step, partials_shape, splits
from edgekit.ops.attention import attention

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

LAYERS = {
    "nano": AttentionLayer(4, 2, 64, 64**-0.5),
    "lightning": AttentionLayer(32, 2, 128, 128**-0.5),
    "narrow": AttentionLayer(3, 3, 32, 0.3),
    "wide group": AttentionLayer(20, 1, 32, 0.2),
}


def check(
    backend: ModuleType, layer: AttentionLayer, T: int, length: int, context: int, seed: int = 0
) -> None:
    random = np.random.default_rng(seed)
    heads, kv, D = layer.num_heads, layer.kv_num_heads, layer.head_dim
    qkv = random.normal(size=(T, (heads + 2 * kv) * D)).astype(BFLOAT16)
    caches = [random.normal(size=(kv, context, D)).astype(BFLOAT16) for _ in range(2)]
    for cache in caches:
        cache[:, length:] = np.nan  # rows past the length are not read
    q, k, v = np.split(qkv.astype(np.float64), [heads * D, (heads + kv) * D], axis=1)
    before = [np.nan_to_num(cache.astype(np.float64)) for cache in caches]
    expected, keys, values = attention(
        q,
        k,
        v,
        *before,
        length,
        num_heads=heads,
        kv_num_heads=kv,
        scale=layer.scale,
    )
    y = np.full((T, heads * D), np.nan, BFLOAT16)
    partials = np.full(partials_shape(T, layer, context), np.nan, np.float32)
    arrivals = np.zeros(64, np.int32)
    backend.run(
        attention_step(T, layer, context),
        [qkv, *caches, np.array([length], np.int32), arrivals],
        [y, *caches, partials, arrivals],
    )
    difference = np.linalg.norm(y.astype(np.float64) - expected) / np.linalg.norm(expected)
    assert difference < 8e-3
    for cache, after in zip(caches, (keys, values), strict=True):
        total = length + T
        np.testing.assert_array_equal(cache[:, :total].astype(np.float64), after[:, :total])
        assert np.isnan(cache[:, total:].astype(np.float32)).all()
    assert not arrivals.any()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("T", "length"), [(1, 0), (1, 1), (3, 14), (8, 0), (8, 121)])
def test_one_split(backend: ModuleType, name: str, T: int, length: int) -> None:
    context = 64 if length + T <= 64 else 129
    check(backend, LAYERS[name], T, length, context)


@pytest.mark.parametrize("name", ["nano", "narrow"])
@pytest.mark.parametrize(("T", "length"), [(1, 0), (1, 63), (2, 200), (8, 504), (8, 7)])
def test_several_splits(backend: ModuleType, name: str, T: int, length: int) -> None:
    assert splits(512) == 8
    check(backend, LAYERS[name], T, length, 512)


def test_a_full_context(backend: ModuleType) -> None:
    check(backend, LAYERS["nano"], 4, 96, 100)


def test_large_scores_do_not_overflow(backend: ModuleType) -> None:
    check(backend, AttentionLayer(2, 1, 32, 100.0), 5, 40, 64)
