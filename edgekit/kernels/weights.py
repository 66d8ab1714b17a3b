"""What every kernel that reads packed weights must know of them; export/plugins/weights.cuh."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kernels.launch import Size, divide_up
from edgekit.ops.formats import WeightFormat

TILE_ROWS, TILE_COLUMNS = 16, 64
MAX_TOKENS = 8
"""Most tokens of a step kernel."""

_CODES: dict[WeightFormat, int] = {"dense": 0, "fp8": 1, "nvfp4": 2, "int4": 3}


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed matrix [N, K], or one of several experts'.

    Attributes:
        group: columns that share an int4 scale.
    """

    N: int
    K: int
    format: WeightFormat
    group: int = 64

    @property
    def has_block_scales(self) -> bool:
        return self.format in ("nvfp4", "int4")

    @property
    def column_tiles(self) -> int:
        return -(-self.K // TILE_COLUMNS)

    @property
    def row_tiles(self) -> int:
        return -(-self.N // TILE_ROWS)

    @property
    def code(self) -> int:
        """FORMAT of the kernels."""
        return _CODES[self.format]


def activation_bytes(T: Size, K: int) -> Size:
    """Shared memory of T rows of bf16 activations in gemv.cuh's order."""
    return T * (divide_up(K, TILE_COLUMNS) * TILE_COLUMNS * 2)
