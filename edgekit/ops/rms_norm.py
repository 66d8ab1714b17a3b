"""RmsNorm: x / sqrt(mean(x^2) + epsilon) x weight (Zhang and Sennrich 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import F32


def rms_norm(x: F32, weight: npt.NDArray[Any], *, epsilon: float) -> F32:
    """Normalises the last axis of x [..., H] and scales it by weight [H]."""
    scale = 1.0 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(epsilon))
    y: F32 = (x * scale * weight.astype(np.float32)).astype(np.float32)
    return y
