"""What a draft's Qwen3 layers have and NemotronH's have not: normed, rotated heads, and SwiGLU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import F32
from edgekit.ops.mamba2 import silu
from edgekit.ops.rms_norm import rms_norm


def norm_rope(x: F32, weight: npt.NDArray[Any], cos: F32, sin: F32, *, epsilon: float) -> F32:
    """Normalises each head and rotates it (Su et al. 2021, arXiv:2104.09864; by halves).

    Args:
        x: [T, heads x head_dim]. weight: [head_dim]. cos, sin: [T, head_dim / 2].

    Returns:
        [T, heads x head_dim]: a cos - b sin and b cos + a sin of each head's halves a, b.
    """
    T, head_dim = x.shape[0], weight.shape[0]
    normed = rms_norm(x.reshape(T, -1, head_dim), weight, epsilon=epsilon)
    a, b = np.split(normed, 2, axis=-1)
    c, s = cos[:, None], sin[:, None]
    y: F32 = np.concatenate([a * c - b * s, b * c + a * s], axis=-1)
    return y.reshape(x.shape).astype(np.float32)


def swiglu(gate: F32, up: F32) -> F32:
    """silu(gate) x up (Shazeer 2020, arXiv:2002.05202)."""
    y: F32 = silu(gate) * up
    return y
