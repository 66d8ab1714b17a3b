"""Each canonical operator against its definition spelt out in loops, or against torch, in float64.

Where the product's definition is vectorised, the one here is not: a mistake in an index or an axis
cannot be made twice in the same way.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

from edgekit import ops
from tests.ops.test_formats import nvfp4

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def normal(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


# -- RmsNorm, Linear


@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_rms_norm(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    x, weight = normal(rng, 5, 24), normal(rng, 24)
    expected = torch.nn.functional.rms_norm(
        torch.from_numpy(x).double(), (24,), torch.from_numpy(weight).double(), epsilon
    )
    actual = ops.rms_norm(x, weight, epsilon=epsilon)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_rms_norm_of_bfloat16_weights() -> None:
    rng = np.random.default_rng(1)
    x, weight = normal(rng, 3, 8), normal(rng, 8).astype(ml_dtypes.bfloat16)
    expected = ops.rms_norm(x, weight.astype(np.float32), epsilon=1e-5)
    np.testing.assert_array_equal(ops.rms_norm(x, weight, epsilon=1e-5), expected)


@pytest.mark.parametrize("weight_format", ["dense", "nvfp4"])
def test_linear(weight_format: Any) -> None:
    rng = np.random.default_rng(2)
    x = normal(rng, 4, 32)
    parts = nvfp4(rng, 6, 32) if weight_format == "nvfp4" else [normal(rng, 6, 32)]
    weight = ops.dequantize(weight_format, *parts).astype(np.float64)
    expected = np.zeros((4, 6))
    for t, n, k in product(range(4), range(6), range(32)):
        expected[t, n] += float(x[t, k]) * weight[n, k]
    actual = ops.linear(x, *parts, format=weight_format)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


# -- Attention


def attention_inputs(
    rng: np.random.Generator, T: int, heads: int, kv: int, head_dim: int, capacity: int
) -> tuple[F32, F32, F32, F32, F32]:
    return (
        normal(rng, T, heads * head_dim),
        normal(rng, T, kv * head_dim),
        normal(rng, T, kv * head_dim),
        normal(rng, kv, capacity, head_dim),
        normal(rng, kv, capacity, head_dim),
    )


@pytest.mark.parametrize(("heads", "kv"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize(("T", "length"), [(1, 0), (1, 7), (5, 0), (4, 6)])
def test_attention(heads: int, kv: int, T: int, length: int) -> None:
    head_dim, capacity, scale = 8, 12, 0.3
    rng = np.random.default_rng(heads * 10 + T)
    query, key, value, key_cache, value_cache = attention_inputs(
        rng, T, heads, kv, head_dim, capacity
    )
    before = key_cache.copy(), value_cache.copy()
    output, keys, values = ops.attention(
        query,
        key,
        value,
        key_cache,
        value_cache,
        length,
        num_heads=heads,
        kv_num_heads=kv,
        scale=scale,
    )
    assert output.dtype == np.float32
    for cache, new, old in ((keys, key, before[0]), (values, value, before[1])):
        assert cache.shape == old.shape
        for j, position in product(range(kv), range(capacity)):
            t = position - length
            fresh = new[t, j * head_dim : (j + 1) * head_dim] if 0 <= t < T else old[j, position]
            np.testing.assert_array_equal(cache[j, position], fresh)
    np.testing.assert_array_equal(key_cache, before[0])  # inputs are left alone
    np.testing.assert_array_equal(value_cache, before[1])

    for t, h in product(range(T), range(heads)):
        j = h * kv // heads
        q = query[t, h * head_dim : (h + 1) * head_dim].astype(np.float64)
        visible = length + t + 1
        scores = [scale * float(q @ keys[j, s].astype(np.float64)) for s in range(visible)]
        weights = [math.exp(score - max(scores)) for score in scores]
        expected = sum(
            w * values[j, s].astype(np.float64) / sum(weights) for s, w in enumerate(weights)
        )
        actual = output[t, h * head_dim : (h + 1) * head_dim]
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [0, 1, 7, 15])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_attention_against_torch(window: int, has_sinks: bool) -> None:
    T, heads, kv, head_dim, length = 6, 4, 2, 16, 9
    inputs = attention_inputs(np.random.default_rng(5), T, heads, kv, head_dim, 20)
    sinks = np.array([-3, 0.5, 1, 4], np.float32) if has_sinks else None
    output, keys, values = ops.attention(
        *inputs,
        length,
        num_heads=heads,
        kv_num_heads=kv,
        scale=head_dim**-0.5,
        window=window,
        sinks=sinks,
    )
    q = torch.from_numpy(inputs[0]).reshape(T, heads, head_dim).transpose(0, 1)
    k, v = (torch.from_numpy(cache[:, : length + T]) for cache in (keys, values))
    seen = torch.ones(T, length + T, dtype=torch.bool).tril(length)
    if window:
        seen &= ~seen.tril(length - window)
    mask = torch.zeros(heads, T, length + T).masked_fill(~seen, -math.inf)
    if sinks is not None:  # a key and a value of zeros, whose score is the mask's
        k, v = (torch.nn.functional.pad(one, (0, 0, 0, 1)) for one in (k, v))
        column = torch.from_numpy(sinks).reshape(heads, 1, 1).expand(heads, T, 1)
        mask = torch.cat([mask, column], dim=-1)
    expected = torch.nn.functional.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask, enable_gqa=True
    )
    flat = expected[0].transpose(0, 1).reshape(T, -1).numpy()
    np.testing.assert_allclose(output, flat, rtol=1e-4, atol=1e-5)


def test_attention_never_reads_behind_its_length() -> None:
    inputs = attention_inputs(np.random.default_rng(6), 2, 2, 1, 4, 10)
    inputs[3][:, 5:] = np.nan
    inputs[4][:, 5:] = np.nan
    output, _, _ = ops.attention(*inputs, 5, num_heads=2, kv_num_heads=1, scale=1.0)
    assert np.isfinite(output).all()


# -- Mamba2Scan, Mamba2Commit


class Mamba:
    """Random weights and state of one mixer, and the recurrence written out in float64."""

    def __init__(
        self, *, heads: int, head_dim: int, n_groups: int, state: int, kernel: int, seed: int = 0
    ) -> None:
        rng = np.random.default_rng(seed)
        self.heads, self.head_dim, self.n_groups = heads, head_dim, n_groups
        self.N, self.K = state, kernel
        self.d_inner = heads * head_dim
        self.conv_dim = self.d_inner + 2 * n_groups * state
        self.conv_weight = normal(rng, self.conv_dim, kernel)
        self.conv_bias = normal(rng, self.conv_dim)
        self.A_log = np.log(rng.uniform(0.5, 8, heads)).astype(np.float32)
        self.D = normal(rng, heads)
        self.dt_bias = normal(rng, heads)
        self.norm_weight = normal(rng, self.d_inner)
        self.conv_state = normal(rng, self.conv_dim, kernel - 1)
        self.ssm_state = normal(rng, heads, head_dim, state)
        self.rng = rng

    def projected(self, T: int) -> F32:
        return normal(self.rng, T, self.d_inner + self.conv_dim + self.heads)

    def scan(self, projected: F32, epsilon: float) -> Any:
        return ops.mamba2_scan(
            projected,
            self.conv_weight,
            self.conv_bias,
            self.A_log,
            self.D,
            self.dt_bias,
            self.norm_weight,
            self.conv_state,
            self.ssm_state,
            n_groups=self.n_groups,
            epsilon=epsilon,
        )

    def commit(self, stash: F32) -> Any:
        return ops.mamba2_commit(
            stash,
            self.conv_weight,
            self.conv_bias,
            self.A_log,
            self.dt_bias,
            self.conv_state,
            self.ssm_state,
            n_groups=self.n_groups,
        )

    def expected(self, projected: F32, epsilon: float) -> tuple[F64, F64, F64]:
        z_end, conv_end = self.d_inner, self.d_inner + self.conv_dim
        window = [self.conv_state[:, i].astype(np.float64) for i in range(self.K - 1)]
        state = self.ssm_state.astype(np.float64)
        outputs = []
        for row in projected.astype(np.float64):
            z, xBC, dt = row[:z_end], row[z_end:conv_end], row[conv_end:]
            window.append(xBC)
            convolved = [
                sum(self.conv_weight[c, i] * window[i][c] for i in range(self.K))
                + self.conv_bias[c]
                for c in range(self.conv_dim)
            ]
            window.pop(0)
            active = [c / (1 + math.exp(-c)) for c in convolved]
            x, BC = active[: self.d_inner], active[self.d_inner :]
            y = np.zeros(self.d_inner)
            for h in range(self.heads):
                group = h // (self.heads // self.n_groups)
                B = BC[group * self.N : (group + 1) * self.N]
                C_start = (self.n_groups + group) * self.N
                C = BC[C_start : C_start + self.N]
                delta = math.log1p(math.exp(dt[h] + self.dt_bias[h]))
                decay = math.exp(-delta * math.exp(self.A_log[h]))
                for p in range(self.head_dim):
                    i = h * self.head_dim + p
                    for n in range(self.N):
                        state[h, p, n] = decay * state[h, p, n] + delta * x[i] * B[n]
                        y[i] += state[h, p, n] * C[n]
                    y[i] += self.D[h] * x[i]
            gated = y * z / (1 + np.exp(-z))
            width = self.d_inner // self.n_groups
            for g in range(self.n_groups):
                part = gated[g * width : (g + 1) * width]
                part /= math.sqrt(np.mean(part**2) + epsilon)
            outputs.append(gated * self.norm_weight)
        return np.stack(outputs), np.stack(window, axis=1), state


MIXERS = [
    {"heads": 4, "head_dim": 3, "n_groups": 2, "state": 5, "kernel": 4},
    {"heads": 4, "head_dim": 2, "n_groups": 4, "state": 3, "kernel": 2},
    {"heads": 3, "head_dim": 4, "n_groups": 1, "state": 2, "kernel": 3},
]


@pytest.mark.parametrize("dims", MIXERS)
@pytest.mark.parametrize("T", [1, 2, 6])
def test_mamba2_scan(dims: dict[str, int], T: int) -> None:
    mixer = Mamba(**dims)
    projected = mixer.projected(T)
    y, stash, conv_state, ssm_state = mixer.scan(projected, 1e-3)
    expected, expected_conv, expected_ssm = mixer.expected(projected, 1e-3)
    assert {a.dtype for a in (y, stash, conv_state, ssm_state)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(conv_state, expected_conv, rtol=1e-6)
    np.testing.assert_allclose(ssm_state, expected_ssm, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(stash, projected[:, mixer.d_inner :])


@pytest.mark.parametrize("dims", MIXERS)
def test_mamba2_state_carries_over(dims: dict[str, int]) -> None:
    """A sequence in two pieces is the sequence, to the bit: each token is one recurrence step."""
    mixer = Mamba(**dims)
    projected = mixer.projected(7)
    whole = mixer.scan(projected, 1e-5)
    first = mixer.scan(projected[:3], 1e-5)
    mixer.conv_state, mixer.ssm_state = first[2:]
    second = mixer.scan(projected[3:], 1e-5)
    for i in (0, 1):
        np.testing.assert_array_equal(np.concatenate([first[i], second[i]]), whole[i])
    for i in (2, 3):
        np.testing.assert_array_equal(second[i], whole[i])


@pytest.mark.parametrize("dims", MIXERS)
@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_mamba2_commit_is_a_scan_without_output(dims: dict[str, int], n: int) -> None:
    mixer = Mamba(**dims)
    projected = mixer.projected(5)
    stash = mixer.scan(projected, 1e-5)[1]
    states = mixer.commit(stash[:n])
    unchanged = (mixer.conv_state, mixer.ssm_state)
    expected = mixer.scan(projected[:n], 1e-5)[2:] if n else unchanged
    for actual, wanted in zip(states, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_extreme_steps_neither_overflow_nor_vanish() -> None:
    """softplus(dt) is dt where dt is large and exp(dt) where it is very negative; no clamp."""
    mixer = Mamba(heads=2, head_dim=1, n_groups=1, state=1, kernel=2)
    projected = mixer.projected(3)
    projected[:, -2:] = [[80, -80], [500, -500], [-30, 30]]
    projected[1, : mixer.d_inner] = -1e4  # z: silu goes to -0
    mixer.dt_bias[:] = 0
    with np.errstate(over="raise", invalid="raise"):
        y, _, _, state = mixer.scan(projected, 1e-5)
    assert np.isfinite(y).all()
    assert np.isfinite(state).all()


def test_silu_and_softplus() -> None:
    from edgekit.ops.mamba2 import silu, softplus

    x = np.linspace(-60, 60, 2001, dtype=np.float32)
    with torch.inference_mode():
        t = torch.from_numpy(x).double()
        np.testing.assert_allclose(silu(x), torch.nn.functional.silu(t), rtol=1e-4, atol=2e-6)
        expected = torch.logaddexp(t, torch.zeros_like(t))
        np.testing.assert_allclose(softplus(x), expected, rtol=1e-5, atol=1e-7)


# -- MoeRoute, MoeExperts


def route(**overrides: Any) -> dict[str, Any]:
    return {
        "top_k": 2,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
    } | overrides


ROUTERS = [
    route(),
    route(top_k=1, norm_topk_prob=False),
    route(top_k=12),
    route(top_k=3, n_group=3, topk_group=2, routed_scaling_factor=1.0),
    route(top_k=4, n_group=3, topk_group=1, norm_topk_prob=False),
    route(top_k=2, n_group=6, topk_group=3),
]


@pytest.mark.parametrize("options", ROUTERS)
def test_moe_route(options: dict[str, Any]) -> None:
    T, E, H = 40, 12, 8
    rng = np.random.default_rng(4)
    x, gate = normal(rng, T, H), normal(rng, E, H)
    bias = (0.5 * rng.standard_normal(E)).astype(np.float32)
    weights, indices = ops.moe_route(x, gate, bias, **options)
    assert weights.shape == indices.shape == (T, options["top_k"])
    assert weights.dtype == np.float32

    size = E // options["n_group"]
    biased_choice_differs = False
    for t in range(T):
        logits = gate.astype(np.float64) @ x[t].astype(np.float64)
        scores = [1 / (1 + math.exp(-v)) for v in logits]
        biased = [s + float(b) for s, b in zip(scores, bias, strict=True)]
        groups = [sorted(biased[g * size : (g + 1) * size])[-2:] for g in range(E // size)]
        best = sorted(range(len(groups)), key=lambda g: -sum(groups[g]))
        allowed = best[: options["topk_group"]] if options["n_group"] > 1 else best
        candidates = [e for e in range(E) if e // size in allowed]
        chosen = sorted(candidates, key=lambda e: -biased[e])[: options["top_k"]]
        assert indices[t].tolist() == chosen
        biased_choice_differs |= set(chosen) != set(
            sorted(candidates, key=lambda e: -scores[e])[: options["top_k"]]
        )
        total = sum(scores[e] for e in chosen) if options["norm_topk_prob"] else 1.0
        expected = [options["routed_scaling_factor"] * scores[e] / total for e in chosen]
        np.testing.assert_allclose(weights[t], expected, rtol=1e-5)
    assert biased_choice_differs or options["top_k"] in (4, 12)


@pytest.mark.parametrize("formats", [("dense", "dense"), ("nvfp4", "dense"), ("nvfp4", "nvfp4")])
def test_moe_experts(formats: Any) -> None:
    T, E, H, width, top_k = 6, 6, 16, 32, 3
    rng = np.random.default_rng(7)
    x, weights = normal(rng, T, H), normal(rng, T, top_k)
    indices = np.stack([rng.permutation(E - 1)[:top_k] for _ in range(T)])  # one is never chosen
    matrices, parts = [], []
    for shape, weight_format in zip(((E, width, H), (E, H, width)), formats, strict=True):
        parts.append(nvfp4(rng, *shape) if weight_format == "nvfp4" else [normal(rng, *shape)])
        matrices.append(ops.dequantize(weight_format, *parts[-1]).astype(np.float64))
    up, down = matrices

    expected = np.zeros((T, H))
    for t, slot in product(range(T), range(top_k)):
        e = int(indices[t, slot])
        hidden = [max(0.0, float(up[e, i] @ x[t])) ** 2 for i in range(width)]
        expected[t] += float(weights[t, slot]) * (down[e] @ hidden)
    actual = ops.moe_experts(
        x, weights, indices, *parts, up_format=formats[0], down_format=formats[1]
    )
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
