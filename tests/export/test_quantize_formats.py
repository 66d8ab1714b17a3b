"""int4: against onnx's blocked dequantization, and how a checkpoint's tensors are recognised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edgekit.export.quantization import stored_format
from edgekit.ops.formats import dequantize, int4_group, pack_nibbles, unpack_nibbles
from edgekit.safetensors import TensorEntry

N = 6


def random_int4(group: int, scale_dtype: Any = np.float32) -> list[npt.NDArray[Any]]:
    rng = np.random.default_rng(group)
    packed = rng.integers(0, 256, (N, group), dtype=np.uint8)  # K = 2 groups
    return [packed, rng.uniform(1e-4, 1e-2, (N, 2)).astype(scale_dtype)]


@pytest.mark.parametrize("group", [32, 64, 128])
def test_int4_against_onnx(group: int) -> None:
    packed, scale = random_int4(group)
    K = 2 * group
    zero = pack_nibbles(np.full((N, 2), 8, np.uint8))
    tensors = [
        helper.make_tensor("w", TensorProto.UINT4, (N, K), packed.tobytes(), raw=True),
        helper.make_tensor("s", TensorProto.FLOAT, (N, 2), scale.tobytes(), raw=True),
        helper.make_tensor("z", TensorProto.UINT4, (N, 2), zero.tobytes(), raw=True),
    ]
    node = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["y"], axis=1, block_size=group)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "K"])
    graph = helper.make_graph([node], "dequantize", [], [y], initializer=tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    onnx.checker.check_model(model)
    (expected,) = ReferenceEvaluator(model).run(None, {})
    np.testing.assert_array_equal(dequantize("int4", packed, scale), np.asarray(expected))


def test_int4_experts_are_the_experts_stacked() -> None:
    parts = [random_int4(32), random_int4(32, np.float16)]
    for packed, scale in parts:
        stacked = dequantize("int4", np.stack([packed, packed[::-1]]), np.stack([scale, scale]))
        np.testing.assert_array_equal(stacked[0], dequantize("int4", packed, scale))
        np.testing.assert_array_equal(stacked[1], dequantize("int4", packed[::-1], scale))


def test_packing_undoes_unpacking() -> None:
    every_byte = np.arange(256, dtype=np.uint8).reshape(4, 64)
    np.testing.assert_array_equal(pack_nibbles(unpack_nibbles(every_byte)), every_byte)
    assert unpack_nibbles(np.array([0x21, 0x43], np.uint8)).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "scales", "group"), [(1856, 58, 32), (1856, 29, 64), (128, 1, 128), (128, 3, None)]
)
def test_the_group_follows_from_the_shapes(columns: int, scales: int, group: int | None) -> None:
    assert int4_group(columns, scales) == group


def entry(name: str, dtype: Any, *shape: int) -> TensorEntry:
    return TensorEntry(name, np.dtype(dtype), shape, Path("model.safetensors"), 0, 0)


@pytest.mark.parametrize(
    ("scale", "second", "expected"),
    [
        (np.float32, False, "int4"),
        (np.float16, False, "int4"),
        (ml_dtypes.float8_e4m3fn, True, "nvfp4"),
    ],
)
def test_packed_bytes_mean_what_their_scales_say(scale: Any, second: bool, expected: str) -> None:
    tensors = {
        "m.weight": entry("m.weight", np.uint8, 8, 32),
        "m.weight_scale": entry("m.weight_scale", scale, 8, 2),
    }
    if second:
        tensors["m.weight_scale_2"] = entry("m.weight_scale_2", np.float32)
    assert stored_format(tensors, "m") == expected
