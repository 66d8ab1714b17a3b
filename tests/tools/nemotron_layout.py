"""The NemotronH checkpoint layout: dimensions, config.json keys, tensor names and shapes.

Names and shapes follow the published Nemotron 3 Nano / 3.5 Lightning index files: prefix
`backbone.`, one norm per layer, one tensor per expert. `-` layers are those of the dense models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

KeyStyle = Literal["hybrid_override_pattern", "layers_block_type"]
Role = Literal[
    "embedding",
    "linear",
    "norm",
    "conv",
    "conv_bias",
    "A_log",
    "D",
    "dt_bias",
    "gate",
    "correction_bias",
]

BLOCK_NAMES = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dims:
    """Model dimensions under their Hugging Face config names. The defaults make a tiny model."""

    pattern: str = "MEM*E-"
    vocab_size: int = 256
    hidden_size: int = 64
    mamba_num_heads: int = 4
    mamba_head_dim: int = 64
    n_groups: int = 2
    ssm_state_size: int = 128
    conv_kernel: int = 4
    use_conv_bias: bool = True
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 96
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 32
    moe_shared_expert_intermediate_size: int = 64
    n_group: int = 1
    topk_group: int = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 2.5
    layer_norm_epsilon: float = 1e-5
    max_position_embeddings: int = 4096

    def __post_init__(self) -> None:
        unknown = sorted(set(self.pattern) - set(BLOCK_NAMES))
        if unknown or not self.pattern:
            raise ValueError(f"pattern {self.pattern!r}: unknown layer kinds {unknown}")
        for big, small in (
            ("mamba_num_heads", "n_groups"),
            ("num_attention_heads", "num_key_value_heads"),
            ("n_routed_experts", "n_group"),
        ):
            if getattr(self, big) % getattr(self, small):
                raise ValueError(f"{big} must be a multiple of {small}")
        if self.n_routed_experts // self.n_group < 2:
            raise ValueError("expert groups are ranked by their two best experts: give each >= 2")

    @property
    def d_inner(self) -> int:
        """Mamba inner width: heads x head_dim (the config's `expand` plays no part)."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: x, B and C together."""
        return self.d_inner + 2 * self.n_groups * self.ssm_state_size

    @property
    def in_proj_rows(self) -> int:
        """Rows of `in_proj`: z, then x, B, C, then dt."""
        return self.d_inner + self.conv_dim + self.mamba_num_heads


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One checkpoint tensor: name, shape (row-major), and what kind of numbers it holds."""

    name: str
    shape: tuple[int, ...]
    role: Role


def tensors(dims: Dims) -> Iterator[TensorSpec]:
    """All tensors of the model in checkpoint order, without the MTP module."""
    yield TensorSpec("backbone.embeddings.weight", (dims.vocab_size, dims.hidden_size), "embedding")
    for index, kind in enumerate(dims.pattern):
        prefix = f"backbone.layers.{index}."
        yield TensorSpec(prefix + "norm.weight", (dims.hidden_size,), "norm")
        yield from mixer_tensors(dims, kind, prefix + "mixer.")
    yield TensorSpec("backbone.norm_f.weight", (dims.hidden_size,), "norm")
    yield TensorSpec("lm_head.weight", (dims.vocab_size, dims.hidden_size), "linear")


def mixer_tensors(dims: Dims, kind: str, prefix: str) -> Iterator[TensorSpec]:
    """The tensors of one mixer (`M`, `E`, `*` or `-`) under `prefix`."""
    H = dims.hidden_size
    if kind == "M":
        heads = (dims.mamba_num_heads,)
        yield TensorSpec(prefix + "in_proj.weight", (dims.in_proj_rows, H), "linear")
        yield TensorSpec(prefix + "conv1d.weight", (dims.conv_dim, 1, dims.conv_kernel), "conv")
        if dims.use_conv_bias:
            yield TensorSpec(prefix + "conv1d.bias", (dims.conv_dim,), "conv_bias")
        yield TensorSpec(prefix + "A_log", heads, "A_log")
        yield TensorSpec(prefix + "D", heads, "D")
        yield TensorSpec(prefix + "dt_bias", heads, "dt_bias")
        yield TensorSpec(prefix + "norm.weight", (dims.d_inner,), "norm")
        yield TensorSpec(prefix + "out_proj.weight", (H, dims.d_inner), "linear")
    elif kind == "*":
        q_rows = dims.num_attention_heads * dims.head_dim
        kv_rows = dims.num_key_value_heads * dims.head_dim
        yield TensorSpec(prefix + "q_proj.weight", (q_rows, H), "linear")
        yield TensorSpec(prefix + "k_proj.weight", (kv_rows, H), "linear")
        yield TensorSpec(prefix + "v_proj.weight", (kv_rows, H), "linear")
        yield TensorSpec(prefix + "o_proj.weight", (H, q_rows), "linear")
    elif kind == "E":
        experts = dims.n_routed_experts
        yield TensorSpec(prefix + "gate.weight", (experts, H), "gate")
        yield TensorSpec(prefix + "gate.e_score_correction_bias", (experts,), "correction_bias")
        for expert in range(experts):
            yield from _mlp(prefix + f"experts.{expert}.", H, dims.moe_intermediate_size)
        yield from _mlp(prefix + "shared_experts.", H, dims.moe_shared_expert_intermediate_size)
    else:
        yield from _mlp(prefix, H, dims.intermediate_size)


def _mlp(prefix: str, hidden: int, inner: int) -> Iterator[TensorSpec]:
    yield TensorSpec(prefix + "up_proj.weight", (inner, hidden), "linear")
    yield TensorSpec(prefix + "down_proj.weight", (hidden, inner), "linear")


def config_dict(dims: Dims, *, key_style: KeyStyle, torch_dtype: str) -> dict[str, Any]:
    """`config.json` with the published models' keys, including those the forward never reads."""
    config: dict[str, Any] = {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "torch_dtype": torch_dtype,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "use_cache": True,
        "num_hidden_layers": len(dims.pattern),
        "vocab_size": dims.vocab_size,
        "hidden_size": dims.hidden_size,
        "intermediate_size": dims.intermediate_size,
        "max_position_embeddings": dims.max_position_embeddings,
        "initializer_range": 0.02,
        "layer_norm_epsilon": dims.layer_norm_epsilon,
        "norm_eps": dims.layer_norm_epsilon,
        "residual_in_fp32": False,
        "rescale_prenorm_residual": True,
        "num_logits_to_keep": 1,
        "use_bias": False,
        "num_attention_heads": dims.num_attention_heads,
        "num_key_value_heads": dims.num_key_value_heads,
        "head_dim": dims.head_dim,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "sliding_window": None,
        "rope_theta": 10000,
        "partial_rotary_factor": 1.0,
        "mamba_num_heads": dims.mamba_num_heads,
        "mamba_head_dim": dims.mamba_head_dim,
        "n_groups": dims.n_groups,
        "ssm_state_size": dims.ssm_state_size,
        "conv_kernel": dims.conv_kernel,
        "chunk_size": 128,
        "expand": 2,
        "use_conv_bias": dims.use_conv_bias,
        "mamba_hidden_act": "silu",
        "mamba_proj_bias": False,
        "mamba_ssm_cache_dtype": "float32",
        "use_mamba_kernels": True,
        "time_step_min": 0.001,
        "time_step_max": 0.1,
        "time_step_floor": 0.0001,
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "n_routed_experts": dims.n_routed_experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": dims.num_experts_per_tok,
        "moe_intermediate_size": dims.moe_intermediate_size,
        "moe_shared_expert_intermediate_size": dims.moe_shared_expert_intermediate_size,
        "moe_latent_size": None,
        "n_group": dims.n_group,
        "topk_group": dims.topk_group,
        "norm_topk_prob": dims.norm_topk_prob,
        "routed_scaling_factor": dims.routed_scaling_factor,
    }
    if key_style == "hybrid_override_pattern":
        config["hybrid_override_pattern"] = dims.pattern
    else:
        config["layers_block_type"] = [BLOCK_NAMES[kind] for kind in dims.pattern]
    return config
