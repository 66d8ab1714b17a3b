"""Random matrices in every format, as stored, as packed and as values."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from edgekit.export.plugins.pack import Packed, pack
from edgekit.kernels.weights import Matrix
from edgekit.ops.formats import WeightFormat, dequantize

FORMATS: list[tuple[WeightFormat, int]] = [
    ("dense", 64),
    ("fp8", 64),
    ("nvfp4", 64),
    ("int4", 32),
    ("int4", 64),
    ("int4", 128),
]
"""Each format, int4 with each group."""


@dataclass(frozen=True)
class RandomMatrix:
    """One matrix: `values` is float64."""

    matrix: Matrix
    packed: Packed
    values: np.ndarray

    @property
    def arguments(self) -> list[np.ndarray]:
        """What a kernel takes: codes, scales where there are some, scale."""
        scales = [] if self.packed.scales is None else [self.packed.scales]
        return [self.packed.codes, *scales, self.packed.scale]


def stored_parts(
    random: np.random.Generator, form: WeightFormat, N: int, K: int, group: int = 64
) -> list[np.ndarray]:
    """Parts as a checkpoint stores them; about unit variance over sqrt(K)."""
    size = K**-0.5
    if form == "dense":
        return [(random.normal(size=(N, K)) * size).astype(ml_dtypes.bfloat16)]
    if form == "fp8":
        codes = random.integers(0, 256, (N, K)).astype(np.uint8)
        codes[(codes & 0x7F) > 0x60] -= 0x20  # no NaN, few of the largest
        return [codes.view(ml_dtypes.float8_e4m3fn), np.asarray(size / 8, np.float32)]
    codes = random.integers(0, 256, (N, K // 2)).astype(np.uint8)
    if form == "nvfp4":
        scales = random.integers(0, 0x50, (N, K // 16)).astype(np.uint8)  # subnormals included
        return [codes, scales.view(ml_dtypes.float8_e4m3fn), np.asarray(size / 8, np.float32)]
    return [codes, (random.uniform(0.1, 1, (N, K // group)) * size / 4).astype(np.float16)]


def random_matrix(
    random: np.random.Generator, form: WeightFormat, N: int, K: int, group: int = 64
) -> RandomMatrix:
    parts = stored_parts(random, form, N, K, group)
    values = dequantize(form, *parts).astype(np.float64)
    return RandomMatrix(Matrix(N, K, form, group), pack(form, *parts), values)
