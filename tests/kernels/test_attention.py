"""Attention against its definition."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.attention import (
    AttentionLayer,
    attention_prefill,
    attention_step,
    partials_shape,
    splits,
)
from edgekit.ops.attention import attention

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

LAYERS = {
    "nano": AttentionLayer(4, 2, 64, 64**-0.5),
    "lightning": AttentionLayer(32, 2, 128, 128**-0.5),
    "narrow": AttentionLayer(3, 3, 32, 0.3),
    "wide group": AttentionLayer(20, 1, 32, 0.2),
    "window": AttentionLayer(4, 2, 64, 64**-0.5, window=9),
    "sinks": AttentionLayer(4, 2, 64, 64**-0.5, sinks=True),
    "window and sinks": AttentionLayer(20, 1, 32, 0.2, window=70, sinks=True),
}


class Random:
    """Projected rows and caches of one layer, and what attention makes of them in float64."""

    def __init__(self, layer: AttentionLayer, T: int, length: int, context: int) -> None:
        random = np.random.default_rng(0)
        heads, kv, D = layer.num_heads, layer.kv_num_heads, layer.head_dim
        self.layer, self.T, self.length, self.context = layer, T, length, context
        self.qkv = random.normal(size=(T, (heads + 2 * kv) * D)).astype(BFLOAT16)
        self.caches = [random.normal(size=(kv, context, D)).astype(BFLOAT16) for _ in range(2)]
        for cache in self.caches:
            cache[:, length:] = np.nan  # rows past the length are not read
        q, k, v = np.split(self.qkv.astype(np.float64), [heads * D, (heads + kv) * D], axis=1)
        before = [np.nan_to_num(cache.astype(np.float64)) for cache in self.caches]
        sinks = random.normal(size=heads).astype(np.float32) + 1
        self.sinks = [sinks] if layer.sinks else []
        self.expected, *self.after = attention(
            q,
            k,
            v,
            *before,
            length,
            num_heads=heads,
            kv_num_heads=kv,
            scale=layer.scale,
            window=layer.window,
            sinks=sinks if layer.sinks else None,
        )

    def check(self, y: np.ndarray) -> None:
        difference = np.linalg.norm(y.astype(np.float64) - self.expected)
        assert difference < 8e-3 * np.linalg.norm(self.expected)
        for cache, after in zip(self.caches, self.after, strict=True):
            total = self.length + self.T
            np.testing.assert_array_equal(cache[:, :total].astype(np.float64), after[:, :total])
            assert np.isnan(cache[:, total:].astype(np.float32)).all()


def check_step(
    backend: ModuleType, layer: AttentionLayer, T: int, length: int, context: int
) -> None:
    case = Random(layer, T, length, context)
    y = np.full((T, layer.num_heads * layer.head_dim), np.nan, BFLOAT16)
    partials = np.full(partials_shape(T, layer, context), np.nan, np.float32)
    arrivals = np.zeros(64, np.int32)
    backend.run(
        attention_step(T, layer, context),
        [case.qkv, *case.caches, np.array([length], np.int32), arrivals, *case.sinks],
        [y, *case.caches, partials, arrivals],
    )
    case.check(y)
    assert not arrivals.any()


def check_prefill(
    backend: ModuleType, layer: AttentionLayer, T: int, length: int, context: int
) -> None:
    case = Random(layer, T, length, context)
    y = np.full((T, layer.num_heads * layer.head_dim), np.nan, BFLOAT16)
    backend.run(
        attention_prefill(T, layer, context),
        [case.qkv, *case.caches, np.array([length], np.int32), *case.sinks],
        [y, *case.caches],
    )
    case.check(y)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("T", "length"), [(1, 0), (1, 1), (3, 14), (8, 0), (8, 121)])
def test_one_split(backend: ModuleType, name: str, T: int, length: int) -> None:
    context = 64 if length + T <= 64 else 129
    check_step(backend, LAYERS[name], T, length, context)


@pytest.mark.parametrize("name", ["nano", "narrow", "window", "sinks", "window and sinks"])
@pytest.mark.parametrize(("T", "length"), [(1, 0), (1, 63), (2, 1200), (8, 504), (8, 7)])
def test_several_splits(backend: ModuleType, name: str, T: int, length: int) -> None:
    assert splits(4096) == 8
    check_step(backend, LAYERS[name], T, length, 4096)


def test_a_full_context(backend: ModuleType) -> None:
    check_step(backend, LAYERS["nano"], 4, 96, 100)


def test_large_scores_do_not_overflow(backend: ModuleType) -> None:
    check_step(backend, AttentionLayer(2, 1, 32, 100.0), 5, 40, 64)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("T", "length"), [(1, 0), (9, 0), (17, 5), (65, 63)])
def test_prefill(backend: ModuleType, name: str, T: int, length: int) -> None:
    check_prefill(backend, LAYERS[name], T, length, 129)


@pytest.mark.parametrize("name", ["nano", "narrow", "wide group"])
@pytest.mark.parametrize("T", [63, 64, 127, 128, 129])
def test_prefill_of_whole_and_broken_tiles(backend: ModuleType, name: str, T: int) -> None:
    check_prefill(backend, LAYERS[name], T, 3, 140)


def test_prefill_of_a_full_context(backend: ModuleType) -> None:
    check_prefill(backend, LAYERS["nano"], 33, 95, 128)


def test_prefill_of_large_scores_does_not_overflow(backend: ModuleType) -> None:
    check_prefill(backend, AttentionLayer(2, 1, 32, 100.0), 70, 40, 128)


@pytest.mark.gpu
@pytest.mark.parametrize(("T", "length"), [(127, 1000), (512, 700), (2048, 0)])
def test_prefill_of_a_long_prompt(on_gpu: ModuleType, T: int, length: int) -> None:
    check_prefill(on_gpu, LAYERS["lightning"], T, length, 2048)
