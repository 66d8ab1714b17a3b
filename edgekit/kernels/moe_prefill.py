"""A mixture-of-experts layer for a prompt's tokens; export/plugins/moe_prefill.cu."""

from __future__ import annotations

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits
from edgekit.kernels.linear_prefill import GEMM_TOKENS, WARP_ROWS, gemm_shared, gemm_warps
from edgekit.kernels.moe import MoeLayer
from edgekit.kernels.weights import TILE_COLUMNS, Matrix

ROUTE_TOKENS, ROUTE_EXPERTS, ROUTE_COLUMNS = 16, 128, 32
"""Tokens of a block of the router; experts and columns that it takes at once."""


def tile_count(T: Size, layer: MoeLayer) -> Size:
    """Tiles of pairs of a token and an expert: at most one an expert is not full."""
    return divide_up(T * layer.num_experts_per_tok, GEMM_TOKENS) + layer.n_routed_experts


def moe_route_prefill(T: Size, layer: MoeLayer) -> Launch:
    """The experts of each token and their weights (Lightning: DeepSeek-V3's rule).

    Arguments: h [T, H] float32; norm weight [H] float32; gate [E, H] float32; correction bias [E]
    float32. Outputs: experts [T, top_k] int32; weights [T, top_k] float32.
    """
    constants = defines(
        ROUTE=1,
        TOP_K=layer.num_experts_per_tok,
        EXPERTS=layer.n_routed_experts,
        N_GROUP=layer.n_group,
        TOPK_GROUP=layer.topk_group,
        NORM_TOPK=int(layer.norm_topk_prob),
        SCALING_BITS=float_bits(layer.routed_scaling_factor),
    )
    return Launch(
        Kernel("moe_prefill.cu", "moe_route_prefill", constants),
        grid=(divide_up(T, ROUTE_TOKENS), 1, 1),
        block=256,
        shared=2 * ROUTE_EXPERTS * (ROUTE_COLUMNS + 4) * 4,
        integers=(T, layer.up.K, float_bits(layer.epsilon)),
    )


def moe_sort_prefill(T: Size, layer: MoeLayer) -> Launch:
    """Sorts the pairs of a token and an expert, number t top_k + k, into tiles of one expert.

    Arguments: experts [T, top_k] int32. Outputs: order [tiles, 64] int32, the pairs or -1;
    tile_expert [tiles] int32, -1 for a tile that is empty and not written.
    """
    return Launch(
        _kernel("moe_sort_prefill", layer),
        grid=(layer.n_routed_experts, 1, 1),
        block=256,
        integers=(T,),
    )


def moe_up_prefill(T: Size, layer: MoeLayer) -> Launch:
    """The pairs' hidden values relu(up x)^2.

    Arguments: normed [T, ceil64(H)] bfloat16 in tile order; order; tile_expert; the experts' up
    matrices: codes, scales (any array where the format has none), scale [E]. Output: hidden
    [64 tiles, ceil64(I)] bfloat16 in tile order.
    """
    columns = divide_up(layer.up.N, TILE_COLUMNS) * TILE_COLUMNS
    return _product("moe_up_prefill", T, layer, layer.up, columns)


def moe_down_prefill(T: Size, layer: MoeLayer) -> Launch:
    """Each pair's weighted part of the output.

    Arguments: hidden; order; tile_expert; weights [T, top_k] float32; the experts' down matrices:
    codes, scales, scale. Output: parts [T, top_k, H] bfloat16.
    """
    return _product("moe_down_prefill", T, layer, layer.down, layer.down.N)


def moe_sum_prefill(T: Size, layer: MoeLayer) -> Launch:
    """y = residual + a token's parts.

    Arguments: parts; residual [T, H] float32. Output: y [T, H] float32, which may be the residual.
    """
    kernel = _kernel("moe_sum_prefill", layer)
    return Launch(kernel, grid=(T, 1, 1), block=256, integers=(layer.down.N,))


def _product(name: str, T: Size, layer: MoeLayer, matrix: Matrix, columns: int) -> Launch:
    warps = gemm_warps(matrix)
    return Launch(
        _kernel(name, layer, FORMAT=matrix.code, GROUP=matrix.group, WARPS=warps),
        grid=(divide_up(columns, warps * WARP_ROWS), tile_count(T, layer), 1),
        block=warps * 32,
        shared=gemm_shared(warps),
        integers=(layer.up.K, layer.up.N),
    )


def _kernel(name: str, layer: MoeLayer, **more: int) -> Kernel:
    part = name.removeprefix("moe_").removesuffix("_prefill").upper()
    sizes = {"TOP_K": layer.num_experts_per_tok, "EXPERTS": layer.n_routed_experts}
    return Kernel("moe_prefill.cu", name, defines(**{part: 1}, **sizes, **more))
