"""Linear: y = x W^T."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import F32, WeightFormat, dequantize


def linear(x: F32, *weight: npt.NDArray[Any], format: WeightFormat = "dense") -> F32:
    """Multiplies by a matrix in any weight format.

    Args:
        x: [T, K].
        weight: the format's parts, [N, K] in all.

    Returns:
        [T, N].
    """
    y: F32 = x @ dequantize(format, *weight).T
    return y.astype(np.float32)
