"""Dequantization against torch, onnx's reference and a decoder written from the formats' bits."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edgekit.ops.formats import E2M1_VALUES, dequantize, unpack_nibbles


def decode_e2m1(code: int) -> float:
    """Sign, two exponent bits with bias 1, one mantissa bit; exponent 0 is subnormal."""
    sign = -1.0 if code & 8 else 1.0
    exponent, mantissa = code >> 1 & 3, code & 1
    return sign * (mantissa / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2))


def decode_e4m3(code: int) -> float:
    """Sign, four exponent bits with bias 7, three mantissa bits, no infinity (the `fn` variant)."""
    sign = -1.0 if code & 128 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (
        2.0**-6 * mantissa / 8 if exponent == 0 else 2.0 ** (exponent - 7) * (1 + mantissa / 8)
    )


def nvfp4(rng: np.random.Generator, *shape: int) -> list[npt.NDArray[Any]]:
    """Random packed codes and scales of a matrix [..., N, K]; scales positive and finite."""
    *lead, K = shape
    packed = rng.integers(0, 256, (*lead, K // 2), dtype=np.uint8)
    scale = rng.uniform(0.01, 400, (*lead, K // 16)).astype(ml_dtypes.float8_e4m3fn)
    per_tensor = rng.uniform(1e-4, 1e-2, shape[:-2]).astype(np.float32)
    return [packed, scale, np.asarray(per_tensor)]


def test_the_sixteen_values() -> None:
    assert E2M1_VALUES.tolist() == [decode_e2m1(code) for code in range(16)]
    codes = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(E2M1_VALUES, codes.astype(np.float32))


def test_every_fp8_code_as_torch_reads_it() -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    scale = np.float32(0.037)
    actual = dequantize("fp8", codes.view(ml_dtypes.float8_e4m3fn), np.asarray(scale))
    expected = torch.from_numpy(codes).view(torch.float8_e4m3fn).float() * float(scale)
    np.testing.assert_array_equal(actual, expected.numpy())
    by_bits = [decode_e4m3(code) for code in range(256)]
    np.testing.assert_allclose(actual.ravel() / scale, by_bits, rtol=1e-6)


def test_fp8_against_onnx() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 50, (24, 40)).astype(ml_dtypes.float8_e4m3fn)
    scale = np.asarray(0.25, dtype=np.float32)
    expected = evaluate_dequantize(
        [
            helper.make_tensor(
                "w", TensorProto.FLOAT8E4M3FN, weight.shape, weight.tobytes(), raw=True
            ),
            helper.make_tensor("s", TensorProto.FLOAT, (), [float(scale)]),
        ],
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"])],
    )
    np.testing.assert_array_equal(dequantize("fp8", weight, scale), expected)


@pytest.mark.parametrize(("N", "K"), [(1, 16), (3, 32), (24, 208)])
def test_nvfp4_against_onnx(N: int, K: int) -> None:
    """The two-level form: a float32 scale for the e4m3 scales, and those for blocks of 16."""
    packed, scale, per_tensor = nvfp4(np.random.default_rng(N), N, K)
    expected = evaluate_dequantize(
        [
            helper.make_tensor("w", TensorProto.FLOAT4E2M1, (N, K), packed.tobytes(), raw=True),
            helper.make_tensor(
                "s", TensorProto.FLOAT8E4M3FN, scale.shape, scale.tobytes(), raw=True
            ),
            helper.make_tensor("s2", TensorProto.FLOAT, (), [float(per_tensor)]),
        ],
        [
            helper.make_node("DequantizeLinear", ["s", "s2"], ["scales"]),
            helper.make_node("DequantizeLinear", ["w", "scales"], ["y"], axis=1, block_size=16),
        ],
    )
    actual = dequantize("nvfp4", packed, scale, per_tensor)
    assert actual.shape == (N, K)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=2e-7, atol=0)
    assert np.abs(expected).max() > 0


def evaluate_dequantize(tensors: list[Any], nodes: list[Any]) -> npt.NDArray[np.float32]:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "K"])
    graph = helper.make_graph(nodes, "dequantize", [], [y], initializer=tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    onnx.checker.check_model(model)
    (result,) = ReferenceEvaluator(model).run(None, {})
    return np.asarray(result, dtype=np.float32)


@given(
    st.integers(1, 5), st.integers(1, 4), st.binary(min_size=160, max_size=160), st.floats(1e-6, 10)
)
def test_nvfp4_element_by_element(N: int, blocks: int, data: bytes, per_tensor: float) -> None:
    """Any bytes at all, NaN scales too, against the definition."""
    K = 16 * blocks
    raw = np.frombuffer(data * 2, dtype=np.uint8)
    packed = raw[: N * K // 2].reshape(N, K // 2)
    scale = raw[160 : 160 + N * blocks].reshape(N, blocks)
    scale_2 = np.asarray(per_tensor, dtype=np.float32)
    actual = dequantize("nvfp4", packed, scale.view(ml_dtypes.float8_e4m3fn), scale_2)
    for n in range(N):
        for k in range(K):
            byte = int(packed[n, k // 2])
            code = byte >> 4 if k % 2 else byte & 15
            value = decode_e2m1(code) * decode_e4m3(int(scale[n, k // 16])) * float(scale_2)
            assert actual[n, k] == pytest.approx(value, rel=1e-6, nan_ok=True)


def test_the_low_nibble_is_the_even_column() -> None:
    packed = np.array([[0x21, 0x43]], dtype=np.uint8)
    assert unpack_nibbles(packed).tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("weight_format", ["fp8", "nvfp4"])
def test_stacked_experts_are_the_experts_stacked(weight_format: Any) -> None:
    rng = np.random.default_rng(1)
    if weight_format == "nvfp4":
        parts = nvfp4(rng, 5, 7, 32)
    else:
        weight = rng.normal(0, 50, (5, 7, 32)).astype(ml_dtypes.float8_e4m3fn)
        parts = [weight, rng.uniform(0.1, 1, 5).astype(np.float32)]
    assert parts[-1].shape == (5,)
    stacked = dequantize(weight_format, *parts)
    for e in range(5):
        one = dequantize(weight_format, *(part[e] for part in parts))
        np.testing.assert_array_equal(stacked[e], one)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_per_tensor_scales_may_be_scalars_or_of_one_element(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    packed, scale, per_tensor = nvfp4(rng, 3, 32)
    expected = dequantize("nvfp4", packed, scale, per_tensor)
    actual = dequantize("nvfp4", packed, scale, per_tensor.reshape(shape))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dense_weights_are_themselves(dtype: Any) -> None:
    weight = np.random.default_rng(3).normal(size=(4, 6)).astype(dtype)
    actual = dequantize("dense", weight)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual, weight.astype(np.float64))
