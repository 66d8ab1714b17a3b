"""The draft's config.json, with the keys NVIDIA publishes.

The published file states several facts two or three times (top level, ``dflash_config``,
``dspark_*``). Reading requires that they agree and refuses what this draft cannot compute.
"""

from dataclasses import dataclass
from typing import Any

from edgekit.recipes.nano.model import NanoConfig
from edgekit.recipes.nano.speculative.target import tap_layers
from edgekit.recipes.nano.tokenizer import SPECIALS

MASK_TOKEN = "<SPECIAL_18>"


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """Dimensions and layout of a draft; without ``causal`` it is a DFlash block."""

    hidden_size: int
    vocab_size: int
    target_layer_ids: tuple[int, ...]
    num_hidden_layers: int = 2
    intermediate_size: int = 256
    num_attention_heads: int = 4
    num_key_value_heads: int = 1
    head_dim: int = 64
    block_size: int = 8
    sliding_window: int | None = 256
    attention_sink_bias: bool = True
    causal: bool = True
    markov_rank: int = 32
    mask_token_id: int = SPECIALS.index(MASK_TOKEN)
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096

    @classmethod
    def for_target(cls, target: NanoConfig, taps: int = 4, **sizes: Any) -> "DraftConfig":
        """A draft for this target, everything else by default or as given."""
        return cls(
            hidden_size=target.hidden_size,
            vocab_size=target.vocab_size,
            target_layer_ids=tap_layers(len(target.hybrid_override_pattern), taps),
            max_position_embeddings=target.max_position_embeddings,
            **sizes,
        )

    @property
    def slots(self) -> int:
        """Tokens one block can draft: the anchor's own row predicts nothing."""
        return self.block_size - 1


def config_json(config: DraftConfig, own_embedding: bool = False) -> dict[str, Any]:
    """config.json of the draft."""
    windowed = config.sliding_window is not None
    markov = config.markov_rank > 0
    kind = "sliding_attention" if windowed else "full_attention"
    return {
        "architectures": ["Qwen3DSparkModel" if markov or config.causal else "DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": None,
        "attention_bias": False,
        "attention_sink_bias": config.attention_sink_bias,
        "rope_theta": config.rope_theta,
        "rope_parameters": None,
        "max_position_embeddings": config.max_position_embeddings,
        "layer_types": [kind] * config.num_hidden_layers,
        "sliding_window": config.sliding_window,
        "use_cache": False,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "pard_token": config.mask_token_id,
        "sample_from_anchor": False,
        "target_layer_ids": list(config.target_layer_ids),
        "eagle_aux_hidden_state_layer_ids": [i + 1 for i in config.target_layer_ids],
        "num_aux_layers": len(config.target_layer_ids),
        "dflash_config": {
            "attention_sink_bias": config.attention_sink_bias,
            "causal": config.causal,
            "mask_token_id": config.mask_token_id,
            "swa_window_size": config.sliding_window,
            "target_layer_ids": list(config.target_layer_ids),
            "use_swa": windowed,
            "sample_from_anchor": False,
        },
        "dflash_query_causal": config.causal,
        "dspark_bonus_anchor": True if markov else None,
        "dspark_fixup_head_type": "markov" if markov else None,
        "dspark_markov_rank": config.markov_rank if markov else None,
        "markov_head_type": "vanilla" if markov else None,
        "markov_rank": config.markov_rank,
        "enable_confidence_head": False,
        "has_embed_tokens": own_embedding,
        "has_lm_head": False,
        "train_embed_tokens": False,
        "bos_token_id": 1,
        "eos_token_id": SPECIALS.index("<|im_end|>"),
        "pad_token_id": SPECIALS.index("<|im_end|>"),
    }


def _agreed(raw: dict[str, Any], *paths: str) -> Any:
    """The one value that all the paths which are present give."""
    found: dict[str, Any] = {}
    for path in paths:
        value: Any = raw
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    if not found:
        raise ValueError(f"draft config lacks {paths[0]}")
    if any(value != next(iter(found.values())) for value in found.values()):
        raise ValueError(f"draft config contradicts itself: {found}")
    return next(iter(found.values()))


def parse_config(raw: dict[str, Any]) -> DraftConfig:
    """Read config.json; raises ValueError on a contradiction or on an unknown layout."""
    fixed = {
        ("sample_from_anchor", "dflash_config.sample_from_anchor"): False,
        ("has_lm_head",): False,
        ("attention_bias",): False,
        ("hidden_act",): "silu",
    }
    for paths, wanted in fixed.items():
        if (value := _agreed(raw, *paths)) != wanted:
            raise ValueError(f"{paths[0]} = {value!r} is not supported, only {wanted!r}")
    if raw.get("enable_confidence_head") or raw.get("rope_parameters") or raw["draft_vocab_size"]:
        raise ValueError("confidence head, scaled RoPE and reduced vocabulary are not supported")
    rank = raw.get("dspark_markov_rank") or raw.get("markov_rank") or 0
    if rank and _agreed(raw, "markov_head_type") != "vanilla":
        raise ValueError("only the vanilla Markov head is supported")
    if rank:
        rank = _agreed(raw, "markov_rank", "dspark_markov_rank")
    taps = _agreed(raw, "target_layer_ids", "dflash_config.target_layer_ids")
    shifted = raw.get("eagle_aux_hidden_state_layer_ids")
    if shifted is not None and shifted != [i + 1 for i in taps]:
        raise ValueError(f"taps {taps} and eagle_aux_hidden_state_layer_ids {shifted} disagree")
    windowed = _agreed(raw, "dflash_config.use_swa")
    return DraftConfig(
        target_layer_ids=tuple(taps),
        sliding_window=(
            _agreed(raw, "sliding_window", "dflash_config.swa_window_size") if windowed else None
        ),
        attention_sink_bias=_agreed(
            raw, "attention_sink_bias", "dflash_config.attention_sink_bias"
        ),
        causal=_agreed(raw, "dflash_query_causal", "dflash_config.causal"),
        mask_token_id=_agreed(raw, "mask_token_id", "pard_token", "dflash_config.mask_token_id"),
        markov_rank=rank,
        **{
            key: raw[key]
            for key in (
                "hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size",
                "num_attention_heads", "num_key_value_heads", "head_dim", "block_size",
                "rope_theta", "rms_norm_eps", "max_position_embeddings",
            )
        },
    )  # fmt: skip
