"""Reading and writing drafts: the DSpark folder, and the MTP tensors inside the target's file."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgekit.recipes.nano.model import NemotronH
from edgekit.recipes.nano.speculative.config import config_json, parse_config
from edgekit.recipes.nano.speculative.dspark import DSpark
from edgekit.recipes.nano.speculative.mtp import Mtp

MTP_FILE = "mtp.safetensors"
_STACKED = ("experts.up_proj", "experts.down_proj")
_LAYERS = {"first": "mtp.layers.0", "second": "mtp.layers.1"}


def save_draft(draft: DSpark, folder: Path, own_embedding: bool = False) -> None:
    """Write config.json and model.safetensors (BF16).

    NVIDIA's draft carries a copy of the target's embedding; nano's shares it unless told otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().cpu().bfloat16().contiguous() for k, v in draft.state_dict().items()}
    if own_embedding:
        embedding = draft.shared[0].weight.detach().cpu().bfloat16()
        tensors["embed_tokens.weight"] = embedding.contiguous()
    text = json.dumps(config_json(draft.config, own_embedding), indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def load_draft(folder: Path, target: NemotronH) -> DSpark:
    """Read a draft folder into an FP32 draft of this target."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    draft = DSpark(parse_config(raw), target)
    tensors = load_file(folder / "model.safetensors")
    embedding = tensors.pop("embed_tokens.weight", None)
    own = target.backbone.embeddings.weight.detach().cpu().bfloat16()
    if embedding is not None and not torch.equal(embedding, own):
        raise ValueError(f"{folder}: the draft's embedding is not the target's")
    draft.load_state_dict({name: value.float() for name, value in tensors.items()})
    return draft


def mtp_tensors(mtp: Mtp) -> dict[str, Tensor]:
    """The head under published names: BF16, the router in FP32, one tensor an expert."""
    tensors: dict[str, Tensor] = {}
    for key, value in mtp.state_dict().items():
        part, _, rest = key.partition(".")
        name = f"{_LAYERS[part]}.{rest}"
        value = value.detach().cpu().to(torch.float32 if ".gate." in name else torch.bfloat16)
        if name.endswith(_STACKED):
            stem, _, kind = name.rpartition(".")
            for i, expert in enumerate(value):
                tensors[f"{stem}.{i}.{kind}.weight"] = expert.contiguous()
        else:
            tensors[name] = value.contiguous()
    return tensors


def load_mtp(file: Path, target: NemotronH) -> Mtp:
    """Read the head from its own file or from the target's model.safetensors."""
    tensors = load_file(file)
    mtp = Mtp(target)
    state = {}
    for key, value in mtp.state_dict().items():
        part, _, rest = key.partition(".")
        name = f"{_LAYERS[part]}.{rest}"
        if name.endswith(_STACKED):
            stem, _, kind = name.rpartition(".")
            experts = [tensors[f"{stem}.{i}.{kind}.weight"] for i in range(len(value))]
            state[key] = torch.stack(experts).float()
        else:
            state[key] = tensors[name].float()
    mtp.load_state_dict(state)
    return mtp


def save_mtp(mtp: Mtp, file: Path) -> None:
    """Write the head's tensors alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(mtp_tensors(mtp), file, metadata={"format": "pt"})


def add_mtp(file: Path, checkpoint: Path) -> None:
    """Put the head's tensors and config keys into a target checkpoint folder."""
    weights = checkpoint / "model.safetensors"
    tensors = {k: v for k, v in load_file(weights).items() if not k.startswith("mtp.")}
    save_file(tensors | load_file(file), weights, metadata={"format": "pt"})
    config = checkpoint / "config.json"
    raw: dict[str, Any] = json.loads(config.read_text(encoding="utf-8"))
    raw |= {
        "num_nextn_predict_layers": 1,
        "mtp_hybrid_override_pattern": "*E",
        "mtp_layers_block_type": ["attention", "moe"],
    }
    config.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


def size(tensors: dict[str, Tensor]) -> tuple[int, int]:
    """(parameters, bytes) of stored tensors."""
    return (
        sum(t.numel() for t in tensors.values()),
        sum(t.numel() * t.element_size() for t in tensors.values()),
    )
