"""A layer of experts for a prompt's tokens against its definition in float64."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from edgekit.kernels.linear_prefill import GEMM_TOKENS, linear_prefill, norm_prefill
from edgekit.kernels.moe_prefill import (
    moe_down_prefill,
    moe_route_prefill,
    moe_sort_prefill,
    moe_sum_prefill,
    moe_up_prefill,
    tile_count,
)
from edgekit.ops.formats import WeightFormat
from tests.kernels.test_moe_step import Layer, stacked
from tests.tools.tiles import BFLOAT16, poisoned


def run(
    backend: ModuleType, model: Layer, h: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output, weights and experts."""
    layer, (T, H) = model.layer, h.shape
    top_k, tiles = layer.num_experts_per_tok, tile_count(T, layer)
    h = h.astype(np.float32)
    experts = np.full((T, top_k), -7, np.int32)
    weights = np.full((T, top_k), np.nan, np.float32)
    order = np.full((tiles, GEMM_TOKENS), 1 << 30, np.int32)
    tile_expert = np.full(tiles, 1 << 30, np.int32)
    router = [h, model.norm_weight, model.gate, model.bias]
    backend.run(moe_route_prefill(T, layer), router, [experts, weights])
    backend.run(moe_sort_prefill(T, layer), [experts], [order, tile_expert])
    check_sorted(experts, order, tile_expert)

    normed = poisoned(T, H)
    norm = norm_prefill(T, H, input="float32", norm_groups=1, epsilon=layer.epsilon)
    backend.run(norm, [h, model.norm_weight], [normed])
    hidden = poisoned(tiles * GEMM_TOKENS, layer.up.N)
    parts = np.full((T, top_k, H), np.nan, BFLOAT16)
    up = [normed, order, tile_expert, *stacked(model.up)]
    backend.run(moe_up_prefill(T, layer), up, [hidden])
    down = [hidden, order, tile_expert, weights, *stacked(model.down)]
    backend.run(moe_down_prefill(T, layer), down, [parts])
    y = h.copy()
    if model.shared_up is not None and model.shared_down is not None:
        between = poisoned(T, model.shared_up.matrix.N)
        first = linear_prefill(T, model.shared_up.matrix, output="tiles", relu2=True)
        backend.run(first, [normed, *model.shared_up.arguments], [between])
        second = linear_prefill(T, model.shared_down.matrix, output="float32", residual=True)
        backend.run(second, [between, *model.shared_down.arguments, y], [y])
    backend.run(moe_sum_prefill(T, layer), [parts, y], [y])
    return y, weights, experts


def check_sorted(experts: np.ndarray, order: np.ndarray, tile_expert: np.ndarray) -> None:
    """Every pair stands once, in a tile of its expert, in order; tiles in use come first."""
    used = tile_expert >= 0
    assert (np.diff(used.astype(int)) <= 0).all()
    assert (tile_expert[~used] == -1).all()
    assert (np.diff(tile_expert[used]) >= 0).all()
    pairs, flat = order[used], experts.reshape(-1)
    for tile, expert in zip(pairs, tile_expert[used], strict=True):
        assert (flat[tile[tile >= 0]] == expert).all()
    listed = pairs[pairs >= 0]
    np.testing.assert_array_equal(np.sort(listed), np.arange(flat.size))
    np.testing.assert_array_equal(listed, np.argsort(flat, kind="stable"))


def check(backend: ModuleType, model: Layer, T: int) -> None:
    h = np.random.default_rng(T).normal(size=(T, model.layer.up.K)).astype(np.float32)
    h = h.astype(np.float64)
    expected, weights, experts = model.expected(h)
    y, got_weights, got_experts = run(backend, model, h)
    np.testing.assert_array_equal(got_experts, experts)
    np.testing.assert_allclose(got_weights, weights, rtol=1e-5)
    added, wanted = y - h, expected - h
    error = np.sqrt(np.mean((added - wanted) ** 2) / np.mean(wanted**2))
    assert error < 1e-2, error


@pytest.mark.parametrize("T", [9, 33])
@pytest.mark.parametrize(
    ("up", "down"), [("dense", "dense"), ("fp8", "fp8"), ("nvfp4", "nvfp4"), ("nvfp4", "fp8")]
)
def test_formats(backend: ModuleType, up: WeightFormat, down: WeightFormat, T: int) -> None:
    check(backend, Layer(up=up, down=down), T)


def test_int4(backend: ModuleType) -> None:
    layer = Layer(up="int4", down="int4", group=32, H=192, intermediate=128, shared=192)
    check(backend, layer, 10)


def test_more_pairs_than_a_tile(backend: ModuleType) -> None:
    check(backend, Layer(experts=4, top_k=3, H=64, intermediate=16, shared=0), 130)


def test_many_experts(backend: ModuleType) -> None:
    """More experts than the router takes at once, and a number that is no multiple of 32."""
    check(backend, Layer(experts=135, top_k=6, H=64, intermediate=16, shared=0), 20)


@pytest.mark.parametrize(("n_group", "topk_group"), [(4, 2), (2, 1)])
def test_group_limits(backend: ModuleType, n_group: int, topk_group: int) -> None:
    check(backend, Layer(n_group=n_group, topk_group=topk_group, top_k=2, shared=0), 17)


def test_weights_that_are_not_normalised(backend: ModuleType) -> None:
    check(backend, Layer(norm_topk_prob=False, shared=0), 12)


@pytest.mark.gpu
@pytest.mark.parametrize("T", [127, 128, 129, 1000])
def test_lightning(on_gpu: ModuleType, T: int) -> None:
    check(on_gpu, Layer(H=2688, intermediate=1856, shared=3712, experts=16, top_k=6), T)
