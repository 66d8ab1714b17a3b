"""Folders as ModelOpt exports them and as NVIDIA publishes them build with the same command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from edgekit.bundle import Bundle
from edgekit.export.checkpoint import Checkpoint
from edgekit.ops.formats import dequantize
from tests.cli.conftest import Run
from tests.tools.lightning_quantization import LIGHTNING
from tests.tools.modelopt_export import write_source
from tests.tools.synthetic_lightning import write_synthetic_lightning

EXPORT = Path(__file__).parents[1] / "export" / "modelopt_export"


def modelopts(folder: Path) -> Path:
    """What ModelOpt 0.47 exported of a tiny NemotronH, byte for byte; see modelopt_export."""
    return Path(shutil.copytree(EXPORT, folder))


def lightnings(folder: Path) -> Path:
    """The published layout: MIXED_PRECISION, 4-bit experts, FP8 Mamba, FP8 KV scales."""
    dims = replace(LIGHTNING, pattern="ME*E", hidden_size=64, vocab_size=512, n_routed_experts=8)
    return write_synthetic_lightning(folder, dims=dims)


def write_byte_tokenizer(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("write", [modelopts, lightnings])
def test_one_command_builds_both(
    edgekit: Run, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    folder = write(tmp_path / "checkpoint")
    write_byte_tokenizer(folder)
    built = edgekit("build", str(folder), "--device", "cpu", "--context", "64", "--name", "tiny")
    assert built.code == 0, built.err
    assert "quantizing" not in built.err
    formats = Checkpoint.open(folder).formats
    assert set(formats.values()) == {"dense", "fp8", "nvfp4"}
    assert Bundle.open(Path(built.out.strip())).manifest.executor == "onnxruntime-cpu"
    assert edgekit("verify", "tiny").code == 0


def test_the_recorded_export_is_of_the_source_it_names(tmp_path: Path) -> None:
    """Its weights are near those they were made of, and what was not quantized is equal."""
    before, after = Checkpoint.open(write_source(tmp_path / "source")), Checkpoint.open(EXPORT)
    assert "\\u0000" in (EXPORT / "hf_quant_config.json").read_text()
    assert list(before.formats) == list(after.formats)
    for module, form in after.formats.items():
        weight = before.entry(f"{module}.weight").read().astype(np.float32)
        values = dequantize(form, *(entry.read() for entry in after.parts(module)))
        error = np.linalg.norm(values - weight) / np.linalg.norm(weight)
        assert error <= {"dense": 0, "fp8": 0.03, "nvfp4": 0.1}[form], module
    assert set(after.formats.values()) == {"dense", "fp8", "nvfp4"}


@pytest.mark.slow
def test_modelopt_exports_the_same_today(tmp_path: Path) -> None:
    pytest.importorskip("modelopt.torch.quantization")
    from tests.tools.modelopt_export import export

    fresh = export(tmp_path / "export")
    for file in ("model.safetensors", "hf_quant_config.json"):
        assert (fresh / file).read_bytes() == (EXPORT / file).read_bytes()
