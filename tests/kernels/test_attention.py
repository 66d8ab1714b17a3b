"""Attention against its definition."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.attention import (
    LIMITED_KEYS,
    AttentionLayer,
    attention_prefill,
    attention_step,
    partials_shape,
    splits,
)
from edgekit.kernels.launch import MAX_SHARED
from edgekit.ops.attention import attention, to_fp8_cache
from edgekit.ops.formats import FLOAT8_E4M3

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

LAYERS = {
    "nano": AttentionLayer(4, 2, 64, 64**-0.5),
    "lightning": AttentionLayer(32, 2, 128, 128**-0.5),
    "narrow": AttentionLayer(3, 3, 32, 0.3),
    "wide group": AttentionLayer(20, 1, 32, 0.2),
    "window": AttentionLayer(4, 2, 64, 64**-0.5, window=9),
    "sinks": AttentionLayer(4, 2, 64, 64**-0.5, sinks=True),
    "window and sinks": AttentionLayer(20, 1, 32, 0.2, window=70, sinks=True),
    "fp8": AttentionLayer(
        4, 2, 64, 64**-0.5, kv_dtype="float8_e4m3fn", key_scale=0.01, value_scale=0.03
    ),
    "fp8, all else": AttentionLayer(
        20, 1, 32, 0.2, 70, True, kv_dtype="float8_e4m3fn", key_scale=8.0, value_scale=0.005
    ),
}


class Random:
    """Projected rows and caches of one layer, and what attention makes of them in float64."""

    def __init__(self, layer: AttentionLayer, T: int, length: int, context: int) -> None:
        random = np.random.default_rng(0)
        heads, kv, D = layer.num_heads, layer.kv_num_heads, layer.head_dim
        self.layer, self.T, self.length, self.context = layer, T, length, context
        self.qkv = random.normal(size=(T, (heads + 2 * kv) * D)).astype(BFLOAT16)
        is_fp8 = layer.kv_dtype == "float8_e4m3fn"
        self.scales = [layer.key_scale, layer.value_scale]
        floats = [random.normal(size=(kv, context, D)).astype(np.float32) for _ in range(2)]
        self.caches = [
            to_fp8_cache(x, scale) if is_fp8 else x.astype(BFLOAT16)
            for x, scale in zip(floats, self.scales, strict=True)
        ]
        for cache in self.caches:
            cache[:, length:] = np.nan  # rows past the length are not read
        q, k, v = np.split(self.qkv.astype(np.float64), [heads * D, (heads + kv) * D], axis=1)
        before = [
            np.nan_to_num(cache.astype(np.float64)) * scale
            for cache, scale in zip(self.caches, self.scales, strict=True)
        ]
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
        for cache, after, scale in zip(self.caches, self.after, self.scales, strict=True):
            total = self.length + self.T
            stored = after.astype(np.float32)
            if cache.dtype == FLOAT8_E4M3:
                stored = to_fp8_cache(stored, scale).astype(np.float32)
            np.testing.assert_array_equal(cache[:, :total].astype(np.float32), stored[:, :total])
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
    backend: ModuleType, layer: AttentionLayer, T: int, length: int, context: int, keys: int = 64
) -> None:
    case = Random(layer, T, length, context)
    y = np.full((T, layer.num_heads * layer.head_dim), np.nan, BFLOAT16)
    backend.run(
        attention_prefill(T, layer, context, keys),
        [case.qkv, *case.caches, np.array([length], np.int32), *case.sinks],
        [y, *case.caches],
    )
    case.check(y)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("T", "length"), [(1, 0), (1, 1), (3, 14), (8, 0), (8, 121)])
def test_one_split(backend: ModuleType, name: str, T: int, length: int) -> None:
    context = 64 if length + T <= 64 else 129
    check_step(backend, LAYERS[name], T, length, context)


@pytest.mark.parametrize("name", ["nano", "narrow", "window", "sinks", "window and sinks", "fp8"])
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


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("T", "length"), [(1, 0), (17, 5), (65, 63)])
def test_prefill_with_less_shared_memory(
    backend: ModuleType, name: str, T: int, length: int
) -> None:
    layer = LAYERS[name]
    assert attention_prefill(T, layer, 129, LIMITED_KEYS).shared < MAX_SHARED
    check_prefill(backend, layer, T, length, 129, LIMITED_KEYS)


def test_prefill_of_a_full_context(backend: ModuleType) -> None:
    check_prefill(backend, LAYERS["nano"], 33, 95, 128)


def test_prefill_of_large_scores_does_not_overflow(backend: ModuleType) -> None:
    check_prefill(backend, AttentionLayer(2, 1, 32, 100.0), 70, 40, 128)


@pytest.mark.gpu
@pytest.mark.parametrize(("T", "length"), [(127, 1000), (512, 700), (2048, 0)])
def test_prefill_of_a_long_prompt(on_gpu: ModuleType, T: int, length: int) -> None:
    check_prefill(on_gpu, LAYERS["lightning"], T, length, 2048)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_every_bfloat16_becomes_the_nearest_e4m3(backend: ModuleType, scale: float) -> None:
    """All bit patterns as keys, through the append; NaN stays NaN."""
    layer = AttentionLayer(1, 1, 128, 1.0, kv_dtype="float8_e4m3fn", key_scale=scale)
    T = 512
    keys = np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16).reshape(T, 128)
    qkv = np.concatenate([np.zeros_like(keys), keys, np.zeros_like(keys)], axis=1)
    caches = [np.zeros((1, T, 128), FLOAT8_E4M3) for _ in range(2)]
    y = np.zeros((T, 128), BFLOAT16)
    inputs = [qkv, *caches, np.zeros(1, np.int32)]
    backend.run(attention_prefill(T, layer, T), inputs, [y, *caches])
    with np.errstate(all="ignore"):  # signalling NaNs
        expected = to_fp8_cache(keys.astype(np.float32), scale)
    np.testing.assert_array_equal(caches[0][0].astype(np.float32), expected.astype(np.float32))
