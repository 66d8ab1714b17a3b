"""Mamba-2 against its definition in float64."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from edgekit.errors import BuildError
from edgekit.kernels.mamba2 import (
    STASH_ROWS,
    MambaLayer,
    mamba2_commit,
    mamba2_prefill,
    mamba2_scan,
)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

LAYERS = {
    "nano": MambaLayer(8, 64, 2, 128, 4),
    "one group": MambaLayer(2, 32, 1, 32, 4),
    "odd": MambaLayer(6, 24, 3, 16, 2),
}


class Random:
    """Weights, states and rows of one layer."""

    def __init__(self, layer: MambaLayer, T: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        heads = layer.num_heads
        self.layer, self.T = layer, T
        width = layer.d_inner + layer.conv_dim + heads
        self.projected = random.normal(size=(T, width)).astype(BFLOAT16)
        conv_weight = random.uniform(-0.6, 0.6, (layer.conv_dim, layer.conv_kernel))
        conv_bias = 0.1 * random.normal(size=layer.conv_dim)
        A_log, D = np.log(random.uniform(1, 16, heads)), random.normal(size=heads)
        dt_bias = random.normal(size=heads) - 3
        self.weights = [
            array.astype(np.float32) for array in (conv_weight, conv_bias, A_log, D, dt_bias)
        ]
        conv_shape = (layer.conv_dim, layer.conv_kernel - 1)
        self.conv = random.normal(size=conv_shape).astype(BFLOAT16).astype(np.float32)
        self.ssm = random.normal(size=(heads, layer.head_dim, layer.state_size)).astype(np.float32)

    def expected(self, n: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y silu(z) and both states after n rows, in float64."""
        layer = self.layer
        conv_weight, conv_bias, A_log, D, dt_bias = (w.astype(np.float64) for w in self.weights)
        rows = self.projected[:n].astype(np.float64)
        T, inner, heads, N = len(rows), layer.d_inner, layer.num_heads, layer.state_size
        z, xBC, dt = np.split(rows, [inner, inner + layer.conv_dim], axis=1)
        history = np.concatenate([self.conv.T.astype(np.float64), xBC])
        mixed = silu64(
            sum(history[k : k + T] * conv_weight[:, k] for k in range(layer.conv_kernel))
            + conv_bias
        )
        x = mixed[:, :inner].reshape(T, heads, layer.head_dim)
        B, C = (
            np.repeat(part.reshape(T, layer.n_groups, N), heads // layer.n_groups, axis=1)
            for part in np.split(mixed[:, inner:], 2, axis=1)
        )
        delta = np.logaddexp(0, dt + dt_bias)
        state, y = self.ssm.astype(np.float64), np.empty((T, heads, layer.head_dim))
        for t in range(T):
            decay = np.exp(-delta[t] * np.exp(A_log))[:, None, None]
            state = decay * state + (delta[t, :, None] * x[t])[..., None] * B[t][:, None]
            y[t] = np.einsum("hpn,hn->hp", state, C[t]) + D[:, None] * x[t]
        return y.reshape(T, inner) * silu64(z), history[T:].T, state


def silu64(x: Any) -> np.ndarray:
    result: np.ndarray = x / (1 + np.exp(-x))
    return result


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    difference = np.linalg.norm(actual.astype(np.float64) - expected)
    return float(difference / np.linalg.norm(expected))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("T", [1, 3, 8, 21])
def test_scan_commits_in_place(backend: ModuleType, name: str, T: int) -> None:
    case = Random(LAYERS[name], T)
    y, conv, ssm = case.expected()
    out = np.full((T, case.layer.d_inner), np.nan, BFLOAT16)
    arrivals = np.zeros(64, np.int32)
    backend.run(
        mamba2_scan(T, case.layer, commits=True),
        [case.projected, *case.weights, case.conv, case.ssm, arrivals],
        [out, case.conv, case.ssm, arrivals],
    )
    assert error(out, y) < 5e-3
    assert error(case.ssm, ssm) < 1e-5
    np.testing.assert_array_equal(case.conv, conv)
    assert not arrivals.any()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("T", [1, 5, 8])
def test_verify_leaves_the_states_alone(backend: ModuleType, name: str, T: int) -> None:
    case = Random(LAYERS[name], T)
    out = np.full((T, case.layer.d_inner), np.nan, BFLOAT16)
    inputs = [case.projected, *case.weights, case.conv, case.ssm]
    before = [array.copy() for array in inputs]
    backend.run(mamba2_scan(T, case.layer, commits=False), inputs, [out])
    assert error(out, case.expected()[0]) < 5e-3
    for array, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 8])
def test_commit_replays_all_layers(backend: ModuleType, name: str, n: int) -> None:
    layer = LAYERS[name]
    cases = [Random(layer, STASH_ROWS, seed) for seed in range(3)]
    expected = [case.expected(n)[1:] for case in cases]
    stash = np.stack([case.projected for case in cases])
    stash[:, n:] = np.nan  # rejected rows are not read
    weights = [np.stack(each) for each in zip(*(case.weights for case in cases), strict=True)]
    del weights[3]  # D takes no part
    conv, ssm = (np.stack([getattr(c, kind) for c in cases]) for kind in ("conv", "ssm"))
    arrivals = np.zeros(64, np.int32)
    backend.run(
        mamba2_commit(3, layer),
        [stash, *weights, np.array([n], np.int32), conv, ssm, arrivals],
        [conv, ssm, arrivals],
    )
    for i, (conv_after, ssm_after) in enumerate(expected):
        np.testing.assert_array_equal(conv[i], conv_after)
        assert error(ssm[i], ssm_after) < 1e-5


def test_a_long_sequence_does_not_drift(backend: ModuleType) -> None:
    case = Random(LAYERS["one group"], 300)
    _, _, ssm = case.expected()
    out, arrivals = np.zeros((300, case.layer.d_inner), BFLOAT16), np.zeros(64, np.int32)
    backend.run(
        mamba2_scan(300, case.layer, commits=True),
        [case.projected, *case.weights, case.conv, case.ssm, arrivals],
        [out, case.conv, case.ssm, arrivals],
    )
    assert error(case.ssm, ssm) < 1e-5


PREFILL_LAYERS = {
    "one head a group": MambaLayer(2, 64, 2, 128, 4),
    "one group": MambaLayer(4, 32, 1, 32, 4),
    "odd": MambaLayer(6, 24, 3, 16, 2),
    "three parts a head": MambaLayer(2, 80, 1, 48, 4),
}


def prefill(backend: ModuleType, case: Random, first: int, end: int) -> np.ndarray:
    """Rows first..end of the case through the kernel; its states go on."""
    out = np.full((end - first, case.layer.d_inner), np.nan, BFLOAT16)
    arrivals = np.zeros(64, np.int32)
    backend.run(
        mamba2_prefill(end - first, case.layer),
        [case.projected[first:end], *case.weights, case.conv, case.ssm, arrivals],
        [out, case.conv, case.ssm, arrivals],
    )
    assert not arrivals.any()
    return out


def check_prefill(backend: ModuleType, layer: MambaLayer, T: int) -> None:
    case = Random(layer, T)
    y, conv, ssm = case.expected()
    out = prefill(backend, case, 0, T)
    assert error(out, y) < 8e-3
    assert error(case.ssm, ssm) < 5e-3
    np.testing.assert_array_equal(case.conv, conv)


@pytest.mark.parametrize("name", PREFILL_LAYERS)
@pytest.mark.parametrize("T", [1, 2, 9, 17, 63, 64, 65, 129])
def test_prefill(backend: ModuleType, name: str, T: int) -> None:
    check_prefill(backend, PREFILL_LAYERS[name], T)


@pytest.mark.parametrize("cut", [1, 9, 64, 100])
def test_a_prompt_in_two_pieces_is_the_same(backend: ModuleType, cut: int) -> None:
    layer = PREFILL_LAYERS["one group"]
    case, whole = Random(layer, 140), Random(layer, 140)
    y, _, ssm = case.expected()
    out = np.concatenate([prefill(backend, case, 0, cut), prefill(backend, case, cut, 140)])
    assert error(out, y) < 8e-3
    assert error(case.ssm, ssm) < 5e-3
    prefill(backend, whole, 0, 140)
    np.testing.assert_array_equal(case.conv, whole.conv)


def test_prefill_of_extreme_decays(backend: ModuleType) -> None:
    """States that a token wipes out and states that a chunk hardly changes: nothing overflows."""
    case = Random(PREFILL_LAYERS["one group"], 130)
    case.projected[:, -4:] = 0
    case.weights[2][:] = np.log([16, 16, 1e-4, 1])
    case.weights[4][:] = [60, -12, 0, -1]
    y, _, ssm = case.expected()
    out = prefill(backend, case, 0, 130)
    for head in range(4):
        at = slice(32 * head, 32 * head + 32)
        assert error(out[:, at], y[:, at]) < 8e-3
        assert error(case.ssm[head], ssm[head]) < 5e-3


@pytest.mark.gpu
@pytest.mark.parametrize("T", [127, 512, 2048])
def test_prefill_at_lightnings_size(on_gpu: ModuleType, T: int) -> None:
    check_prefill(on_gpu, MambaLayer(64, 64, 8, 128, 4), T)


@pytest.mark.parametrize("layer", [MambaLayer(3, 32, 1, 32, 4), MambaLayer(2, 32, 1, 24, 4)])
def test_layers_without_a_prefill_kernel_are_refused(layer: MambaLayer) -> None:
    with pytest.raises(BuildError, match="cannot run on edgekit's CUDA kernels"):
        mamba2_prefill(9, layer)
