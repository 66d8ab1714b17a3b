"""A mixture-of-experts layer for up to eight tokens; export/plugins/moe.cu."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits
from edgekit.kernels.linear import partial_bytes
from edgekit.kernels.weights import MAX_TOKENS, TILE_COLUMNS, TILE_ROWS, Matrix, activation_bytes

ROUTE = {"WARPS": 8, "DEPTH": 2, "BLOCKS": 3}
UP = {"WARPS": 8, "SHARERS": 4, "DEPTH": 2, "BLOCKS": 3}
DOWN = {"WARPS": 4, "DEPTH": 3, "BLOCKS": 4, "SPLITS": 3}
"""WARPS of a block; tiles a warp reads ahead, DEPTH; BLOCKS of a multiprocessor for which registers
are to suffice; SHARERS, warps of a row tile; SPLITS of its columns. docs/kernels.md has the times.
"""


@dataclass(frozen=True, slots=True)
class MoeLayer:
    """One layer's experts, by config.json's names.

    Attributes:
        up, down: one expert's matrices [I, H] and [H, I].
        shared_up, shared_down: the shared expert's, None without one.
    """

    up: Matrix
    down: Matrix
    n_routed_experts: int
    num_experts_per_tok: int
    shared_up: Matrix | None = None
    shared_down: Matrix | None = None
    n_group: int = 1
    topk_group: int = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0
    epsilon: float = 1e-5

    def kernel(self, name: str, **shape: int) -> Kernel:
        shared = {}
        if self.shared_up is not None and self.shared_down is not None:
            shared = {
                "SHARED_UP_FORMAT": self.shared_up.code,
                "SHARED_UP_GROUP": self.shared_up.group,
                "SHARED_DOWN_FORMAT": self.shared_down.code,
                "SHARED_DOWN_GROUP": self.shared_down.group,
            }
        constants = defines(
            **{name.removeprefix("moe_").removesuffix("_step").upper(): 1},
            UP_FORMAT=self.up.code,
            UP_GROUP=self.up.group,
            DOWN_FORMAT=self.down.code,
            DOWN_GROUP=self.down.group,
            SHARED=int(bool(shared)),
            TOP_K=self.num_experts_per_tok,
            EXPERTS=self.n_routed_experts,
            N_GROUP=self.n_group,
            TOPK_GROUP=self.topk_group,
            NORM_TOPK=int(self.norm_topk_prob),
            SCALING_BITS=float_bits(self.routed_scaling_factor),
            **shared,
            **shape,
        )
        return Kernel("moe.cu", name, constants)


def moe_route_step(T: Size, layer: MoeLayer) -> Launch:
    """Chooses top_k experts a token (Lightning: DeepSeek-V3's rule), and computes the normalised
    hidden states and the shared expert's hidden values.

    Arguments: h [T, H] float32; norm weight [H] float32; gate [E, H] float32; correction bias [E]
    float32; with a shared expert its up matrix: codes, scales (any array where the format has
    none), scale; arrivals, a zero [at least 1] int32. Outputs: scores [T, E] float32; slots [1 + T
    top_k] int32, how many distinct experts there are and which, then -1; shares [T top_k, 8]
    float32, the tokens' weights of a slot's expert, 0 for one that is not theirs; normed [T,
    ceil64(H)] bfloat16 in tile order; with a shared expert shared_hidden [T, ceil64(Is)] bfloat16
    in tile order; arrivals, in place.
    """
    H, E, shared = layer.up.K, layer.n_routed_experts, layer.shared_up
    sizes = (T, H, *((shared.N,) if shared else ()), float_bits(layer.epsilon))
    return Launch(
        layer.kernel("moe_route_step", **ROUTE),
        grid=(E + (shared.row_tiles if shared else 0), 1, 1),
        block=ROUTE["WARPS"] * 32,
        shared=activation_bytes(T, H) + partial_bytes(ROUTE["WARPS"]),
        integers=sizes,
    )


def moe_up_step(T: Size, layer: MoeLayer) -> Launch:
    """The chosen experts' hidden values.

    Arguments: normed, slots, shares; the experts' up matrices: codes, scales (any array where the
    format has none), scale [E]. Output: hidden [T top_k, T, ceil64(I)] bfloat16 in tile order, of a
    slot only the rows of tokens that have a share.
    """
    slots = T * layer.num_experts_per_tok
    rows = UP["WARPS"] // UP["SHARERS"] * TILE_ROWS
    return Launch(
        layer.kernel("moe_up_step", **UP),
        # Whole column tiles of the hidden values are written, so the grid covers them.
        grid=(divide_up(divide_up(layer.up.N, TILE_COLUMNS) * TILE_COLUMNS, rows), slots, 1),
        block=UP["WARPS"] * 32,
        integers=(T, layer.up.K, layer.up.N),
    )


def moe_down_step(T: Size, layer: MoeLayer) -> Launch:
    """y = residual + the weighted sum of the chosen experts + the shared expert.

    Arguments: hidden, slots, shares; the experts' down matrices: codes, scales, scale [E]; with a
    shared expert: shared_hidden, its down matrix's codes, scales, scale; residual [T, H] float32;
    arrivals, zeros [at least H / 16] int32. Outputs: y [T, H] float32, which may be the residual;
    sums, see `down_sums_shape`, float32; arrivals, in place.
    """
    shared = layer.shared_down
    return Launch(
        layer.kernel("moe_down_step", **DOWN),
        grid=(layer.down.row_tiles, DOWN["SPLITS"], 1),
        block=DOWN["WARPS"] * 32,
        integers=(T, layer.down.N, layer.down.K, *((shared.K,) if shared else ())),
    )


def down_sums_shape(layer: MoeLayer) -> tuple[int, ...]:
    """What the splits of a row tile leave for the last of them."""
    return (layer.down.row_tiles, DOWN["SPLITS"], MAX_TOKENS, TILE_ROWS)
