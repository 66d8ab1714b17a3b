"""Round-to-nearest weight quantization in NumPy, equal to NVIDIA ModelOpt 0.47's bits on a CPU.

A tensor is quantized in pieces of whole rows: first its largest magnitude, then the codes, so that
a matrix of any size needs the memory of one piece. Nothing here looks at activations.

    nvfp4      scale_2 = amax / (6 x 448); a block of 16 has scale e4m3(max|b| / (6 scale_2))
    nvfp4_4o6  scale_2 = amax / (6 x 256); a block's largest value becomes 6 or, with a scale
               1.5 times as large, 4: whichever has the smaller squared error ("four over six",
               arXiv:2512.02010; ModelOpt's `mse` algorithm with multipliers 1.0 and 1.5)
    fp8        scale = amax / 448, for the whole tensor
    int4       scale = max|g| / 7 for a group of 32, 64 or 128; codes -8..7

Where ModelOpt gives NaN, this does not: an all-zero tensor has the scales of one whose largest
value is the format's own (6 or 448). NaN and infinity are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.errors import CheckpointError
from edgekit.ops.formats import (
    E2M1_VALUES,
    F32,
    FLOAT8_E4M3,
    INT4_ZERO,
    NVFP4_BLOCK,
    pack_nibbles,
)

Array = npt.NDArray[Any]

E2M1_MAX = np.float32(6)
E4M3_MAX = np.float32(448)
E4M3_MAX_4O6 = np.float32(256)
"""What the largest block scale becomes in four-over-six: 1.5 times it is still below 448."""

_E4M3_TINY = np.float32(2**-9)
_INT4_MAX = np.float32(7)
_NO_AMAX = np.float32(2**-24)  # ModelOpt takes a smaller amax for zero when it simulates
_HALFWAY = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], dtype=np.float32)
_MULTIPLIERS = (np.float32(1), np.float32(1.5))


def absolute_max(rows: Array, name: str = "weight") -> np.float32:
    """The largest magnitude.

    Raises:
        CheckpointError: a value is NaN or infinite.
    """
    if not rows.size:
        return np.float32(0)
    with np.errstate(invalid="ignore"):
        largest = np.float32(np.max(np.abs(rows)))
    if not np.isfinite(largest):
        raise CheckpointError(
            f"tensor {name!r} holds NaN or infinity",
            cause="no scale represents it, and the model that has it gives NaN",
            hint="the checkpoint is damaged: download it again",
        )
    return largest


def quantize_nvfp4(
    rows: Array, amax: np.float32, *, four_over_six: bool = False
) -> tuple[npt.NDArray[np.uint8], Array, np.float32]:
    """Blocks of 16 along K.

    Args:
        rows: [N, K], K a multiple of 16, float32, float16 or bfloat16.
        amax: the largest magnitude of the whole tensor these rows are of.

    Returns:
        packed codes uint8 [N, K/2], block scales float8_e4m3fn [N, K/16], scale_2.
    """
    blocks = rows.astype(np.float32).reshape(rows.shape[0], -1, NVFP4_BLOCK)
    amax = amax if amax > 0 else E2M1_MAX
    block_amax = np.max(np.abs(blocks), axis=-1)
    scale_2 = amax / (E2M1_MAX * (E4M3_MAX_4O6 if four_over_six else E4M3_MAX))
    if scale_2 == 0:
        raise _too_small(amax)
    if four_over_six:
        largest = _closer_amax(blocks, block_amax, amax) / E2M1_MAX
        largest[largest == 0] = 1
        scale = largest * E4M3_MAX_4O6 / (amax / E2M1_MAX)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = block_amax / (E2M1_MAX * scale_2)
        scale[scale == 0] = 1
    scale_e4m3 = np.clip(scale, _E4M3_TINY, E4M3_MAX).astype(FLOAT8_E4M3)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        blocks /= (scale_e4m3.astype(np.float32) * scale_2)[..., None]
    codes = _nearest_e2m1(blocks)
    codes |= (blocks < 0).astype(np.uint8) << 3
    return pack_nibbles(codes.reshape(rows.shape)), scale_e4m3, scale_2


def _nearest_e2m1(scaled: F32) -> npt.NDArray[np.uint8]:
    """Codes 0..7 of the nearest magnitudes; halfway goes to the even code."""
    magnitude = np.abs(scaled)
    codes = np.zeros(scaled.shape, dtype=np.uint8)
    for i, halfway in enumerate(_HALFWAY):
        codes += magnitude >= halfway if i % 2 else magnitude > halfway
    return codes


def _closer_amax(blocks: F32, block_amax: F32, amax: np.float32) -> F32:
    """Each block's maximum, or 1.5 times that where a largest value of 4 is closer than 6."""
    best = block_amax.copy()  # where both errors overflow, as ModelOpt
    least = np.full_like(block_amax, np.inf)
    top = amax * (E4M3_MAX / E4M3_MAX_4O6) / E2M1_MAX  # what e4m3's 448 stands for
    for multiplier in _MULTIPLIERS:
        candidate = block_amax * multiplier
        scale = simulate_fp8(candidate / E2M1_MAX, top)
        divisor = scale.copy()
        divisor[scale == 0] = 1
        with np.errstate(over="ignore"):
            scaled = np.divide(np.abs(blocks), divisor[..., None], dtype=np.float32)
            values = E2M1_VALUES[_nearest_e2m1(scaled)] * scale[..., None]
            error = _sum16(np.square(np.abs(blocks) - values))
        closer = error < least
        least[closer] = error[closer]
        best[closer] = candidate[closer]
    return best


def _sum16(values: F32) -> F32:
    """Sums [..., 16] in the order torch does on a CPU: equal errors must stay equal."""
    pairs = values[..., :8] + values[..., 8:]
    total: F32 = pairs[..., 0].copy()
    for lane in range(1, 8):
        total += pairs[..., lane]
    return total


def simulate_fp8(values: F32, amax: np.float32) -> F32:
    """Values rounded to e4m3 where `amax` becomes 448, as ModelOpt's calibration sees them."""
    # torch divides a number by a tensor as its reciprocal times the number: two roundings
    scale = np.float32(1) / (amax if amax > _NO_AMAX else np.float32(1)) * E4M3_MAX
    with np.errstate(over="ignore"):
        scaled = np.clip(values * scale, -E4M3_MAX, E4M3_MAX)
    simulated: F32 = scaled.astype(FLOAT8_E4M3).astype(np.float32) * (np.float32(1) / scale)
    return simulated


def quantize_fp8(rows: Array, amax: np.float32) -> tuple[Array, np.float32]:
    """One scale for the whole tensor.

    A bfloat16 or float16 weight is divided in its own precision, as torch does on a CPU, so its
    values are rounded twice.

    Args:
        rows: [N, K]. amax: what becomes 448.

    Returns:
        codes float8_e4m3fn [N, K], scale.
    """
    scale = (amax if amax > 0 else E4M3_MAX) / E4M3_MAX
    if scale == 0:
        raise _too_small(amax)
    scaled = (rows.astype(np.float32) / scale).astype(rows.dtype)
    limit = scaled.dtype.type(E4M3_MAX)
    return np.clip(scaled, -limit, limit).astype(FLOAT8_E4M3), scale


def fp8_errors(rows: Array, amax: np.float32) -> npt.NDArray[np.float64]:
    """Squared errors of the two candidates of `fp8_amax`, to be summed over a tensor's pieces."""
    values = rows.astype(np.float32)
    with np.errstate(over="ignore"):  # where both errors overflow the first is kept
        errors = [
            np.sum(np.square(values - simulate_fp8(values, amax * m)), dtype=np.float64)
            for m in _MULTIPLIERS
        ]
    return np.array(errors)


def fp8_amax(amax: np.float32, errors: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> np.float32:
    """The amax that ModelOpt's `mse` with multipliers 1.0 and 1.5 keeps, in the weight's dtype."""
    chosen = amax * _MULTIPLIERS[int(np.argmin(errors))]
    return np.float32(np.asarray(chosen).astype(dtype))


def quantize_int4(rows: Array, group: int) -> tuple[npt.NDArray[np.uint8], F32]:
    """Groups along K with a scale each, no zero point.

    Args:
        rows: [N, K], K a multiple of `group`.

    Returns:
        packed codes + 8 uint8 [N, K/2], scales float32 [N, K/group].
    """
    groups = rows.astype(np.float32).reshape(rows.shape[0], -1, group)
    amax = np.max(np.abs(groups), axis=-1)
    amax[amax == 0] = _INT4_MAX
    scale = np.maximum(amax, np.finfo(np.float32).tiny) / _INT4_MAX
    groups /= scale[..., None]
    codes = np.clip(np.rint(groups), -_INT4_MAX - 1, _INT4_MAX) + np.float32(INT4_ZERO)
    return pack_nibbles(codes.astype(np.uint8).reshape(rows.shape)), scale


def _too_small(amax: np.float32) -> CheckpointError:
    return CheckpointError(
        f"a weight whose largest value is {amax:g} has no scale in float32",
        hint="leave this module out of the recipe's quantize.yaml",
    )
