"""Weights of an `ort` graph: canonical ones in the order ONNX Runtime's CPU operators read them.

    MatMul        float32 [K, N], any format dequantized exactly
    MatMulNBits   codes uint8 [N, K/group, group/2], scales float32 [N K/group]
    MoE           up float32 [E, 2 I, H], down float32 [E, H, I]
    QMoE          the same of int4 codes, two a byte as stored, and scales float32 [E, ..., K/group]

ONNX Runtime puts column 2k in the low nibble and takes 8 for zero, as edgekit does, so int4 codes
are cut into blocks and never changed. Experts are stacked already; each row of `up` is written
twice, gate and value of the SwiGLU that stands for squared ReLU (`ort.py`), and `down` takes the
router's scaling factor, into its scales where it is int4. Nothing is padded: the operators take
any width that a group divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.export.graph.tensors import Weight, as_bytes, computed
from edgekit.ops.formats import PACKED, WeightFormat, dequantize

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Experts:
    """What MoE or QMoE takes of the routed experts.

    Attributes:
        up, down: the operator's inputs of each matrix: weight, or codes and scales.
        group: columns that share an int4 scale; 0 for MoE.
    """

    up: tuple[Weight, ...]
    down: tuple[Weight, ...]
    group: int = 0


def matmul(parts: Sequence[Weight], form: WeightFormat) -> Weight:
    """A matrix as MatMul's second operand."""
    N, K = parts[0].dims
    shape = (K * 2 if form in PACKED else K, N)
    name = f"{parts[0].name}.T"
    return computed(name, F32, shape, lambda: dequantize(form, *(p.numpy() for p in parts)).T)


def matmul_nbits(parts: Sequence[Weight]) -> tuple[Weight, Weight]:
    """An int4 matrix as MatMulNBits' codes and scales."""
    weight, scale = parts
    N, blocks = scale.dims
    shape, flat = (N, blocks, weight.dims[1] // blocks), (N * blocks,)
    codes = computed(f"{weight.name}.blocks", U8, shape, lambda: weight.numpy().reshape(shape))
    return codes, computed(f"{scale.name}.f32", F32, flat, lambda: scale.numpy().reshape(flat))


def experts(
    up: Sequence[Weight],
    up_format: WeightFormat,
    down: Sequence[Weight],
    down_format: WeightFormat,
    factor: float,
) -> Experts:
    """Stacked experts: for QMoE where both are int4 of one group, which it needs, else for MoE."""
    scaling = np.float32(factor)
    if up_format == down_format == "int4" and int4_group(up) == int4_group(down):
        return Experts(
            (_per_expert(up[:1], _twice), _per_expert(up[1:], lambda s: _twice(s.astype(F32)))),
            (
                _per_expert(down[:1], lambda codes: codes),
                _per_expert(down[1:], lambda s: s.astype(F32) * scaling),
            ),
            int4_group(up),
        )
    return Experts(
        (_per_expert(up, lambda *parts: _twice(dequantize(up_format, *parts))),),
        (_per_expert(down, lambda *parts: dequantize(down_format, *parts) * scaling),),
    )


def int4_group(parts: Sequence[Weight]) -> int:
    """Columns that share a scale."""
    weight, scale = parts
    return weight.dims[-1] * 2 // scale.dims[-1]


def _per_expert(parts: Sequence[Weight], transform: Callable[..., Array]) -> Weight:
    """A weight [E, ...] computed from stacked parts, one expert at a time."""
    E = parts[0].dims[0]
    example = transform(*(np.zeros(part.dims[1:], part.numpy_dtype) for part in parts))

    def chunks() -> Iterator[memoryview]:
        arrays = [part.numpy() for part in parts]
        for e in range(E):
            yield as_bytes(transform(*(array[e] for array in arrays)))

    return Weight(f"{parts[0].name}.ort", example.dtype, (E, *example.shape), chunks)


def _twice(matrix: Array) -> Array:
    """Each row [N, ...] followed by itself: [2 N, ...]."""
    return np.repeat(matrix, 2, axis=0)
