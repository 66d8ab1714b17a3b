"""The nodes of a `plugin` graph: what each launches and returns, from its attributes and T.

A node is one launch. Its inputs are the kernel's, in their order, its outputs too; its attributes
are what the launch function takes. Whatever runs such a graph, the torch executor or a TensorRT
plugin, asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edgekit.kernels.attention import (
    PREFILL_KEYS,
    AttentionLayer,
    attention_prefill,
    attention_step,
    partials_shape,
)
from edgekit.kernels.draft import DraftHeads, context_rows, norm_rope, swiglu
from edgekit.kernels.embed import embed
from edgekit.kernels.launch import Launch, Size
from edgekit.kernels.linear import linear_step
from edgekit.kernels.linear_prefill import GEMM_TOKENS, linear_prefill, norm_prefill
from edgekit.kernels.mamba2 import MambaLayer, mamba2_commit, mamba2_prefill, mamba2_scan
from edgekit.kernels.moe import (
    MoeLayer,
    down_sums_shape,
    moe_down_step,
    moe_route_step,
    moe_up_step,
)
from edgekit.kernels.moe_prefill import (
    moe_down_prefill,
    moe_route_prefill,
    moe_sort_prefill,
    moe_sum_prefill,
    moe_up_prefill,
    tile_count,
)
from edgekit.kernels.sampling import SLICES, argmax, judge, sample
from edgekit.kernels.weights import MAX_TOKENS, Matrix
from edgekit.model import ModelSpec

DOMAIN = "edgekit.plugin"

DType = Literal["float32", "bfloat16", "int32", "float8_e4m3fn"]
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
        state: output number to the number of the input that it is: state, updated where it lies.
        in_place: output number to the number of the input whose memory it may take.
    """

    launch: Launch
    outputs: tuple[Output, ...]
    state: Mapping[int, int] = field(default_factory=dict)
    in_place: Mapping[int, int] = field(default_factory=dict)


def form(op: str, attributes: Attributes, T: Size) -> Form:
    """The launch and the outputs of a node for T tokens."""
    return _FORMS[op](attributes, T)


def tokens_at(op: str) -> tuple[int, int] | None:
    """The input, and its axis, whose size is T; None where no launch depends on it."""
    return None if op == "mamba2_commit" else _TOKENS_AT.get(op, (0, 0))


_TOKENS_AT = {"moe_down_step": (0, 1), "moe_down_prefill": (3, 0)}


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


def tap_name(layer: int, spec: ModelSpec) -> str:
    """The graph output that holds the residual stream after a layer."""
    return "hidden" if layer == spec.num_hidden_layers - 1 else f"tap.{layer}"


ARRIVALS = 1024
"""Counters of arrived blocks, for every launch that counts them: zeros between launches."""

_ARRIVALS = Output((ARRIVALS,), "int32")


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
    return Form(launch, (Output((T, matrix.N), a["output"]),), in_place=in_place)


def _norm_prefill(a: Attributes, T: Size) -> Form:
    launch = norm_prefill(
        T, a["K"], input=a["input"], norm_groups=a["norm_groups"], epsilon=a["epsilon"]
    )
    return Form(launch, (Output((T, _whole_tiles(a["K"])), "bfloat16"),))


def _linear_prefill(a: Attributes, T: Size) -> Form:
    matrix, order, residual = read_matrix(a), a["output"], bool(a["residual"])
    launch = linear_prefill(T, matrix, output=order, relu2=bool(a["relu2"]), residual=residual)
    columns = _whole_tiles(matrix.N) if order == "tiles" else matrix.N
    output = Output((T, columns), "float32" if order == "float32" else "bfloat16")
    in_place = {0: 3 + matrix.has_block_scales} if residual else {}
    return Form(launch, (output,), in_place=in_place)


def _moe_route_step(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    slots = T * layer.num_experts_per_tok
    outputs = [
        Output((T, layer.n_routed_experts), "float32"),
        Output((slots + 1,), "int32"),
        Output((slots, MAX_TOKENS), "float32"),
        Output((T, _whole_tiles(layer.up.K)), "bfloat16"),
    ]
    if layer.shared_up is not None:
        outputs.append(Output((T, _whole_tiles(layer.shared_up.N)), "bfloat16"))
    outputs.append(_ARRIVALS)
    arrivals = 4 if layer.shared_up is None else 7
    return Form(moe_route_step(T, layer), tuple(outputs), {len(outputs) - 1: arrivals})


def _moe_up_step(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    hidden = (T * layer.num_experts_per_tok, T, _whole_tiles(layer.up.N))
    return Form(moe_up_step(T, layer), (Output(hidden, "bfloat16"),))


def _moe_down_step(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    residual = 6 if layer.shared_down is None else 10
    outputs = (
        Output((T, layer.down.N), "float32"),
        Output(down_sums_shape(layer), "float32"),
        _ARRIVALS,
    )
    return Form(moe_down_step(T, layer), outputs, state={2: residual + 1}, in_place={0: residual})


def _moe_route_prefill(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    chosen = (T, layer.num_experts_per_tok)
    outputs = (Output(chosen, "int32"), Output(chosen, "float32"))
    return Form(moe_route_prefill(T, layer), outputs)


def _moe_sort_prefill(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    tiles = tile_count(T, layer)
    outputs = (Output((tiles, GEMM_TOKENS), "int32"), Output((tiles,), "int32"))
    return Form(moe_sort_prefill(T, layer), outputs)


def _moe_up_prefill(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    hidden = (tile_count(T, layer) * GEMM_TOKENS, _whole_tiles(layer.up.N))
    return Form(moe_up_prefill(T, layer), (Output(hidden, "bfloat16"),))


def _moe_down_prefill(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    parts = (T, layer.num_experts_per_tok, layer.down.N)
    return Form(moe_down_prefill(T, layer), (Output(parts, "bfloat16"),))


def _moe_sum_prefill(a: Attributes, T: Size) -> Form:
    layer = read_moe(a)
    y = Output((T, layer.down.N), "float32")
    return Form(moe_sum_prefill(T, layer), (y,), in_place={0: 1})


def _embed(a: Attributes, T: Size) -> Form:
    H = a["hidden_size"]
    return Form(embed(T, H), (Output((T, H), "float32"),))


def read_mamba(attributes: Attributes) -> MambaLayer:
    names = ("num_heads", "head_dim", "n_groups", "state_size", "conv_kernel")
    return MambaLayer(**{name: attributes[name] for name in names})


def _mamba2_scan(a: Attributes, T: Size) -> Form:
    layer, commits = read_mamba(a), bool(a["commits"])
    if not commits:
        y = Output((T, layer.d_inner), "bfloat16")
        return Form(mamba2_scan(T, layer, commits=False), (y,))
    return _scanned(mamba2_scan(T, layer, commits=True), layer, T)


def _mamba2_prefill(a: Attributes, T: Size) -> Form:
    layer = read_mamba(a)
    return _scanned(mamba2_prefill(T, layer), layer, T)


def _scanned(launch: Launch, layer: MambaLayer, T: Size) -> Form:
    """A scan that leaves its states in place."""
    y = Output((T, layer.d_inner), "bfloat16")
    return Form(launch, (y, *_states(layer), _ARRIVALS), {1: 6, 2: 7, 3: 8})


def _mamba2_commit(a: Attributes, T: Size) -> Form:
    layer, layers = read_mamba(a), a["layers"]
    states = (Output((layers, *one.shape), one.dtype) for one in _states(layer))
    launch = mamba2_commit(layers, layer)
    return Form(launch, (*states, _ARRIVALS), {0: 6, 1: 7, 2: 8})


def _states(layer: MambaLayer) -> tuple[Output, Output]:
    conv = (layer.conv_dim, layer.conv_kernel - 1)
    ssm = (layer.num_heads, layer.head_dim, layer.state_size)
    return Output(conv, "float32"), Output(ssm, "float32")


def read_attention(attributes: Attributes) -> AttentionLayer:
    names = ("num_heads", "kv_num_heads", "head_dim", "scale")
    return AttentionLayer(
        **{name: attributes[name] for name in names},
        window=attributes.get("window", 0),
        sinks=bool(attributes.get("sinks", 0)),
        kv_dtype=attributes.get("kv_dtype", "bfloat16"),
        key_scale=attributes.get("key_scale", 1.0),
        value_scale=attributes.get("value_scale", 1.0),
    )


def _attended(layer: AttentionLayer, context: int, T: Size) -> tuple[Output, Output, Output]:
    """y and both caches."""
    cache = Output((layer.kv_num_heads, context, layer.head_dim), layer.kv_dtype)
    return Output((T, layer.num_heads * layer.head_dim), "bfloat16"), cache, cache


def _attention_step(a: Attributes, T: Size) -> Form:
    layer, context = read_attention(a), a["context"]
    partials = Output(partials_shape(T, layer, context), "float32")
    outputs = (*_attended(layer, context, T), partials, _ARRIVALS)
    return Form(attention_step(T, layer, context), outputs, {1: 1, 2: 2, 4: 4})


def _attention_prefill(a: Attributes, T: Size) -> Form:
    layer, context = read_attention(a), a["context"]
    outputs = _attended(layer, context, T)
    keys = a.get("keys", PREFILL_KEYS)
    return Form(attention_prefill(T, layer, context, keys), outputs, {1: 1, 2: 2})


def _argmax(a: Attributes, T: Size) -> Form:
    outputs = (Output((T,), "int32"), Output((T, SLICES, 2), "int32"), _ARRIVALS)
    return Form(argmax(T, a["vocab_size"]), outputs, {2: 1})


def _sample(a: Attributes, T: Size) -> Form:
    V = a["vocab_size"]
    return Form(sample(T, V, philox=bool(a["philox"])), _drawn(V, T))


def _judge(a: Attributes, T: Size) -> Form:
    V = a["vocab_size"]
    return Form(judge(T, V, philox=bool(a["philox"])), _drawn(V, T))


def _drawn(V: int, T: Size) -> tuple[Output, Output]:
    return Output((T,), "int32"), Output((T, V), "float32")


def read_heads(attributes: Attributes) -> DraftHeads:
    names = ("num_heads", "kv_num_heads", "head_dim", "epsilon")
    return DraftHeads(**{name: attributes[name] for name in names})


def _norm_rope(a: Attributes, T: Size) -> Form:
    heads = read_heads(a)
    width = (heads.num_heads + 2 * heads.kv_num_heads) * heads.head_dim
    return Form(norm_rope(T, heads), (Output((T, width), "bfloat16"),), {})


def _context_rows(a: Attributes, T: Size) -> Form:
    heads, layers, rows = read_heads(a), a["layers"], a["rows"]
    cache = Output((layers, heads.kv_num_heads, rows, heads.head_dim), "bfloat16")
    return Form(context_rows(T, heads, layers, rows), (cache, cache), {0: 5, 1: 6})


def _swiglu(a: Attributes, T: Size) -> Form:
    F = a["intermediate_size"]
    return Form(swiglu(T, F), (Output((T, F), "bfloat16"),), {})


_FORMS: dict[str, Callable[[Attributes, Size], Form]] = {
    "embed": _embed,
    "linear_step": _linear_step,
    "norm_prefill": _norm_prefill,
    "linear_prefill": _linear_prefill,
    "mamba2_scan": _mamba2_scan,
    "mamba2_prefill": _mamba2_prefill,
    "mamba2_commit": _mamba2_commit,
    "attention_step": _attention_step,
    "attention_prefill": _attention_prefill,
    "moe_route_step": _moe_route_step,
    "moe_up_step": _moe_up_step,
    "moe_down_step": _moe_down_step,
    "moe_route_prefill": _moe_route_prefill,
    "moe_sort_prefill": _moe_sort_prefill,
    "moe_up_prefill": _moe_up_prefill,
    "moe_down_prefill": _moe_down_prefill,
    "moe_sum_prefill": _moe_sum_prefill,
    "argmax": _argmax,
    "sample": _sample,
    "judge": _judge,
    "norm_rope": _norm_rope,
    "context_rows": _context_rows,
    "swiglu": _swiglu,
}

OPERATORS = tuple(_FORMS)
"""Every operator of the domain."""
