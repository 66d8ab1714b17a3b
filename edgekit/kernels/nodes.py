"""The nodes of a `plugin` graph: what each launches and returns, from its attributes and T.

A node is one launch. Its inputs are the kernel's, in their order, its outputs too; its attributes
are what the launch function takes. Whatever runs such a graph, the torch executor or a TensorRT
plugin, asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.kernels.launch import Kernel, Launch, Size
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

    launch: Launch
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


def _todo(name: str) -> Launch:
    return Launch(Kernel("todo.cu", name), (1, 1, 1), 32)


def _embed(a: Attributes, T: Size) -> Form:
    return Form(_todo("embed"), (Output((T, a["hidden_size"]), "float32"),), {})


def _rms_norm(a: Attributes, T: Size) -> Form:
    return Form(_todo("rms_norm"), (Output((T, a["width"]), "bfloat16"),), {})


def _linear_prefill(a: Attributes, T: Size) -> Form:
    matrix = read_matrix(a)
    inputs = 3 + matrix.has_block_scales
    in_place = {0: inputs} if a["residual"] else {}
    return Form(_todo("linear_prefill"), (Output((T, matrix.N), a["output"]),), in_place)


def _mamba2(a: Attributes, T: Size, *, commits: bool, name: str) -> Form:
    heads, head_dim, state = a["num_heads"], a["head_dim"], a["state_size"]
    y = Output((T, heads * head_dim), "bfloat16")
    if not commits:
        return Form(_todo(name), (y,), {})
    conv_dim = heads * head_dim + 2 * a["n_groups"] * state
    conv = Output((conv_dim, a["conv_kernel"] - 1), "float32")
    ssm = Output((heads, head_dim, state), "float32")
    return Form(_todo(name), (y, conv, ssm), {1: 6, 2: 7})


def _mamba2_commit(a: Attributes, T: Size) -> Form:
    form = _mamba2(a, T, commits=True, name="mamba2_commit")
    states = tuple(Output((a["layers"], *one.shape), one.dtype) for one in form.outputs[1:])
    return Form(form.launch, states, {0: 6, 1: 7})


def _attention(a: Attributes, T: Size, name: str) -> Form:
    cache = Output((a["kv_num_heads"], 0, a["head_dim"]), "bfloat16")
    y = Output((T, a["num_heads"] * a["head_dim"]), "bfloat16")
    return Form(_todo(name), (y, cache, cache), {1: 1, 2: 2})


def _moe_prefill(a: Attributes, T: Size, name: str) -> Form:
    layer = read_moe(a)
    pairs = T * layer.num_experts_per_tok
    chosen = (T, layer.num_experts_per_tok)
    outputs = {
        "moe_route_prefill": (Output(chosen, "int32"), Output(chosen, "float32")),
        "moe_sort_prefill": (
            Output((pairs,), "int32"),
            Output((layer.n_routed_experts + 1,), "int32"),
        ),
        "moe_up_prefill": (Output((pairs, layer.up.N), "bfloat16"),),
        "moe_down_prefill": (Output((pairs, layer.down.N), "float32"),),
        "moe_combine_prefill": (Output((T, layer.down.N), "float32"),),
    }[name]
    return Form(_todo(name), outputs, {0: 2} if name == "moe_combine_prefill" else {})


_FORMS: dict[str, Callable[[Attributes, Size], Form]] = {
    "embed": _embed,
    "linear_step": _linear_step,
    "mamba2_decode": lambda a, T: _mamba2(a, T, commits=True, name="mamba2_decode"),
    "mamba2_verify": lambda a, T: _mamba2(a, T, commits=False, name="mamba2_verify"),
    "mamba2_prefill": lambda a, T: _mamba2(a, T, commits=True, name="mamba2_prefill"),
    "mamba2_commit": _mamba2_commit,
    "attention_step": lambda a, T: _attention(a, T, "attention_step"),
    "attention_prefill": lambda a, T: _attention(a, T, "attention_prefill"),
    "rms_norm": _rms_norm,
    "linear_prefill": _linear_prefill,
    **{
        name: lambda a, T, name=name: _moe_prefill(a, T, name)  # type: ignore[misc]
        for name in (
            "moe_route_prefill",
            "moe_sort_prefill",
            "moe_up_prefill",
            "moe_down_prefill",
            "moe_combine_prefill",
        )
    },
    "moe_route_step": _moe_route_step,
    "moe_up_step": _moe_up_step,
    "moe_down_step": _moe_down_step,
}
