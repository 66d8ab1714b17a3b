"""Repacking for ONNX Runtime: undone here, and read back by ONNX Runtime's own operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import Weight, as_bytes
from edgekit.export.lower.ort import MS
from edgekit.export.lower.ort_weights import experts, matmul, matmul_nbits
from edgekit.ops.formats import WeightFormat, dequantize
from tests.kernels.weights import FORMATS, stored_parts

N, K, E, FACTOR = 24, 128, 4, 2.5
INT4_GROUPS = (32, 64, 128)


def weights(parts: Sequence[np.ndarray]) -> list[Weight]:
    return [weight(f"m.{i}", part) for i, part in enumerate(parts)]


def weight(name: str, array: np.ndarray) -> Weight:
    return Weight(name, array.dtype, array.shape, lambda: iter([as_bytes(array)]))


def stacked(form: WeightFormat, rows: int, columns: int, group: int, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    each = [stored_parts(random, form, rows, columns, group) for _ in range(E)]
    return [np.stack(parts) for parts in zip(*each, strict=True)]


def opened(graph: GraphBuilder) -> onnxruntime.InferenceSession:
    model = ir.serde.serialize_model(graph.model()).SerializeToString()
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("form", "group"), FORMATS)
def test_matmul_is_the_transposed_matrix(form: WeightFormat, group: int) -> None:
    parts = stored_parts(np.random.default_rng(0), form, N, K, group)
    matrix = matmul(weights(parts), form).numpy()
    assert matrix.flags.c_contiguous
    np.testing.assert_array_equal(matrix.T, dequantize(form, *parts))


@pytest.mark.parametrize("group", INT4_GROUPS)
def test_matmul_nbits_undone(group: int) -> None:
    parts = stored_parts(np.random.default_rng(1), "int4", N, K, group)
    codes, scales = matmul_nbits(weights(parts))
    assert codes.dims == (N, K // group, group // 2)
    np.testing.assert_array_equal(codes.numpy().reshape(N, K // 2), parts[0])
    np.testing.assert_array_equal(scales.numpy().reshape(N, -1), parts[1].astype(np.float32))


@pytest.mark.parametrize("group", INT4_GROUPS)
def test_matmul_nbits_by_onnx_runtime(group: int) -> None:
    """The operator applied to unit vectors returns the matrix, bit for bit."""
    parts = stored_parts(np.random.default_rng(2), "int4", N, K, group)
    g = GraphBuilder("m", {"": 21, MS: 1})
    x = g.input("x", ir.DataType.FLOAT, [K, K])
    codes, scales = (g.weight(matrix) for matrix in matmul_nbits(weights(parts)))
    size = {"N": N, "K": K, "bits": 4, "block_size": group, "accuracy_level": 1}
    y = g.op("MatMulNBits", [x, codes, scales], "y", domain=MS, **size)
    g.output(y, "y", ir.DataType.FLOAT, [K, N])
    (found,) = opened(g).run(["y"], {"x": np.eye(K, dtype=np.float32)})
    np.testing.assert_array_equal(found.T, dequantize("int4", *parts))


@pytest.mark.parametrize("group", INT4_GROUPS)
def test_qmoe_undone(group: int) -> None:
    up, down = stacked("int4", N, K, group, 3), stacked("int4", 16, K, group, 4)
    packed = experts(weights(up), "int4", weights(down), "int4", FACTOR)
    assert packed.group == group
    for matrix, part in zip(packed.up, up, strict=True):
        gate, value = matrix.numpy()[:, 0::2], matrix.numpy()[:, 1::2]
        np.testing.assert_array_equal(gate, part)
        np.testing.assert_array_equal(value, part)
    codes, scales = (matrix.numpy() for matrix in packed.down)
    np.testing.assert_array_equal(codes, down[0])
    np.testing.assert_array_equal(scales, down[1].astype(np.float32) * np.float32(FACTOR))


@pytest.mark.parametrize(("form", "group"), FORMATS)
def test_moe_undone(form: WeightFormat, group: int) -> None:
    """Formats that QMoE has no kernel for, and int4 matrices of two groups, as float32."""
    other: WeightFormat = "dense" if form == "int4" else "int4"
    up, down = stacked(form, N, K, group, 5), stacked(other, 16, K, 32, 6)
    packed = experts(weights(up), form, weights(down), other, FACTOR)
    assert packed.group == 0
    (first,), (second,) = packed.up, packed.down
    for half in (0, 1):
        np.testing.assert_array_equal(first.numpy()[:, half::2], dequantize(form, *up))
    expected = dequantize(other, *down) * np.float32(FACTOR)
    np.testing.assert_array_equal(second.numpy(), expected)


@pytest.mark.parametrize("group", INT4_GROUPS)
def test_qmoe_by_onnx_runtime(group: int) -> None:
    """Unit vectors through one expert each; ReLU, so that every column of both can be told."""
    H = I = 128
    up, down = stacked("int4", I, H, group, 7), stacked("int4", H, I, group, 8)
    packed = experts(weights(up), "int4", weights(down), "int4", FACTOR)
    g = GraphBuilder("m", {"": 21, MS: 1})
    x = g.input("x", ir.DataType.FLOAT, ["T", H])
    router = g.input("router", ir.DataType.FLOAT, ["T", E])
    single = [weight(f"{w.name}.once", w.numpy()[:, ::2].copy()) for w in packed.up]
    matrices = [*(g.weight(matrix) for matrix in single), None]
    matrices += [g.weight(matrix) for matrix in packed.down]
    attributes = {"activation_type": "relu", "k": 1, "normalize_routing_weights": 1}
    attributes |= {"expert_weight_bits": 4, "block_size": group}
    y = g.op("QMoE", [x, router, *matrices], "y", domain=MS, **attributes)
    g.output(y, "y", ir.DataType.FLOAT, ["T", H])
    session = opened(g)
    for e in range(E):
        rows = np.full((H, E), -100, np.float32)
        rows[:, e] = 0
        (found,) = session.run(["y"], {"x": np.eye(H, dtype=np.float32), "router": rows})
        hidden = np.maximum(dequantize("int4", up[0][e], up[1][e]), 0).T
        expected = hidden @ (FACTOR * dequantize("int4", down[0][e], down[1][e])).T
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert error < 0.01  # its activations are 8 bits; a wrong nibble or expert gives about 1
