"""Small random NemotronH checkpoints with realistic value ranges, in the published layout."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.tools.nemotron_layout import Dims, KeyStyle, TensorSpec, config_dict, tensors
from tests.tools.safetensors_stream import Buffer, Entry, write_folder

_DEFAULT = Dims()


def write_random_checkpoint(
    folder: str | Path,
    *,
    pattern: str = _DEFAULT.pattern,
    vocab_size: int = _DEFAULT.vocab_size,
    hidden_size: int = _DEFAULT.hidden_size,
    mamba_num_heads: int = _DEFAULT.mamba_num_heads,
    mamba_head_dim: int = _DEFAULT.mamba_head_dim,
    n_groups: int = _DEFAULT.n_groups,
    ssm_state_size: int = _DEFAULT.ssm_state_size,
    conv_kernel: int = _DEFAULT.conv_kernel,
    use_conv_bias: bool = _DEFAULT.use_conv_bias,
    num_attention_heads: int = _DEFAULT.num_attention_heads,
    num_key_value_heads: int = _DEFAULT.num_key_value_heads,
    head_dim: int = _DEFAULT.head_dim,
    intermediate_size: int = _DEFAULT.intermediate_size,
    n_routed_experts: int = _DEFAULT.n_routed_experts,
    num_experts_per_tok: int = _DEFAULT.num_experts_per_tok,
    moe_intermediate_size: int = _DEFAULT.moe_intermediate_size,
    moe_shared_expert_intermediate_size: int = _DEFAULT.moe_shared_expert_intermediate_size,
    n_group: int = _DEFAULT.n_group,
    topk_group: int = _DEFAULT.topk_group,
    norm_topk_prob: bool = _DEFAULT.norm_topk_prob,
    routed_scaling_factor: float = _DEFAULT.routed_scaling_factor,
    max_position_embeddings: int = _DEFAULT.max_position_embeddings,
    dtype: Literal["float32", "bfloat16"] = "float32",
    key_style: KeyStyle = "hybrid_override_pattern",
    shards: int = 1,
    seed: int = 0,
) -> Path:
    """Write config.json and safetensors for a random model and return the folder.

    A tensor's values depend only on `seed`, its name and its shape: the same weights come out
    whatever the sharding. `e_score_correction_bias` stays float32, as in the published files.
    """
    dims = Dims(
        pattern=pattern,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        mamba_num_heads=mamba_num_heads,
        mamba_head_dim=mamba_head_dim,
        n_groups=n_groups,
        ssm_state_size=ssm_state_size,
        conv_kernel=conv_kernel,
        use_conv_bias=use_conv_bias,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        intermediate_size=intermediate_size,
        n_routed_experts=n_routed_experts,
        num_experts_per_tok=num_experts_per_tok,
        moe_intermediate_size=moe_intermediate_size,
        moe_shared_expert_intermediate_size=moe_shared_expert_intermediate_size,
        n_group=n_group,
        topk_group=topk_group,
        norm_topk_prob=norm_topk_prob,
        routed_scaling_factor=routed_scaling_factor,
        max_position_embeddings=max_position_embeddings,
    )
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    config = config_dict(dims, key_style=key_style, torch_dtype=dtype)
    (path / "config.json").write_text(json.dumps(config, indent=2))

    specs = {spec.name: spec for spec in tensors(dims)}
    entries = [
        Entry(
            spec.name,
            "BF16" if dtype == "bfloat16" and spec.role != "correction_bias" else "F32",
            spec.shape,
        )
        for spec in specs.values()
    ]

    def fill(entry: Entry) -> Iterator[Buffer]:
        values = random_values(specs[entry.name], seed)
        yield values.astype(ml_dtypes.bfloat16 if entry.dtype == "BF16" else np.float32).tobytes()

    write_folder(path, entries, fill, shards=shards)
    return path


def random_values(spec: TensorSpec, seed: int) -> npt.NDArray[np.float32]:
    """Random float32 values of a tensor, scaled so that activations and logits stay of order 1."""
    rng = np.random.default_rng((seed, zlib.crc32(spec.name.encode())))
    if spec.role == "A_log":  # A = -exp(A_log) in [-16, -1]
        values = np.log(rng.uniform(1.0, 16.0, spec.shape))
    elif spec.role == "dt_bias":  # softplus(dt_bias) log-uniform in [1e-3, 1e-1]
        step = np.exp(rng.uniform(math.log(1e-3), math.log(1e-1), spec.shape))
        values = step + np.log(-np.expm1(-step))
    elif spec.role in ("D", "norm"):
        values = 1.0 + 0.1 * rng.standard_normal(spec.shape)
    elif spec.role == "conv":
        values = rng.uniform(-0.6, 0.6, spec.shape)
    elif spec.role in ("conv_bias", "correction_bias"):
        values = 0.1 * rng.standard_normal(spec.shape)
    elif spec.role == "embedding":
        values = rng.standard_normal(spec.shape)
    else:
        gain = 3.0 if spec.name.startswith("lm_head") else 1.0
        values = gain / math.sqrt(spec.shape[-1]) * rng.standard_normal(spec.shape)
    return values.astype(np.float32)
