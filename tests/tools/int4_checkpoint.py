"""An int4 copy of a small checkpoint: round to nearest, one scale a group of columns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from edgekit.export.checkpoint import Checkpoint, linear_modules
from edgekit.ops.formats import pack_nibbles


def write_int4_checkpoint(source: Path, folder: Path, group: int = 32) -> Path:
    """Quantizes every matrix of `source` and returns `folder`."""
    shutil.copytree(source, folder)
    checkpoint = Checkpoint.open(source)
    matrices = {f"{module}.weight" for module, _ in linear_modules(checkpoint.spec)}
    tensors = {}
    for name, entry in checkpoint.tensors.items():
        array = entry.read().astype(np.float32)
        if name not in matrices:
            tensors[name] = array
            continue
        N, K = array.shape
        blocks = array.reshape(N, K // group, group)
        scale = np.maximum(np.abs(blocks).max(axis=-1) / 7, np.float32(1e-8))
        codes = np.clip(np.rint(blocks / scale[..., None]), -8, 7) + 8
        tensors[name] = pack_nibbles(codes.astype(np.uint8).reshape(N, K))
        tensors[f"{name.removesuffix('.weight')}.weight_scale"] = scale
    for shard in folder.glob("*.safetensors*"):
        shard.unlink()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "W4A16_INT4"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
