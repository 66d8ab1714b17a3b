"""Packing for the CUDA kernels is inverted exactly by their decoder."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.export.plugins.pack import pack
from edgekit.kernels.launch import Kernel, Launch, defines
from edgekit.ops.formats import WeightFormat, dequantize

FORMATS: dict[WeightFormat, int] = {"dense": 0, "fp8": 1, "nvfp4": 2, "int4": 3}
DECODE = str(Path(__file__).with_name("decode.cu"))


def parts_of(form: WeightFormat, N: int, K: int, group: int, seed: int) -> list[np.ndarray]:
    """Random stored parts in which every code occurs."""
    random = np.random.default_rng(seed)
    if form == "dense":
        return [random.normal(size=(N, K)).astype(ml_dtypes.bfloat16)]
    if form == "fp8":
        codes = random.integers(0, 256, (N, K)).astype(np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0  # NaN
        return [codes.view(ml_dtypes.float8_e4m3fn), np.asarray(0.013, np.float32)]
    codes = random.integers(0, 256, (N, K // 2)).astype(np.uint8)
    if form == "nvfp4":
        scales = random.integers(0, 0x7F, (N, K // 16)).astype(np.uint8)  # subnormals included
        return [codes, scales.view(ml_dtypes.float8_e4m3fn), np.asarray(2.0**-9, np.float32)]
    return [codes, random.uniform(0.001, 0.2, (N, K // group)).astype(np.float16)]


@pytest.mark.parametrize(
    ("form", "group"),
    [("dense", 64), ("fp8", 64), ("nvfp4", 64)] + [("int4", g) for g in (32, 64, 128)],
)
@pytest.mark.parametrize(("N", "K"), [(16, 128), (40, 384), (5, 640)])
def test_decoding_inverts_packing(
    backend: ModuleType, form: WeightFormat, group: int, N: int, K: int
) -> None:
    parts = parts_of(form, N, K, group, seed=N + K)
    packed = pack(form, *parts)
    rows, columns = packed.codes.shape[:2]
    out = np.full((rows * 16, columns * 64), np.nan, np.float32)
    kernel = Kernel(DECODE, "decode", defines(FORMAT=FORMATS[form], GROUP=group))
    scales = packed.scales if packed.scales is not None else np.zeros(1, np.uint8)
    backend.run(Launch(kernel, (rows, 1, 1), 32, 0, (columns,)), [packed.codes, scales], [out])
    out *= packed.scale
    np.testing.assert_array_equal(out[:N, :K], dequantize(form, *parts))
    assert (out[N:] == 0).all()
    assert (out[:, K:] == 0).all()
