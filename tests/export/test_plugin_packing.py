"""Packing while writing: in pieces, expert by expert, and several matrices as one."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from edgekit.export.graph.tensors import Weight, as_bytes
from edgekit.export.lower import packing
from edgekit.export.lower.packing import Source, converted, pack_source, stack_rows
from edgekit.export.plugins.pack import pack
from edgekit.ops.formats import WeightFormat, dequantize
from tests.kernels.weights import FORMATS, stored_parts
from tests.tools.plugin_reference import unpack


def weight(name: str, array: np.ndarray) -> Weight:
    """A weight whose bytes come in odd portions."""

    def chunks() -> Iterator[memoryview]:
        data = as_bytes(array)
        for start in range(0, len(data), 1000):
            yield data[start : start + 1000]

    return Weight(name, array.dtype, array.shape, chunks)


def source(form: WeightFormat, parts: list[np.ndarray]) -> Source:
    return Source(form, tuple(weight(f"m.{i}", part) for i, part in enumerate(parts)))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "BLOCK_BYTES", 1 << 12)


@pytest.mark.parametrize(("form", "group"), FORMATS)
def test_a_matrix_in_pieces(form: WeightFormat, group: int) -> None:
    parts = stored_parts(np.random.default_rng(0), form, 72, 384, group)
    expected, packed = pack(form, *parts), pack_source("m", source(form, parts))
    assert packed.matrix.group == group
    np.testing.assert_array_equal(packed.codes.numpy(), expected.codes)
    np.testing.assert_array_equal(packed.scale.numpy(), expected.scale.reshape(1))
    assert (packed.scales is None) == (expected.scales is None)
    scales = None
    if packed.scales is not None:
        assert expected.scales is not None
        scales = packed.scales.numpy()
        assert scales.tobytes() == expected.scales.tobytes()
    values = unpack(packed.matrix, packed.codes.numpy(), scales, packed.scale.numpy())
    np.testing.assert_allclose(values, dequantize(form, *parts), rtol=3e-7)


@pytest.mark.parametrize(("form", "group"), FORMATS)
def test_experts_are_padded_one_by_one(form: WeightFormat, group: int) -> None:
    random = np.random.default_rng(1)
    each = [stored_parts(random, form, 40, 384, group) for _ in range(3)]
    stacked = [np.stack(parts) for parts in zip(*each, strict=True)]
    packed = pack_source("m", source(form, stacked))
    assert packed.scale.shape == (3,)
    for e, parts in enumerate(each):
        expected = pack(form, *parts)
        np.testing.assert_array_equal(packed.codes.numpy()[e], expected.codes)
        assert packed.scale.numpy()[e] == expected.scale
        if packed.scales is not None:
            assert expected.scales is not None
            assert packed.scales.numpy()[e].tobytes() == expected.scales.tobytes()


def test_float32_int4_scales_are_relative_to_each_expert() -> None:
    form: WeightFormat = "int4"
    parts = stored_parts(np.random.default_rng(2), form, 32, 128, 64)
    codes = np.stack([parts[0], parts[0]])
    scales = np.stack([parts[1].astype(np.float32), parts[1].astype(np.float32) * 2**-20])
    packed = pack_source("m", source(form, [codes, scales]))
    one, other = packed.scale.numpy()
    assert one == other * 2**20
    assert packed.scales is not None
    np.testing.assert_array_equal(*packed.scales.numpy())


@pytest.mark.parametrize("form", ["dense", "fp8", "nvfp4", "int4"])
def test_stacked_rows(form: WeightFormat) -> None:
    """Matrices that share a scale keep their format; others become bfloat16."""
    random = np.random.default_rng(3)
    first, second = (stored_parts(random, form, N, 128) for N in (48, 24))
    values = np.concatenate([dequantize(form, *parts) for parts in (first, second)])
    stacked = stack_rows("qkv", [source(form, first), source(form, second)])
    assert stacked.format == form
    kept = dequantize(form, *(part.numpy() for part in stacked.parts))
    np.testing.assert_array_equal(kept, values)
    assert stacked.matrix.N == 72

    if form in ("fp8", "nvfp4"):
        second[-1] = second[-1] * np.float32(1.5)
        values = np.concatenate([dequantize(form, *parts) for parts in (first, second)])
        stacked = stack_rows("qkv", [source(form, first), source(form, second)])
        assert stacked.format == "dense"
        rounded = values.astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(stacked.parts[0].numpy(), rounded)


def test_conversion_of_odd_portions() -> None:
    array = np.random.default_rng(4).normal(size=(50, 30)).astype(np.float32)
    narrow = converted(weight("w", array), np.dtype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(narrow.numpy(), array.astype(ml_dtypes.bfloat16))
