"""Exporting and quantizing need memory for a chunk, not for a tensor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.export.quantize.encode import PIECE
from edgekit.safetensors import CHUNK, read_header
from tests.tools.nemotron_layout import Dims, config_dict, tensors
from tests.tools.safetensors_stream import Entry, write_folder
from tests.tools.synthetic_lightning import write_synthetic_lightning

LARGE = Dims(
    pattern="ME*",
    vocab_size=65536,
    hidden_size=1024,
    mamba_num_heads=32,
    n_groups=8,
    n_routed_experts=16,
    moe_intermediate_size=2048,
    moe_shared_expert_intermediate_size=2048,
)

MEASURE = """
import sys
from pathlib import Path
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.quantize import quantize_checkpoint
from edgekit.recipe import load_recipe

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

import onnx, onnxruntime  # what the build imports on its way
checkpoint, output = map(Path, sys.argv[1:3])
before = status("VmRSS")
{work}
print(status("VmHWM") - before)
"""
EXPORT = (
    'build_bundle(BuildRequest(checkpoint, output, "cpu", "none", 64, 16, lowering="canonical"))'
)
QUANTIZE = "quantize_checkpoint(checkpoint, load_recipe(sys.argv[3]), output)"


def peak(work: str, *arguments: Path | str) -> int:
    """Bytes resident at most above the imports, in a process of its own."""
    command = [sys.executable, "-c", MEASURE.format(work=work), *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_exporting_takes_a_few_chunks_whatever_the_size(tmp_path: Path) -> None:
    """220 MB of weights, 134 MB of them one tensor, in less than 64 MiB above the imports."""
    checkpoint = write_synthetic_lightning(tmp_path / "checkpoint", dims=LARGE)
    entries = read_header(checkpoint / "model.safetensors").values()
    assert max(entry.nbytes for entry in entries) == 65536 * 1024 * 2
    assert sum(entry.nbytes for entry in entries) > 200e6
    output = tmp_path / "bundle"
    used = peak(EXPORT, checkpoint, output)
    assert used < 64 << 20
    assert used > CHUNK // 2  # it measures something
    assert Bundle.open(output).manifest.nbytes > 200e6


def write_bf16(folder: Path) -> Path:
    """A BF16 checkpoint of these dimensions; one random row block again and again."""
    folder.mkdir()
    dims = replace(LARGE, pattern="M*", vocab_size=49152)
    config = config_dict(dims, key_style="hybrid_override_pattern", torch_dtype="bfloat16")
    (folder / "config.json").write_text(json.dumps(config))
    block = np.random.default_rng(0).normal(0, 0.02, 1 << 19).astype(ml_dtypes.bfloat16).tobytes()

    def fill(entry: Entry) -> Iterator[bytes]:
        for start in range(0, entry.nbytes, len(block)):
            yield block[: entry.nbytes - start]

    write_folder(folder, [Entry(spec.name, "BF16", spec.shape) for spec in tensors(dims)], fill)
    return folder


@pytest.mark.slow
def test_quantizing_takes_a_few_pieces_whatever_the_size(tmp_path: Path) -> None:
    """220 MB of weights, half of them one matrix, in less than that matrix takes."""
    checkpoint = write_bf16(tmp_path / "checkpoint")
    sizes = [entry.nbytes for entry in read_header(checkpoint / "model.safetensors").values()]
    assert sum(sizes) > 200e6
    assert max(sizes) == 49152 * 1024 * 2
    used = peak(QUANTIZE, checkpoint, tmp_path / "out", "nano-nvfp4")
    assert PIECE < used < max(sizes)
