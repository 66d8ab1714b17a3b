"""Linear for up to eight tokens; export/plugins/linear.cu."""

from __future__ import annotations

from typing import Literal

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits
from edgekit.kernels.weights import MAX_TOKENS, TILE_ROWS, Matrix, activation_bytes

Activation = Literal["float32", "bfloat16"]

DEPTH = {"dense": 2, "fp8": 2, "nvfp4": 3, "int4": 3}
"""Tiles a warp reads ahead."""

RESIDENT = 768
"""Threads of a multiprocessor, for which registers are to suffice."""


def linear_step(
    T: Size,
    matrix: Matrix,
    *,
    input: Activation,
    output: Activation,
    norm_groups: int = 0,
    epsilon: float = 0.0,
    relu2: bool = False,
    residual: bool = False,
) -> Launch:
    """y = relu2(norm(x) W^T) + residual for T = 1..8 tokens.

    Arguments: x [T, K]; norm weight [K] float32, when `norm_groups`; codes; scales, for nvfp4 and
    int4; scale [] float32; residual [T, N] float32, when `residual`. Output: y [T, N], which may be
    the residual.

    Args:
        norm_groups: RMS norm of x in so many groups; 0 for none.
    """
    warps, sharers = _shape(matrix)
    kernel = Kernel(
        "linear.cu",
        "linear_step",
        defines(
            FORMAT=matrix.code,
            GROUP=matrix.group,
            INPUT_BF16=int(input == "bfloat16"),
            OUTPUT_BF16=int(output == "bfloat16"),
            NORM=min(norm_groups, 2),
            RELU2=int(relu2),
            RESIDUAL=int(residual),
            WARPS=warps,
            SHARERS=sharers,
            DEPTH=DEPTH[matrix.format],
            BLOCKS=RESIDENT // (32 * warps),
        ),
    )
    integers: tuple[Size, ...] = (T, matrix.N, matrix.K)
    if norm_groups > 1:
        integers += (norm_groups,)
    if norm_groups:
        integers += (float_bits(epsilon),)
    return Launch(
        kernel,
        grid=(divide_up(matrix.row_tiles, warps // sharers), 1, 1),
        block=warps * 32,
        shared=activation_bytes(T, matrix.K) + partial_bytes(warps),
        integers=integers,
    )


def partial_bytes(warps: int) -> int:
    """Shared memory where the warps' sums meet, and their sums of squares."""
    return 4 * (warps * TILE_ROWS * MAX_TOKENS + warps * MAX_TOKENS)


def _shape(matrix: Matrix) -> tuple[int, int]:
    """Warps a block, and warps that share a row tile (docs/kernels.md, "Measured").

    A small matrix is cut finely, so that all of it is on its way at once; of a large one a block
    takes several row tiles, to prepare its input once.
    """
    if matrix.row_tiles < 256:
        return 8, 8
    if matrix.row_tiles < 512:
        return 4, 4
    return (8, 4) if matrix.row_tiles < 2048 else (8, 2)
