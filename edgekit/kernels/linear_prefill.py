"""Linear for a prompt's tokens; export/plugins/gemm.cu."""

from __future__ import annotations

from typing import Literal

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits
from edgekit.kernels.linear import Activation
from edgekit.kernels.weights import TILE_COLUMNS, TILE_ROWS, Matrix

GEMM_TOKENS, STAGES, WARP_ROWS = 64, 4, 2 * TILE_ROWS
"""Tokens of a block, its stages of activations in shared memory, the rows of a warp."""

NORM_WARPS = 8

Order = Literal["float32", "bfloat16", "tiles"]
"""How a product is written: `tiles` is bfloat16 in tile order, its columns whole column tiles."""

_ORDERS: dict[Order, int] = {"float32": 0, "bfloat16": 1, "tiles": 2}


def norm_prefill(
    T: Size, K: int, *, input: Activation, norm_groups: int = 0, epsilon: float = 0.0
) -> Launch:
    """RMS norm of x in `norm_groups` groups, or x as it is for 0, as `linear_prefill` takes it.

    Arguments: x [T, K]; norm weight [K] float32, when `norm_groups`. Output: [T, ceil64(K)]
    bfloat16 in tile order.
    """
    kernel = Kernel(
        "gemm.cu",
        "norm_prefill",
        defines(NORM_ROWS=1, INPUT_BF16=int(input == "bfloat16"), NORM=min(norm_groups, 2)),
    )
    integers: tuple[Size, ...] = (K,)
    if norm_groups > 1:
        integers += (norm_groups,)
    if norm_groups:
        integers += (float_bits(epsilon),)
    return Launch(kernel, grid=(T, 1, 1), block=NORM_WARPS * 32, integers=integers)


def linear_prefill(
    T: Size, matrix: Matrix, *, output: Order, relu2: bool = False, residual: bool = False
) -> Launch:
    """y = relu2(x W^T) + residual for any number of tokens.

    Arguments: x [T, ceil64(K)] bfloat16 in tile order; codes; scales, for nvfp4 and int4; scale []
    float32; residual [T, N] float32, when `residual`. Output: y [T, N], which may be the residual.
    """
    warps = gemm_warps(matrix)
    kernel = Kernel(
        "gemm.cu",
        "linear_prefill",
        defines(
            LINEAR=1,
            FORMAT=matrix.code,
            GROUP=matrix.group,
            WARPS=warps,
            RELU2=int(relu2),
            RESIDUAL=int(residual),
            OUTPUT=_ORDERS[output],
        ),
    )
    columns = divide_up(matrix.N, TILE_COLUMNS) * TILE_COLUMNS if output == "tiles" else matrix.N
    return Launch(
        kernel,
        grid=(divide_up(T, GEMM_TOKENS), divide_up(columns, warps * WARP_ROWS), 1),
        block=warps * 32,
        shared=gemm_shared(warps),
        integers=(T, matrix.N, matrix.K),
    )


def gemm_warps(matrix: Matrix) -> int:
    """Warps of a block: a narrow matrix is cut finer, to reach every multiprocessor."""
    return 8 if matrix.N >= 4096 else 4


def gemm_shared(warps: int) -> int:
    """Shared memory: the stages, and after them the block's output as bfloat16."""
    return GEMM_TOKENS * 2 * max(STAGES * TILE_COLUMNS, warps * WARP_ROWS)
