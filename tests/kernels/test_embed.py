"""The embedding's rows, exactly."""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from edgekit.kernels.embed import embed


@pytest.mark.parametrize("H", [64, 300])
def test_rows(backend: ModuleType, H: int) -> None:
    table = np.random.default_rng(0).normal(size=(10, H)).astype(ml_dtypes.bfloat16)
    tokens = np.array([3, 9, 0, 3], np.int32)
    out = np.full((4, H), np.nan, np.float32)
    backend.run(embed(4, H), [tokens, table], [out])
    np.testing.assert_array_equal(out, table[tokens].astype(np.float32))
