"""The nodes of a `plugin` graph: what each launches and returns, from its attributes and T.

A node is one launch. Its inputs are the kernel's, in their order, its outputs too; its attributes
are what the launch function takes. Whatever runs such a graph, the torch executor or a TensorRT
plugin, asks here.

Nodes whose `launch` is None have no kernel yet: only their NumPy definitions in tests/tools run
them. Their inputs, in order:

    embed                 tokens [T] int32, table [V, H] bfloat16
    rms_norm              x [T, H] float32 or bfloat16, weight [H] float32
    linear_prefill        as `linear_step` without norm
    mamba2_decode         projected [T, in_proj_dim] bfloat16; conv weight, conv bias, A_log, D,
    mamba2_prefill        dt_bias, float32; conv state, SSM state, float32, updated in place.
                          y is gated and not normalised
    mamba2_verify         the same, states left alone
    mamba2_commit         stash [layers, 8, in_proj_dim] bfloat16; conv weight, conv bias, A_log,
                          dt_bias, n [1] int32, both states, all stacked over layers
    attention_step        qkv [T, (heads + 2 kv heads) x head_dim] bfloat16, key cache and value
    attention_prefill     cache [kv heads, S, head_dim] bfloat16, updated in place, length [1] int32
    moe_route_prefill     x [T, H] bfloat16, gate [E, H], correction bias [E]
    moe_sort_prefill      experts [T, top_k]: pairs by expert, and where each expert's begin
    moe_up_prefill        x, order, starts, up matrices: hidden [T top_k, I] in that order
    moe_down_prefill      hidden, order, starts, down matrices: y [T top_k, H] in the pairs' order
    moe_combine_prefill   y, weights [T, top_k], residual [T, H]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.kernels.launch import Launch, Size
from edgekit.kernels.linear import linear_step
from edgekit.kernels.moe import MoeLayer, moe_down_step, moe_route_step, moe_up_step
from edgekit.kernels.weights import Matrix

DOMAIN = "edgekit.plugin"

DType = Literal["float32", "bfloat16", "int32"]
Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Output:
    """Shape and type of what a node returns."""

    shape: tuple[Size, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Form:
    """A node for one T.

    Attributes:
        in_place: output number to the number of the input whose memory it may take.
    """

    launch: Launch | None
    outputs: tuple[Output, ...]
    in_place: Mapping[int, int]


def form(op: str, attributes: Attributes, T: Size) -> Form:
    """The launch and the outputs of a node for T tokens."""
    return _FORMS[op](attributes, T)


def matrix_attributes(matrix: Matrix, prefix: str = "") -> dict[str, int | str]:
    """A matrix as attributes of a node; `read_matrix` is the inverse."""
    fields = {"N": matrix.N, "K": matrix.K, "format": matrix.format, "group": matrix.group}
    return {f"{prefix}{name}": value for name, value in fields.items()}


def read_matrix(attributes: Attributes, prefix: str = "") -> Matrix:
    return Matrix(**{name: attributes[f"{prefix}{name}"] for name in ("N", "K", "format", "group")})


def moe_attributes(layer: MoeLayer) -> dict[str, int | float | str]:
    """A layer of experts as attributes of its nodes; `read_moe` is the inverse."""
    found: dict[str, int | float | str] = {name: getattr(layer, name) for name in _MOE_FIELDS}
    found["norm_topk_prob"] = int(layer.norm_topk_prob)
    for prefix in _MOE_MATRICES:
        matrix = getattr(layer, prefix)
        if matrix is not None:
            found |= matrix_attributes(matrix, f"{prefix}_")
    return found


def read_moe(attributes: Attributes) -> MoeLayer:
    fields = {name: attributes[name] for name in _MOE_FIELDS}
    fields["norm_topk_prob"] = bool(fields["norm_topk_prob"])
    for prefix in _MOE_MATRICES:
        if f"{prefix}_N" in attributes:
            fields[prefix] = read_matrix(attributes, f"{prefix}_")
    return MoeLayer(**fields)


_MOE_MATRICES = ("up", "down", "shared_up", "shared_down")
_MOE_FIELDS = (
    "n_routed_experts",
    "num_experts_per_tok",
    "n_group",
    "topk_group",
    "norm_topk_prob",
    "routed_scaling_factor",
    "epsilon",
)


def _whole_tiles(columns: int) -> int:
    """Columns of a row in tile order, whose column tiles are whole."""
    return -(-columns // 64) * 64


def _linear_step(a: Attributes, T: Size) -> Form:
    matrix = read_matrix(a)
    launch = linear_step(
        T,
        matrix,
        input=a["input"],
        output=a["output"],
        norm_groups=a["norm_groups"],
        epsilon=a["epsilon"],
        relu2=bool(a["relu2"]),
        residual=bool(a["residual"]),
    )
    inputs = 3 + bool(a["norm_groups"]) + matrix.has_block_scales
    in_place = {0: inputs} if a["residual"] else {}
    return Form(launch, (Output((T, matrix.N), a["output"]),), in_place)


def _moe_route_step(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    outputs = [
        Output((T, layer.n_routed_experts), "float32"),
        Output((T, _whole_tiles(layer.up.K)), "bfloat16"),
    ]
    if layer.shared_up is not None:
        outputs.append(Output((T, _whole_tiles(layer.shared_up.N)), "bfloat16"))
    return Form(moe_route_step(T, layer), tuple(outputs), {})


def _moe_up_step(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    chosen = (T, layer.num_experts_per_tok)
    hidden = (*chosen, _whole_tiles(layer.up.N))
    outputs = (Output(chosen, "int32"), Output(chosen, "float32"), Output(hidden, "bfloat16"))
    return Form(moe_up_step(T, layer), outputs, {})


def _moe_down_step(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    residual = 6 if layer.shared_down is None else 10
    return Form(moe_down_step(T, layer), (Output((T, layer.down.N), "float32"),), {0: residual})


def _embed(a: Attributes, T: Size) -> Form:
    return Form(None, (Output((T, a["hidden_size"]), "float32"),), {})


def _rms_norm(a: Attributes, T: Size) -> Form:
    return Form(None, (Output((T, a["width"]), "bfloat16"),), {})


def _linear_prefill(a: Attributes, T: Size) -> Form:
    matrix = read_matrix(a)
    inputs = 3 + matrix.has_block_scales
    in_place = {0: inputs} if a["residual"] else {}
    return Form(None, (Output((T, matrix.N), a["output"]),), in_place)


def _mamba2(a: Attributes, T: Size, *, commits: bool) -> Form:
    heads, head_dim, state = a["num_heads"], a["head_dim"], a["state_size"]
    y = Output((T, heads * head_dim), "bfloat16")
    if not commits:
        return Form(None, (y,), {})
    conv_dim = heads * head_dim + 2 * a["n_groups"] * state
    conv = Output((conv_dim, a["conv_kernel"] - 1), "float32")
    ssm = Output((heads, head_dim, state), "float32")
    return Form(None, (y, conv, ssm), {1: 6, 2: 7})


def _mamba2_commit(a: Attributes, T: Size) -> Form:
    one_layer = _mamba2(a, T, commits=True).outputs[1:]
    states = tuple(Output((a["layers"], *one.shape), one.dtype) for one in one_layer)
    return Form(None, states, {0: 6, 1: 7})


def _attention(a: Attributes, T: Size) -> Form:
    cache = Output((a["kv_num_heads"], 0, a["head_dim"]), "bfloat16")
    y = Output((T, a["num_heads"] * a["head_dim"]), "bfloat16")
    return Form(None, (y, cache, cache), {1: 1, 2: 2})


def _moe_route_prefill(a: Attributes, T: Size) -> Form:
    chosen = (T, a["num_experts_per_tok"])
    return Form(None, (Output(chosen, "int32"), Output(chosen, "float32")), {})


def _moe_sort_prefill(a: Attributes, T: Size) -> Form:
    pairs, starts = T * a["num_experts_per_tok"], a["n_routed_experts"] + 1
    return Form(None, (Output((pairs,), "int32"), Output((starts,), "int32")), {})


def _moe_up_prefill(a: Attributes, T: Size) -> Form:
    return Form(None, (Output((T * a["num_experts_per_tok"], a["up_N"]), "bfloat16"),), {})


def _moe_down_prefill(a: Attributes, T: Size) -> Form:
    return Form(None, (Output((T * a["num_experts_per_tok"], a["down_N"]), "float32"),), {})


def _moe_combine_prefill(a: Attributes, T: Size) -> Form:
    return Form(None, (Output((T, a["down_N"]), "float32"),), {0: 2})


_FORMS: dict[str, Callable[[Attributes, Size], Form]] = {
    "embed": _embed,
    "linear_step": _linear_step,
    "mamba2_decode": lambda a, T: _mamba2(a, T, commits=True),
    "mamba2_verify": lambda a, T: _mamba2(a, T, commits=False),
    "mamba2_prefill": lambda a, T: _mamba2(a, T, commits=True),
    "mamba2_commit": _mamba2_commit,
    "attention_step": _attention,
    "attention_prefill": _attention,
    "rms_norm": _rms_norm,
    "linear_prefill": _linear_prefill,
    "moe_route_prefill": _moe_route_prefill,
    "moe_sort_prefill": _moe_sort_prefill,
    "moe_up_prefill": _moe_up_prefill,
    "moe_down_prefill": _moe_down_prefill,
    "moe_combine_prefill": _moe_combine_prefill,
    "moe_route_step": _moe_route_step,
    "moe_up_step": _moe_up_step,
    "moe_down_step": _moe_down_step,
}
