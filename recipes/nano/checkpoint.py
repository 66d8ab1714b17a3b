"""Reading and writing nano as an official NemotronH checkpoint folder (BF16 safetensors)."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from edgekit.recipes.nano.model import NanoConfig, NemotronH
from edgekit.recipes.nano.tokenizer import SPECIALS

_STACKED = (".experts.up_proj", ".experts.down_proj")
_BOS, _EOS, _PAD, _IM_END = 1, 2, 0, SPECIALS.index("<|im_end|>")


def config_json(config: NanoConfig) -> dict[str, Any]:
    """config.json with the keys of the real model."""
    own = asdict(config)
    return {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        **own,
        "num_hidden_layers": len(config.hybrid_override_pattern),
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": _BOS,
        "eos_token_id": _EOS,
        "pad_token_id": _PAD,
        "expand": 2,
        "hidden_dropout": 0.0,
        "initializer_range": 0.02,
        "intermediate_size": config.moe_intermediate_size,
        "mamba_hidden_act": "silu",
        "mamba_proj_bias": False,
        "mamba_ssm_cache_dtype": "float32",
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "n_group": 1,
        "topk_group": 1,
        "norm_eps": config.layer_norm_epsilon,
        "norm_topk_prob": True,
        "num_logits_to_keep": 1,
        "rescale_prenorm_residual": True,
        "residual_in_fp32": False,
        "time_step_floor": 0.0001,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_bias": False,
        "use_cache": True,
        "use_conv_bias": True,
        "use_mamba_kernels": True,
    }


def official_tensors(model: NemotronH) -> dict[str, Tensor]:
    """The model's tensors under official names: BF16, the router in FP32, one tensor an expert."""
    tensors: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        value = value.detach().cpu()
        dtype = torch.float32 if ".gate." in name else torch.bfloat16
        if name.endswith(_STACKED):
            stem, _, part = name.rpartition(".")
            for i, expert in enumerate(value):
                tensors[f"{stem}.{i}.{part}.weight"] = expert.to(dtype).contiguous()
        else:
            tensors[name] = value.to(dtype).contiguous()
    return tensors


def save_checkpoint(model: NemotronH, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    generation = {
        "bos_token_id": _BOS,
        "do_sample": True,
        "eos_token_id": [_EOS, _IM_END],
        "pad_token_id": _PAD,
        "temperature": 0.3,
        "top_p": 0.9,
    }
    for file, value in (
        ("config.json", config_json(model.config)),
        ("generation_config.json", generation),
    ):
        (folder / file).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    save_file(official_tensors(model), folder / "model.safetensors", metadata={"format": "pt"})


def load_checkpoint(folder: Path) -> NemotronH:
    """Read a checkpoint folder into an FP32 model on the CPU."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = NanoConfig(**{f.name: raw[f.name] for f in fields(NanoConfig)})
    model = NemotronH(config)
    state = model.state_dict()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        for name, value in state.items():
            if name.endswith(_STACKED):
                stem, _, part = name.rpartition(".")
                names = [f"{stem}.{i}.{part}.weight" for i in range(len(value))]
                value.copy_(torch.stack([file.get_tensor(n) for n in names]))
            else:
                value.copy_(file.get_tensor(name))
    return model
