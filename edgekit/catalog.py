"""Models that can be planned for by name, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from edgekit.model import ModelSpec, spec_from_config
from edgekit.parameters import Component


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A published model.

    Attributes:
        formats: of its published quantized checkpoint; what is not named is bfloat16.
        published: which checkpoint that is.
    """

    name: str
    title: str
    spec: ModelSpec
    formats: Mapping[Component, str]
    published: str


@dataclass(frozen=True, slots=True)
class KnownPeak:
    """A model whose memory was measured by others, for "what would fit instead"."""

    title: str
    peak_mib: int
    source: str


SMALLER_MODELS = (
    KnownPeak(
        "Nemotron 3 Nano 4B NVFP4",
        3647,
        "peak on Thor, TensorRT Edge-LLM 0.7 performance tables",
    ),
)


@cache
def catalog() -> dict[str, CatalogModel]:
    """The models by name."""
    lightning = CatalogModel(
        name="lightning",
        title="Nemotron 3.5 Lightning 30B-A3B",
        spec=spec_from_config(
            {
                "model_type": "nemotron_h",
                "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
                "hidden_size": 2688,
                "vocab_size": 131072,
                "mamba_num_heads": 64,
                "mamba_head_dim": 64,
                "n_groups": 8,
                "ssm_state_size": 128,
                "conv_kernel": 4,
                "num_attention_heads": 32,
                "num_key_value_heads": 2,
                "head_dim": 128,
                "n_routed_experts": 128,
                "num_experts_per_tok": 6,
                "n_shared_experts": 1,
                "moe_intermediate_size": 1856,
                "moe_shared_expert_intermediate_size": 3712,
                "intermediate_size": 1856,
                "routed_scaling_factor": 2.5,
                "layer_norm_epsilon": 1e-5,
                "max_position_embeddings": 262144,
                "bos_token_id": 1,
                "eos_token_id": 2,
                "pad_token_id": 0,
            }
        ),
        formats={"routed": "nvfp4", "shared": "nvfp4", "lm_head": "nvfp4", "mamba": "fp8"},
        published="NVFP4 as published: experts and lm_head NVFP4, Mamba FP8, the rest BF16",
    )
    return {lightning.name: lightning}
