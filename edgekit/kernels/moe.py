"""A mixture-of-experts layer for up to eight tokens; export/plugins/moe.cu."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits
from edgekit.kernels.linear import partial_bytes
from edgekit.kernels.weights import Matrix, activation_bytes

ROUTE_WARPS, UP_WARPS, UP_SHARERS, DOWN_WARPS = 8, 8, 4, 16


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

    def kernel(self, name: str) -> Kernel:
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
        )
        return Kernel("moe.cu", name, constants)


def moe_route_step(T: Size, layer: MoeLayer) -> Launch:
    """Scores of all experts, the normalised hidden states, and the shared expert's hidden values.

    Arguments: h [T, H] float32; norm weight [H] float32; gate [E, H] float32; with a shared
    expert its up matrix: codes, scales (any array where the format has none), scale. Outputs:
    scores [T, E] float32; normed [T, ceil64(H)] bfloat16 in tile order; with a shared expert
    shared_hidden [T, ceil64(Is)] bfloat16 in tile order.
    """
    H, E, shared = layer.up.K, layer.n_routed_experts, layer.shared_up
    sizes = (T, H, E, *((shared.N,) if shared else ()), float_bits(layer.epsilon))
    return Launch(
        layer.kernel("moe_route_step"),
        grid=(E + (shared.row_tiles if shared else 0), 1, 1),
        block=ROUTE_WARPS * 32,
        shared=activation_bytes(T, H) + partial_bytes(ROUTE_WARPS),
        integers=sizes,
    )


def moe_up_step(T: Size, layer: MoeLayer) -> Launch:
    """Chooses top_k experts a token (Lightning: DeepSeek-V3's rule) and computes their hidden
    values.

    Arguments: scores, correction bias [E] float32, normed; the experts' up matrices: codes, scales
    (any array where the format has none), scale [E]. Outputs: experts [T, top_k] int32, weights
    [T, top_k] float32, hidden [T, top_k, ceil64(I)] bfloat16 in tile order.
    """
    slots = T * layer.num_experts_per_tok
    return Launch(
        layer.kernel("moe_up_step"),
        # Whole column tiles of the hidden values are written, so the grid covers them.
        grid=(divide_up(divide_up(layer.up.N, 64) * 64, UP_WARPS // UP_SHARERS * 16), slots, 1),
        block=UP_WARPS * 32,
        integers=(T, layer.up.K, layer.up.N),
    )


def moe_down_step(T: Size, layer: MoeLayer) -> Launch:
    """y = residual + the weighted sum of the chosen experts + the shared expert.

    Arguments: hidden, experts, weights; the experts' down matrices: codes, scales, scale [E];
    with a shared expert: shared_hidden, its down matrix's codes, scales, scale; residual [T, H]
    float32. Output: y [T, H] float32, which may be the residual.
    """
    shared = layer.shared_down
    return Launch(
        layer.kernel("moe_down_step"),
        grid=(layer.down.row_tiles, 1, 1),
        block=DOWN_WARPS * 32,
        integers=(T, layer.down.N, layer.down.K, *((shared.K,) if shared else ())),
    )
