"""Linear for a prompt's tokens against its definition in float64."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.linear import Activation
from edgekit.kernels.linear_prefill import Order, linear_prefill, norm_prefill
from edgekit.ops.formats import WeightFormat
from tests.kernels.test_linear_step import EPSILON, normed
from tests.kernels.weights import FORMATS, random_matrix
from tests.tools.tiles import from_tiles, poisoned

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def check(
    backend: ModuleType,
    form: WeightFormat,
    group: int,
    *,
    T: int,
    N: int,
    K: int,
    input: Activation = "float32",
    output: Order = "float32",
    norm_groups: int = 0,
    relu2: bool = False,
    residual: bool = False,
) -> None:
    random = np.random.default_rng(T + N + K)
    weights = random_matrix(random, form, N, K, group)
    x = random.normal(size=(T, K)).astype(np.float32 if input == "float32" else BFLOAT16)
    norm_weight = random.uniform(0.5, 1.5, K).astype(np.float32)
    inputs = [x, norm_weight] if norm_groups else [x]
    tiles = poisoned(T, K)
    backend.run(
        norm_prefill(T, K, input=input, norm_groups=norm_groups, epsilon=EPSILON), inputs, [tiles]
    )
    exact = x.astype(np.float64)
    if norm_groups:
        exact = normed(exact, norm_weight.astype(np.float64), norm_groups)
    np.testing.assert_allclose(from_tiles(tiles, K), exact, rtol=2.0**-7)
    assert not np.any(from_tiles(tiles, tiles.shape[1])[:, K:].astype(bool))

    if output == "tiles":
        y = poisoned(T, N)
    else:
        y = np.full((T, N), np.nan, np.float32 if output == "float32" else BFLOAT16)
    arguments = [tiles, *weights.arguments]
    if residual:  # in place
        y = random.normal(size=(T, N)).astype(np.float32)
        arguments.append(y)
    expected = exact @ weights.values.T
    magnitude = np.abs(exact) @ np.abs(weights.values).T
    if relu2:
        expected = np.maximum(expected, 0) ** 2
        magnitude = magnitude**2
    if residual:
        expected = expected + y
    launch = linear_prefill(T, weights.matrix, output=output, relu2=relu2, residual=residual)
    backend.run(launch, arguments, [y])
    if output == "tiles":
        assert not np.any(from_tiles(y, y.shape[1])[:, N:].astype(bool))
        y = from_tiles(y, N)
    error = np.abs(y.astype(np.float64) - expected)
    # Activations are rounded to bfloat16 (2^-9), int4 weights and their scales too.
    bound = 2.0**-7 if form == "int4" else 2.0**-8.9
    assert (error <= bound * magnitude + 2.0**-8 * np.abs(expected) * (output != "float32")).all()
    assert np.sqrt(np.mean(error**2)) < 6e-3 * np.sqrt(np.mean(expected**2))


@pytest.mark.parametrize(("form", "group"), FORMATS)
@pytest.mark.parametrize("T", [9, 64, 65])
def test_every_format(backend: ModuleType, form: WeightFormat, group: int, T: int) -> None:
    check(backend, form, group, T=T, N=40, K=384)


@pytest.mark.parametrize(("N", "K"), [(4, 64), (132, 32), (256, 128), (4100, 96)])
def test_odd_sizes(backend: ModuleType, N: int, K: int) -> None:
    check(backend, "nvfp4", 64, T=17, N=N, K=K, input="bfloat16")


@pytest.mark.parametrize("input", ["float32", "bfloat16"])
@pytest.mark.parametrize("norm_groups", [1, 2, 4])
def test_norms(backend: ModuleType, input: Activation, norm_groups: int) -> None:
    check(backend, "fp8", 64, T=10, N=24, K=480, input=input, norm_groups=norm_groups)


def test_epilogues(backend: ModuleType) -> None:
    check(backend, "nvfp4", 64, T=13, N=140, K=192, relu2=True, output="bfloat16")
    check(backend, "nvfp4", 64, T=13, N=140, K=192, relu2=True, output="tiles")
    check(backend, "fp8", 64, T=70, N=140, K=192, residual=True)
    check(backend, "dense", 64, T=12, N=4112, K=64, output="bfloat16")


@pytest.mark.gpu
@pytest.mark.parametrize(("form", "group"), FORMATS)
@pytest.mark.parametrize("T", [127, 128, 129, 2048])
def test_real_sizes(on_gpu: ModuleType, form: WeightFormat, group: int, T: int) -> None:
    check(on_gpu, form, group, T=T, N=10304, K=2688, norm_groups=1, output="bfloat16")
    check(on_gpu, form, group, T=T, N=2688, K=4096, input="bfloat16", norm_groups=8, residual=True)
