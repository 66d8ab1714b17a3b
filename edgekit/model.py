"""What a NemotronH model is: its dimensions and layer kinds, read from config.json.

Field names are config.json's own. A layer is one mixer behind one RMS norm, and its kind is one
letter of the pattern: ``M`` Mamba-2, ``E`` mixture of experts, ``*`` attention, ``-`` dense MLP.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from edgekit.errors import CheckpointError

LayerKind = Literal["M", "E", "*", "-"]

_KIND_BY_NAME: dict[str, LayerKind] = {
    "mamba": "M",
    "linear_attention": "M",
    "moe": "E",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Dimensions of one NemotronH model. Sizes are element counts unless named otherwise."""

    layers: tuple[LayerKind, ...]
    vocab_size: int
    hidden_size: int
    layer_norm_epsilon: float
    max_position_embeddings: int
    # Mamba-2
    mamba_num_heads: int
    mamba_head_dim: int
    n_groups: int
    ssm_state_size: int
    conv_kernel: int
    use_conv_bias: bool
    time_step_limit: tuple[float, float]
    # attention
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    # feed-forward
    intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int
    moe_intermediate_size: int
    moe_shared_expert_intermediate_size: int
    n_group: int
    topk_group: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    # tokens
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None

    @property
    def num_hidden_layers(self) -> int:
        return len(self.layers)

    @property
    def pattern(self) -> str:
        """The layer kinds as `hybrid_override_pattern` writes them."""
        return "".join(self.layers)

    @property
    def d_inner(self) -> int:
        """Width of the Mamba-2 mixer: heads x head_dim (`expand` plays no part)."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: x, B and C together."""
        return self.d_inner + 2 * self.n_groups * self.ssm_state_size

    @property
    def in_proj_dim(self) -> int:
        """Rows of `in_proj`: z, then x, B, C, then dt."""
        return self.d_inner + self.conv_dim + self.mamba_num_heads

    def layers_of(self, kind: LayerKind) -> tuple[int, ...]:
        """Indices of the layers of one kind."""
        return tuple(i for i, k in enumerate(self.layers) if k == kind)

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes one more token of context costs in all KV caches together."""
        per_layer = 2 * self.num_key_value_heads * self.head_dim * element_bytes
        return per_layer * len(self.layers_of("*"))

    def state_bytes(self, ssm_element_bytes: int = 4, conv_element_bytes: int = 4) -> int:
        """Bytes of one sequence's convolution and SSM state: the size of a snapshot."""
        ssm = self.mamba_num_heads * self.mamba_head_dim * self.ssm_state_size * ssm_element_bytes
        conv = self.conv_dim * (self.conv_kernel - 1) * conv_element_bytes
        return (ssm + conv) * len(self.layers_of("M"))


def load_spec(folder: Path) -> ModelSpec:
    """Reads `folder/config.json`.

    Raises:
        CheckpointError: the file is missing or is no NemotronH configuration edgekit runs.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"no config.json in {folder}",
            cause="a checkpoint is a folder with config.json, *.safetensors and tokenizer.json",
            hint="pass the folder that holds config.json",
        ) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON", cause=str(error), hint="download this file again"
        ) from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return spec_from_config(config)


def spec_from_config(config: dict[str, Any]) -> ModelSpec:
    """The dimensions in a parsed config.json; see `load_spec` for errors."""
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list):
        architectures = [architectures]
    if config.get("model_type") != "nemotron_h" and "NemotronHForCausalLM" not in architectures:
        name = config.get("model_type") or ", ".join(map(str, architectures)) or "unnamed"
        raise CheckpointError(
            f"architecture {name!r} is not supported",
            cause="edgekit runs NemotronH models (model_type nemotron_h)",
            hint="use a Nemotron 3 or Nemotron Nano v2 checkpoint, or `edgekit run nano`",
        )
    c = _Config(config)
    layers = _layers(config)
    routed = "E" in layers
    spec = ModelSpec(
        layers=layers,
        vocab_size=c.size("vocab_size"),
        hidden_size=c.size("hidden_size"),
        layer_norm_epsilon=c.real("layer_norm_epsilon", "norm_eps", "rms_norm_eps", default=1e-5),
        max_position_embeddings=c.size("max_position_embeddings", default=4096),
        mamba_num_heads=c.size("mamba_num_heads", default=None if "M" in layers else 0),
        mamba_head_dim=c.size("mamba_head_dim", default=64),
        n_groups=c.size("n_groups", "mamba_n_groups", default=1),
        ssm_state_size=c.size("ssm_state_size", "mamba_state_dim", default=128),
        conv_kernel=c.size("conv_kernel", "mamba_d_conv", default=4),
        use_conv_bias=bool(c.get("use_conv_bias", "mamba_conv_bias", default=True)),
        time_step_limit=_time_step_limit(config.get("time_step_limit")),
        num_attention_heads=c.size("num_attention_heads", default=None if "*" in layers else 0),
        num_key_value_heads=c.size("num_key_value_heads", default=None if "*" in layers else 0),
        head_dim=c.size("head_dim", "attention_head_dim", default=128),
        intermediate_size=c.size("intermediate_size", default=None if "-" in layers else 0),
        n_routed_experts=c.size("n_routed_experts", default=None if routed else 0),
        num_experts_per_tok=c.size("num_experts_per_tok", default=None if routed else 0),
        n_shared_experts=c.size("n_shared_experts", default=0),
        moe_intermediate_size=c.size("moe_intermediate_size", default=None if routed else 0),
        moe_shared_expert_intermediate_size=c.size(
            "moe_shared_expert_intermediate_size", default=0
        ),
        n_group=c.size("n_group", default=1),
        topk_group=c.size("topk_group", default=1),
        norm_topk_prob=bool(c.get("norm_topk_prob", default=True)),
        routed_scaling_factor=c.real("routed_scaling_factor", default=1.0),
        bos_token_id=_token_id(config, "bos_token_id"),
        eos_token_ids=token_ids(config.get("eos_token_id")),
        pad_token_id=_token_id(config, "pad_token_id"),
    )
    _check(spec, config)
    return spec


def token_ids(value: object) -> tuple[int, ...]:
    """A token id field, which may be absent, one id or a list of ids."""
    if value is None:
        return ()
    if isinstance(value, int):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return tuple(value)
    raise CheckpointError(f"token ids {value!r} in the configuration are not integers")


def _token_id(config: dict[str, Any], key: str) -> int | None:
    value = config.get(key)
    if value is not None and not isinstance(value, int):
        raise CheckpointError(f"config.json: {key} is {value!r}, not a token id")
    return value


@dataclass(frozen=True, slots=True)
class _Config:
    """Looks a value up under its name or one of its older names."""

    values: dict[str, Any]

    def get(self, *names: str, default: object) -> Any:
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        if default is None:
            raise CheckpointError(
                f"config.json has no {names[0]!r}",
                cause="the layers of this model need it",
                hint="download the checkpoint's config.json again",
            )
        return default

    def size(self, *names: str, default: int | None = None) -> int:
        value = self.get(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CheckpointError(f"config.json: {names[0]} is {value!r}, not a size")
        return value

    def real(self, *names: str, default: float | None = None) -> float:
        value = self.get(*names, default=default)
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):
                number = float(value)
        if not math.isfinite(number):
            raise CheckpointError(f"config.json: {names[0]} is {value!r}, not a number")
        return number


def _layers(config: dict[str, Any]) -> tuple[LayerKind, ...]:
    pattern = config.get("hybrid_override_pattern")
    blocks = config.get("layers_block_type")
    from_pattern = from_blocks = None
    if pattern is not None:
        if not isinstance(pattern, str) or not pattern or set(pattern) - set("ME*-"):
            raise CheckpointError(
                f"hybrid_override_pattern {pattern!r} holds unknown layer kinds",
                cause="known: M Mamba-2, E experts, * attention, - dense MLP",
            )
        from_pattern = cast(tuple[LayerKind, ...], tuple(pattern))
    if blocks is not None:
        names = [str(b) for b in blocks] if isinstance(blocks, list) else []
        unknown = sorted(set(names) - _KIND_BY_NAME.keys())
        if not names or unknown:
            raise CheckpointError(
                f"layers_block_type holds unknown layer kinds {', '.join(unknown) or '(empty)'}",
                cause=f"known: {', '.join(_KIND_BY_NAME)}",
            )
        from_blocks = tuple(_KIND_BY_NAME[name] for name in names)
    if from_pattern and from_blocks and from_pattern != from_blocks:
        raise CheckpointError(
            "config.json: hybrid_override_pattern and layers_block_type disagree",
            hint="download the checkpoint's config.json again",
        )
    layers = from_pattern or from_blocks
    if layers is None:
        raise CheckpointError(
            "config.json has neither hybrid_override_pattern nor layers_block_type",
            hint="download the checkpoint's config.json again",
        )
    declared = config.get("num_hidden_layers")
    if declared is not None and declared != len(layers):
        raise CheckpointError(
            f"config.json says num_hidden_layers {declared}, but its pattern has {len(layers)}",
            hint="download the checkpoint's config.json again",
        )
    return layers


def _time_step_limit(value: object) -> tuple[float, float]:
    """(low, high) of the softplus'd step. transformers writes infinity in three ways."""
    if value is None:
        return (0.0, math.inf)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise CheckpointError(f"config.json: time_step_limit is {value!r}, not a pair")

    def bound(item: object) -> float:
        if isinstance(item, dict) and set(item) == {"__float__"}:
            item = item["__float__"]
        try:
            return float(cast(str, item))
        except (TypeError, ValueError, OverflowError):
            raise CheckpointError(f"config.json: time_step_limit holds {item!r}") from None

    return (bound(value[0]), bound(value[1]))


def _check(spec: ModelSpec, config: dict[str, Any]) -> None:
    """Refuses what the graph writer has no form for, before any tensor is read."""

    def refuse(message: str, cause: str = "") -> None:
        raise CheckpointError(f"config.json: {message}", cause=cause)

    if spec.vocab_size == 0 or spec.hidden_size == 0:
        refuse("vocab_size and hidden_size must be positive")
    if "M" in spec.layers:
        if 0 in (spec.mamba_num_heads, spec.mamba_head_dim, spec.ssm_state_size, spec.n_groups):
            refuse("Mamba dimensions must be positive")
        if spec.mamba_num_heads % spec.n_groups:
            refuse(f"{spec.mamba_num_heads} Mamba heads do not divide into {spec.n_groups} groups")
        if spec.conv_kernel < 2:
            refuse(f"conv_kernel {spec.conv_kernel} leaves no convolution state")
        if spec.time_step_limit[0] > 0 or spec.time_step_limit[1] != math.inf:
            refuse(
                f"time_step_limit {spec.time_step_limit} clamps the step",
                cause="NemotronH steps are softplus(dt + dt_bias) without a clamp",
            )
    if "*" in spec.layers:
        if 0 in (spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim):
            refuse("attention dimensions must be positive")
        if spec.num_attention_heads % spec.num_key_value_heads:
            refuse("num_attention_heads is not a multiple of num_key_value_heads")
    if "E" in spec.layers:
        if not 0 < spec.num_experts_per_tok <= spec.n_routed_experts:
            refuse(f"{spec.num_experts_per_tok} of {spec.n_routed_experts} experts per token")
        if spec.n_group == 0 or spec.n_routed_experts % spec.n_group:
            refuse(f"{spec.n_routed_experts} experts do not divide into {spec.n_group} groups")
        if spec.n_group > 1 and spec.n_routed_experts < 2 * spec.n_group:
            refuse("expert groups are ranked by their two best experts, and these have one")
        if not 0 < spec.topk_group <= spec.n_group:
            refuse(f"topk_group {spec.topk_group} of n_group {spec.n_group}")
        reachable = spec.topk_group * (spec.n_routed_experts // spec.n_group)
        if spec.num_experts_per_tok > reachable:
            refuse(f"{spec.num_experts_per_tok} experts per token from {reachable} reachable ones")
        if spec.n_shared_experts > 1:
            refuse(f"n_shared_experts {spec.n_shared_experts}: at most one is supported")
    for key in ("use_bias", "mamba_proj_bias", "attention_bias", "mlp_bias"):
        if config.get(key):
            refuse(f"{key} is true", cause="NemotronH checkpoints have no projection biases")
    if config.get("moe_latent_size"):
        refuse("moe_latent_size is set", cause="latent experts (Nemotron 3 Super) are unsupported")
    for key, known in (("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")):
        if config.get(key) not in (None, known):
            refuse(f"{key} is {config[key]!r}", cause=f"NemotronH uses {known}")
