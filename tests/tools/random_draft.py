"""Small random drafts in the published layout, and the config.json that goes with them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from edgekit.draft import draft_spec_from_config
from edgekit.export.draft_checkpoint import draft_modules, draft_tensors


def draft_config(**changes: Any) -> dict[str, Any]:
    """Lightning's published config at small sizes; `changes` at the top level, None removes."""
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}
    layers = [1, 3]
    config: dict[str, Any] = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        **heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "vocab_size": 256,
        "attention_bias": False,
        "attention_sink_bias": True,
        "rope_theta": 10000.0,
        "rope_parameters": None,
        "max_position_embeddings": 4096,
        "layer_types": ["sliding_attention"] * 2,
        "sliding_window": 9,
        "block_size": 8,
        "mask_token_id": 5,
        "pard_token": 5,
        "sample_from_anchor": False,
        "target_layer_ids": layers,
        "eagle_aux_hidden_state_layer_ids": [i + 1 for i in layers],
        "dflash_config": {
            "attention_sink_bias": True,
            "causal": True,
            "mask_token_id": 5,
            "swa_window_size": 9,
            "target_layer_ids": layers,
            "use_swa": True,
            "sample_from_anchor": False,
        },
        "dflash_query_causal": True,
        "dspark_bonus_anchor": True,
        "dspark_fixup_head_type": "markov",
        "dspark_markov_rank": 12,
        "markov_head_type": "vanilla",
        "markov_rank": 12,
        "has_embed_tokens": True,
        "has_lm_head": False,
        "enable_confidence_head": False,
    }
    config |= changes
    return {name: value for name, value in config.items() if value is not None}


def dflash_config(**changes: Any) -> dict[str, Any]:
    """The DFlash sibling: a bidirectional block, full attention, YaRN, no heads."""
    yarn = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64}
    inner = {"mask_token_id": 5, "target_layer_ids": [1, 3], "causal": False, "use_swa": False}
    changes = {
        "architectures": ["DFlashDraftModel"],
        "attention_sink_bias": False,
        "layer_types": ["full_attention"] * 2,
        "sliding_window": None,
        "rope_parameters": yarn | {"rope_theta": 10000.0},
        "dflash_config": inner | {"sample_from_anchor": False},
        "dflash_query_causal": False,
        "dspark_bonus_anchor": None,
        "dspark_fixup_head_type": None,
        "dspark_markov_rank": None,
        "markov_head_type": None,
        "markov_rank": None,
        "block_size": None,
        **changes,
    }
    return draft_config(**changes)


def write_random_draft(
    folder: Path, config: dict[str, Any], *, confidence: bool = False, flat: bool = False
) -> Path:
    """Writes config.json and random float32 weights that depend on a tensor's name and shape.

    Args:
        confidence: with a confidence head. flat: head names as ModelOpt's exporter has them.
    """
    spec = draft_spec_from_config(config)
    shapes = {f"{module}.weight": shape for module, shape in draft_modules(spec)}
    shapes |= dict(draft_tensors(spec))
    if config.get("has_embed_tokens"):
        shapes["embed_tokens.weight"] = (spec.vocab_size, spec.hidden_size)
    if config.get("has_lm_head"):
        shapes["lm_head.weight"] = (spec.vocab_size, spec.hidden_size)
    if confidence:
        shapes["confidence_head.proj.weight"] = (1, spec.hidden_size + spec.markov_rank)
        shapes["confidence_head.proj.bias"] = (1,)
    tensors = {}
    for name, shape in shapes.items():
        draw = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
        if name.endswith(("norm.weight", "layernorm.weight")):
            draw = 1 + 0.2 * draw
        elif len(shape) == 2 and "embed" not in name and "markov_w1" not in name:
            draw = draw / np.sqrt(shape[1])
        if flat:
            name = name.removeprefix("markov_head.").replace(
                "confidence_head.proj", "confidence_proj"
            )
        tensors[name] = draw.astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder
