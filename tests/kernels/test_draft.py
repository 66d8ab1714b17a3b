"""A draft's kernels against their definitions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.nodes import form
from tests.tools.plugin_reference import compute

BF16 = ml_dtypes.bfloat16


def heads_of(num_heads: int, kv_num_heads: int, head_dim: int) -> dict[str, Any]:
    return {
        "num_heads": num_heads,
        "kv_num_heads": kv_num_heads,
        "head_dim": head_dim,
        "epsilon": 1e-6,
    }


def angles(T: int, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    angle = np.random.default_rng(T).uniform(-3, 3, (T, head_dim // 2))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


@pytest.mark.parametrize("T", [1, 3, 8])
@pytest.mark.parametrize(("num_heads", "kv", "head_dim"), [(4, 1, 64), (32, 2, 128), (6, 3, 32)])
def test_norm_rope(backend: ModuleType, T: int, num_heads: int, kv: int, head_dim: int) -> None:
    rng = np.random.default_rng(0)
    attributes = heads_of(num_heads, kv, head_dim)
    made = form("norm_rope", attributes, T)
    qkv = rng.normal(size=(T, (num_heads + 2 * kv) * head_dim)).astype(BF16)
    weights = [rng.normal(size=head_dim).astype(np.float32) for _ in range(2)]
    inputs = [qkv, *weights, *angles(T, head_dim)]
    found, expected = (np.full(qkv.shape, np.nan, BF16) for _ in range(2))
    backend.run(made.launch, inputs, [found])
    compute("norm_rope", attributes, inputs, [expected])
    np.testing.assert_allclose(
        found.astype(np.float32), expected.astype(np.float32), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("T", [1, 8])
@pytest.mark.parametrize("length", [0, 13])
def test_context_rows(backend: ModuleType, T: int, length: int) -> None:
    rng = np.random.default_rng(0)
    layers, kv, head_dim, rows = 3, 2, 64, 40
    attributes = heads_of(0, kv, head_dim) | {"layers": layers, "rows": rows}
    made = form("context_rows", attributes, T)
    projected = rng.normal(size=(T, layers * 2 * kv * head_dim)).astype(BF16)
    norms = rng.normal(size=(layers, head_dim)).astype(np.float32)
    shape = (layers, kv, rows, head_dim)
    caches = [np.full(shape, 7, BF16) for _ in range(2)]
    expected = [cache.copy() for cache in caches]
    given = [projected, norms, *angles(T, head_dim), np.array([length], np.int32)]
    backend.run(made.launch, [*given, *caches], caches)
    compute("context_rows", attributes, [*given, *expected], expected)
    for one, other in zip(caches, expected, strict=True):
        np.testing.assert_allclose(
            one.astype(np.float32), other.astype(np.float32), rtol=1e-2, atol=1e-2
        )


@pytest.mark.parametrize(("T", "F"), [(1, 96), (8, 6144), (3, 257)])
def test_swiglu(backend: ModuleType, T: int, F: int) -> None:
    rng = np.random.default_rng(0)
    gate, up = (rng.normal(size=(T, F)) * 3 for _ in range(2))
    gate[0, :3] = [-80, 90, 0]
    inputs = [gate.astype(BF16), up.astype(BF16)]
    found, expected = (np.full((T, F), np.nan, BF16) for _ in range(2))
    attributes = {"intermediate_size": F}
    backend.run(form("swiglu", attributes, T).launch, inputs, [found])
    compute("swiglu", attributes, inputs, [expected])
    np.testing.assert_allclose(
        found.astype(np.float32), expected.astype(np.float32), rtol=1e-2, atol=1e-5
    )
