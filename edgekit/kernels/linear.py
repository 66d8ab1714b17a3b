"""Linear for up to eight tokens; export/plugins/linear.cu."""

from __future__ import annotations

from typing import Literal

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits
from edgekit.kernels.weights import MAX_TOKENS, TILE_ROWS, Matrix, activation_bytes

Activation = Literal["float32", "bfloat16"]

WARPS = 8
DEPTH = {"dense": 1, "fp8": 2, "nvfp4": 3, "int4": 3}
"""Tiles a warp reads ahead: about the same bytes in flight for each format."""


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
    row_tiles = 2 if matrix.N >= 4096 else 1
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
            ROW_TILES=row_tiles,
            WARPS=WARPS,
            DEPTH=DEPTH[matrix.format],
        ),
    )
    integers: tuple[Size, ...] = (T, matrix.N, matrix.K)
    if norm_groups > 1:
        integers += (norm_groups,)
    if norm_groups:
        integers += (float_bits(epsilon),)
    return Launch(
        kernel,
        grid=(divide_up(matrix.row_tiles, row_tiles), 1, 1),
        block=WARPS * 32,
        shared=activation_bytes(T, matrix.K) + partial_bytes(row_tiles),
        integers=integers,
    )


def partial_bytes(row_tiles: int, warps: int = WARPS) -> int:
    """Shared memory where the warps' sums meet, and each token's norm."""
    return 4 * (warps * row_tiles * TILE_ROWS * MAX_TOKENS + MAX_TOKENS)
