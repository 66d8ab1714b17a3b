"""Linear for up to eight tokens against its definition in float64."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.linear import Activation, linear_step
from edgekit.ops.formats import WeightFormat
from tests.kernels.weights import FORMATS, random_matrix

EPSILON = 1e-5


def normed(x: np.ndarray, weight: np.ndarray, groups: int) -> np.ndarray:
    grouped = x.reshape(x.shape[0], groups, -1)
    scale = 1 / np.sqrt(np.mean(grouped**2, axis=-1, keepdims=True) + EPSILON)
    normal: np.ndarray = (grouped * scale).reshape(x.shape) * weight
    return normal


def check(
    backend: ModuleType,
    form: WeightFormat,
    group: int,
    *,
    T: int,
    N: int,
    K: int,
    input: Activation = "float32",
    output: Activation = "float32",
    norm_groups: int = 0,
    relu2: bool = False,
    residual: bool = False,
) -> None:
    random = np.random.default_rng(T + N + K)
    weights = random_matrix(random, form, N, K, group)
    dtype = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
    x = random.normal(size=(T, K)).astype(dtype[input])
    norm_weight = random.uniform(0.5, 1.5, K).astype(np.float32)
    y = np.full((T, N), np.nan, dtype[output])
    inputs = [x]
    if norm_groups:
        inputs.append(norm_weight)
    inputs += weights.arguments
    if residual:  # in place
        y = random.normal(size=(T, N)).astype(np.float32)
        inputs.append(y)

    exact = x.astype(np.float64)
    if norm_groups:
        exact = normed(exact, norm_weight.astype(np.float64), norm_groups)
    expected = exact @ weights.values.T
    magnitude = np.abs(exact) @ np.abs(weights.values).T
    if relu2:
        expected = np.maximum(expected, 0) ** 2
        magnitude = magnitude**2
    if residual:
        expected = expected + y
    launch = linear_step(
        T,
        weights.matrix,
        input=input,
        output=output,
        norm_groups=norm_groups,
        epsilon=EPSILON,
        relu2=relu2,
        residual=residual,
    )
    backend.run(launch, inputs, [y])
    error = np.abs(y.astype(np.float64) - expected)
    # Activations are rounded to bfloat16 (2^-9), sums in float32; an output in bfloat16 once more.
    assert (
        error <= 2.0**-9 * magnitude + 2.0**-8 * np.abs(expected) * (output == "bfloat16")
    ).all()
    # Rounding errors are independent: together they are much smaller than their bound.
    assert np.sqrt(np.mean(error**2)) < 6e-3 * np.sqrt(np.mean(expected**2))


@pytest.mark.parametrize(("form", "group"), FORMATS)
@pytest.mark.parametrize("T", [1, 2, 5, 8])
def test_every_format(backend: ModuleType, form: WeightFormat, group: int, T: int) -> None:
    check(backend, form, group, T=T, N=40, K=1152)


@pytest.mark.parametrize(("N", "K"), [(1, 64), (7, 32), (16, 128), (33, 96), (48, 704)])
def test_odd_sizes(backend: ModuleType, N: int, K: int) -> None:
    check(backend, "nvfp4", 64, T=3, N=N, K=K, input="bfloat16")


@pytest.mark.parametrize("input", ["float32", "bfloat16"])
@pytest.mark.parametrize("norm_groups", [1, 2, 4])
def test_norms(backend: ModuleType, input: Activation, norm_groups: int) -> None:
    check(backend, "fp8", 64, T=4, N=24, K=512, input=input, norm_groups=norm_groups)
    check(backend, "dense", 64, T=1, N=24, K=512, input=input, norm_groups=norm_groups)


def test_epilogues(backend: ModuleType) -> None:
    check(backend, "nvfp4", 64, T=3, N=40, K=192, relu2=True, output="bfloat16")
    check(backend, "fp8", 64, T=8, N=40, K=192, residual=True)
    check(backend, "int4", 32, T=1, N=40, K=192, residual=True, norm_groups=1)
    check(backend, "dense", 64, T=2, N=4112, K=64, output="bfloat16")


@pytest.mark.gpu
@pytest.mark.parametrize(("form", "group"), FORMATS)
@pytest.mark.parametrize("T", [1, 4, 8])
def test_real_sizes(backend: ModuleType, form: WeightFormat, group: int, T: int) -> None:
    check(backend, form, group, T=T, N=10304, K=2688, norm_groups=1, output="bfloat16")
    check(backend, form, group, T=T, N=2688, K=4096, input="bfloat16", norm_groups=8, residual=True)
