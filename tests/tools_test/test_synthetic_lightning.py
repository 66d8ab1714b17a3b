"""The synthetic Lightning checkpoint has the published layout and sane numbers."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file

from tests.tools.lightning_quantization import (
    LIGHTNING,
    hf_quant_config,
    lightning_entries,
    quantization_config,
)
from tests.tools.nemotron_layout import Dims
from tests.tools.synthetic_lightning import write_synthetic_lightning

SMALL = Dims(
    pattern="ME*ME",
    hidden_size=128,
    vocab_size=512,
    moe_intermediate_size=48,
    moe_shared_expert_intermediate_size=80,
)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def read_shard(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The tensors of one file as NumPy arrays, by way of torch: safetensors' NumPy has no fp8."""
    narrow = {torch.bfloat16: ml_dtypes.bfloat16, torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn}
    return {
        name: values.view(torch.uint8).numpy().view(narrow[values.dtype])
        if values.dtype in narrow
        else values.numpy()
        for name, values in load_file(path).items()
    }


def test_full_size_counts_are_the_published_ones() -> None:
    config = quantization_config(LIGHTNING)
    algorithms = [layer["quant_algo"] for layer in config["quantized_layers"].values()]
    assert algorithms.count("W4A16_NVFP4") == 5935
    assert algorithms.count("FP8") == 46
    assert len(algorithms) == 5981
    assert len(config["ignore"]) == 72
    assert hf_quant_config(LIGHTNING)["quantization"]["kv_cache_quant_algo"] == "FP8"

    stored = [entry for entry, _ in lightning_entries(LIGHTNING)]
    assert len({entry.name for entry in stored}) == len(stored)
    assert sum(entry.nbytes for entry in stored) / 1e9 == pytest.approx(18.9, abs=0.1)
    with_mtp = sum(entry.nbytes for entry, _ in lightning_entries(LIGHTNING, mtp=True))
    assert with_mtp / 1e9 == pytest.approx(21.5, abs=0.1)

    logical = {spec.name: math.prod(spec.shape) for _, spec in lightning_entries(LIGHTNING)}
    assert sum(logical.values()) == 31_577_940_288


@pytest.mark.parametrize("gate_dtype", ["BF16", "F32"])
def test_small_checkpoint_decodes(tmp_path: Path, gate_dtype: str) -> None:
    folder = write_synthetic_lightning(
        tmp_path,
        dims=SMALL,
        mtp=True,
        gate_dtype=gate_dtype,  # type: ignore[arg-type]
        max_shard_bytes=300_000,
    )
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    tensors: dict[str, npt.NDArray[Any]] = {}
    for file in sorted(set(index.values())):
        tensors |= read_shard(folder / file)
    assert set(tensors) == set(index)
    for name, values in tensors.items():
        if values.dtype != np.uint8:
            assert np.isfinite(values.astype(np.float32)).all(), name

    up = "backbone.layers.1.mixer.experts.3.up_proj"
    assert tensors[f"{up}.weight"].shape == (48, 64)
    assert tensors[f"{up}.weight_scale"].dtype == ml_dtypes.float8_e4m3fn
    codes = np.stack([tensors[f"{up}.weight"] & 15, tensors[f"{up}.weight"] >> 4], axis=-1)
    codes = codes.reshape(48, 8, 16)
    values = np.where(codes & 8, -1, 1) * E2M1[codes & 7]
    values = values * tensors[f"{up}.weight_scale"].astype(np.float32)[..., None]
    values = values * tensors[f"{up}.weight_scale_2"]
    assert values.std() * math.sqrt(128) == pytest.approx(1, abs=0.3)
    assert np.abs(codes & 7).max(axis=-1).min() >= 6  # each block uses its range

    fp8 = "backbone.layers.0.mixer.in_proj"
    weight = tensors[f"{fp8}.weight"].astype(np.float32) * tensors[f"{fp8}.weight_scale"]
    assert weight.std() * math.sqrt(128) == pytest.approx(1, abs=0.3)
    assert tensors[f"{fp8}.input_scale"].shape == ()
    assert "backbone.layers.1.mixer.experts.3.up_proj.input_scale" not in tensors
    assert tensors["backbone.layers.2.mixer.k_proj.k_scale"].dtype == np.float32
    assert "backbone.layers.2.mixer.v_proj.v_scale" in tensors
    assert "mtp.layers.0.mixer.k_proj.k_scale" not in tensors
    gate = tensors["backbone.layers.1.mixer.gate.weight"]
    assert gate.dtype == (np.float32 if gate_dtype == "F32" else ml_dtypes.bfloat16)
    assert tensors["mtp.layers.0.eh_proj.weight"].shape == (128, 256)
    assert tensors["mtp.layers.1.mixer.experts.7.up_proj.weight"].dtype == ml_dtypes.bfloat16


def test_tensors_are_distinct_and_repeatable(tmp_path: Path) -> None:
    def digests(folder: Path, seed: int) -> list[str]:
        write_synthetic_lightning(folder, dims=SMALL, seed=seed)
        tensors = read_shard(folder / "model.safetensors")
        return [hashlib.sha256(values.tobytes()).hexdigest() for values in tensors.values()]

    one = digests(tmp_path / "one", 1)
    assert len(set(one)) == len(one)
    assert digests(tmp_path / "again", 1) == one
    assert not set(digests(tmp_path / "other", 2)) & set(one)
