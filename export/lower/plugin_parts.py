"""What the `plugin` lowering asks of a model and of canonical nodes, and what it holds back."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from edgekit.errors import BuildError
from edgekit.export.graph.tensors import Weight
from edgekit.export.lower.packing import PackedWeights, Source
from edgekit.kernels.attention import HEAD_DIMS
from edgekit.kernels.launch import MAX_SHARED
from edgekit.kernels.linear import linear_step
from edgekit.kernels.moe import MoeLayer
from edgekit.kernels.weights import MAX_TOKENS, Matrix
from edgekit.model import ModelSpec
from edgekit.ops.formats import PARTS


@dataclass(frozen=True, slots=True)
class Normed:
    """RMS norm of x in groups, times weight; x is float32 or bfloat16."""

    x: ir.Value
    weight: ir.Value
    epsilon: float
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Product:
    """x W^T, perhaps its squared ReLU."""

    x: Normed | Product | ir.Value
    source: Source
    name: str
    relu2: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a normed x, perhaps with the shared expert, which is down(relu2(up x))."""

    node: ir.Node
    router: ir.Node
    shared: Product | None = None


def fits_step(matrix: Matrix) -> bool:
    """Whether a product of MAX_TOKENS tokens stays within MAX_SHARED."""
    launch = linear_step(MAX_TOKENS, matrix, input="bfloat16", output="float32")
    return bool(launch.shared <= MAX_SHARED)


def check_kernels(spec: ModelSpec) -> None:
    """Refuses a model whose dimensions the kernels do not come in.

    Raises:
        BuildError: a dimension that the kernels do not come in.
    """
    if spec.layers_of("*") and spec.head_dim not in HEAD_DIMS:
        raise _unsupported(f"head_dim {spec.head_dim} is not one of {HEAD_DIMS}")
    widths = {
        "hidden_size": spec.hidden_size,
        "d_inner": spec.d_inner,
        "intermediate_size": spec.intermediate_size,
        "moe_intermediate_size": spec.moe_intermediate_size,
        "moe_shared_expert_intermediate_size": spec.moe_shared_expert_intermediate_size,
    }
    for name, width in widths.items():
        if width % 4:
            raise _unsupported(f"{name} {width} is no multiple of 4")


def _unsupported(cause: str) -> BuildError:
    return BuildError(
        "this model cannot run on edgekit's CUDA kernels",
        cause=cause,
        hint="build for ONNX Runtime with --device cpu",
    )


def mamba_attributes(spec: ModelSpec) -> dict[str, int]:
    return {
        "num_heads": spec.mamba_num_heads,
        "head_dim": spec.mamba_head_dim,
        "n_groups": spec.n_groups,
        "state_size": spec.ssm_state_size,
        "conv_kernel": spec.conv_kernel,
    }


def moe_layer(
    spec: ModelSpec,
    epsilon: float,
    up: PackedWeights,
    down: PackedWeights,
    shared_up: PackedWeights | None,
    shared_down: PackedWeights | None,
) -> MoeLayer:
    return MoeLayer(
        up=up.matrix,
        down=down.matrix,
        n_routed_experts=spec.n_routed_experts,
        num_experts_per_tok=spec.num_experts_per_tok,
        shared_up=shared_up.matrix if shared_up is not None else None,
        shared_down=shared_down.matrix if shared_down is not None else None,
        n_group=spec.n_group,
        topk_group=spec.topk_group,
        norm_topk_prob=spec.norm_topk_prob,
        routed_scaling_factor=spec.routed_scaling_factor,
        epsilon=epsilon,
    )


def source_of(node: ir.Node) -> Source:
    parts = tuple(weight_of(value) for value in node.inputs[1:])
    return Source(node.attributes["format"].value, parts)


def expert_sources(node: ir.Node) -> tuple[Source, Source]:
    parts = [weight_of(value) for value in node.inputs[3:]]
    up, down = (node.attributes[f"{name}_format"].value for name in ("up", "down"))
    split = len(PARTS[up])
    return Source(up, tuple(parts[:split])), Source(down, tuple(parts[split:]))


def weight_of(value: ir.Value | None) -> Weight:
    assert value is not None
    weight = value.const_value
    assert isinstance(weight, Weight)
    return weight


def name_of(value: ir.Value) -> str:
    assert value.name is not None
    return value.name


def dtype_name(value: ir.Value) -> str:
    assert value.dtype is not None
    return {ir.DataType.FLOAT: "float32", ir.DataType.BFLOAT16: "bfloat16"}[value.dtype]
