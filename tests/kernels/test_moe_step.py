"""A mixture-of-experts layer for up to eight tokens against its definition."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from edgekit.kernels.moe import (
    MoeLayer,
    down_sums_shape,
    moe_down_step,
    moe_route_step,
    moe_up_step,
)
from edgekit.kernels.weights import MAX_TOKENS
from edgekit.ops.formats import WeightFormat
from edgekit.ops.moe import moe_route
from tests.kernels.weights import RandomMatrix, random_matrix
from tests.tools.tiles import poisoned


class Layer:
    """Random weights of one layer, as the kernels take them and as float64."""

    def __init__(
        self,
        *,
        up: WeightFormat = "nvfp4",
        down: WeightFormat = "nvfp4",
        group: int = 32,
        H: int = 192,
        intermediate: int = 80,
        shared: int = 144,
        experts: int = 8,
        top_k: int = 3,
        seed: int = 0,
        n_group: int = 1,
        topk_group: int = 1,
        norm_topk_prob: bool = True,
    ) -> None:
        random = np.random.default_rng(seed)
        self.up = [random_matrix(random, up, intermediate, H, group) for _ in range(experts)]
        self.down = [random_matrix(random, down, H, intermediate, group) for _ in range(experts)]
        self.shared_up = random_matrix(random, up, shared, H, group) if shared else None
        self.shared_down = random_matrix(random, down, H, shared, group) if shared else None
        self.gate = (random.normal(size=(experts, H)) / np.sqrt(H)).astype(np.float32)
        self.bias = random.normal(size=experts).astype(np.float32) * np.float32(0.1)
        self.norm_weight = random.uniform(0.5, 1.5, H).astype(np.float32)
        self.layer = MoeLayer(
            up=self.up[0].matrix,
            down=self.down[0].matrix,
            n_routed_experts=experts,
            num_experts_per_tok=top_k,
            shared_up=self.shared_up.matrix if self.shared_up else None,
            shared_down=self.shared_down.matrix if self.shared_down else None,
            n_group=n_group,
            topk_group=topk_group,
            norm_topk_prob=norm_topk_prob,
            routed_scaling_factor=2.5,
        )

    def expected(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Output, weights and experts in float64."""
        layer = self.layer
        x = h / np.sqrt(np.mean(h**2, axis=-1, keepdims=True) + layer.epsilon) * self.norm_weight
        weights, experts = moe_route(
            x,
            self.gate.astype(np.float64),
            self.bias,
            top_k=layer.num_experts_per_tok,
            n_group=layer.n_group,
            topk_group=layer.topk_group,
            norm_topk_prob=layer.norm_topk_prob,
            routed_scaling_factor=layer.routed_scaling_factor,
        )
        y = h.copy()
        for t in range(len(h)):
            for weight, e in zip(weights[t], experts[t], strict=True):
                y[t] += weight * ffn(x[t], self.up[e], self.down[e])
            if self.shared_up is not None and self.shared_down is not None:
                y[t] += ffn(x[t], self.shared_up, self.shared_down)
        return y, weights, experts

    def run(self, backend: ModuleType, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Output, slots and shares."""
        layer, (T, H) = self.layer, h.shape
        I, E, count = layer.up.N, layer.n_routed_experts, T * layer.num_experts_per_tok
        scores = np.full((T, E), np.nan, np.float32)
        normed = poisoned(T, H)
        hidden = poisoned(count, T, I)
        slots = np.full(1 + count, -7, np.int32)
        shares = np.full((count, MAX_TOKENS), np.nan, np.float32)
        sums = np.full(down_sums_shape(layer), np.nan, np.float32)
        arrivals = np.zeros(layer.down.row_tiles, np.int32)
        y = h.astype(np.float32)
        route_in = [y, self.norm_weight, self.gate, self.bias]
        route_out = [scores, slots, shares, normed]
        down_in = [hidden, slots, shares, *stacked(self.down)]
        if self.shared_up is not None and self.shared_down is not None:
            shared_hidden = poisoned(T, self.shared_up.matrix.N)
            route_in += stacked([self.shared_up])
            route_out.append(shared_hidden)
            down_in += [shared_hidden, *stacked([self.shared_down])]
        route = moe_route_step(T, layer)
        backend.run(route, [*route_in, arrivals], [*route_out, arrivals])
        backend.run(moe_up_step(T, layer), [normed, slots, shares, *stacked(self.up)], [hidden])
        down = moe_down_step(T, layer)
        backend.run(down, [*down_in, y, arrivals], [y, sums, arrivals])
        assert not arrivals.any()
        return y, slots, shares


def stacked(matrices: list[RandomMatrix]) -> list[np.ndarray]:
    """Codes, scales (one byte where the format has none) and scale [E]."""
    codes = np.stack([m.packed.codes for m in matrices])
    scales = [m.packed.scales for m in matrices if m.packed.scales is not None]
    return [
        codes,
        np.stack(scales) if scales else np.zeros(1, np.uint8),
        np.array([m.packed.scale for m in matrices], np.float32),
    ]


def ffn(x: np.ndarray, up: RandomMatrix, down: RandomMatrix) -> np.ndarray:
    hidden = np.maximum(up.values @ x, 0) ** 2
    result: np.ndarray = down.values @ hidden
    return result


def check(backend: ModuleType, layer: Layer, T: int, seed: int = 1) -> None:
    H = layer.layer.up.K
    h = np.random.default_rng(seed).normal(size=(T, H)).astype(np.float32).astype(np.float64)
    expected, weights, experts = layer.expected(h)
    y, slots, shares = layer.run(backend, h)
    distinct = np.unique(experts)
    assert slots[0] == len(distinct)
    np.testing.assert_array_equal(slots[1 : 1 + len(distinct)], distinct)
    by_expert = np.zeros((len(shares), MAX_TOKENS))
    for s, e in enumerate(distinct):
        for t, k in zip(*np.nonzero(experts == e), strict=True):
            by_expert[s, t] = weights[t, k]
    np.testing.assert_allclose(shares, by_expert, rtol=1e-5)
    added, wanted = y - h, expected - h
    error = np.sqrt(np.mean((added - wanted) ** 2) / np.mean(wanted**2))
    assert error < 1e-2, error


@pytest.mark.parametrize("T", [1, 3, 8])
@pytest.mark.parametrize(
    ("up", "down"), [("dense", "dense"), ("fp8", "fp8"), ("nvfp4", "nvfp4"), ("nvfp4", "fp8")]
)
def test_formats(backend: ModuleType, up: WeightFormat, down: WeightFormat, T: int) -> None:
    check(backend, Layer(up=up, down=down), T)


@pytest.mark.parametrize("group", [32, 64])
def test_int4(backend: ModuleType, group: int) -> None:
    layer = Layer(up="int4", down="int4", group=group, H=192, intermediate=128, shared=192)
    check(backend, layer, 2)


def test_without_a_shared_expert(backend: ModuleType) -> None:
    check(backend, Layer(shared=0), 2)


def test_many_experts(backend: ModuleType) -> None:
    """More experts than lanes, and a number of them that is no multiple of 32."""
    check(backend, Layer(up="dense", down="dense", experts=70, top_k=6, H=64, intermediate=16), 3)


@pytest.mark.parametrize(("n_group", "topk_group"), [(4, 1), (4, 2), (2, 1)])
def test_group_limits(backend: ModuleType, n_group: int, topk_group: int) -> None:
    for seed in range(3):
        layer = Layer(n_group=n_group, topk_group=topk_group, top_k=2, seed=seed)
        check(backend, layer, 4)


def test_weights_that_are_not_normalised(backend: ModuleType) -> None:
    check(backend, Layer(norm_topk_prob=False), 2)


def test_equal_scores_go_to_the_lower_expert(backend: ModuleType) -> None:
    layer = Layer()
    layer.gate[:] = layer.gate[0]
    layer.bias[:] = 0
    check(backend, layer, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("T", [1, 4, 8])
def test_lightning(backend: ModuleType, T: int) -> None:
    layer = Layer(H=2688, intermediate=1856, shared=3712, experts=16, top_k=6)
    check(backend, layer, T)
