"""A whole mixed checkpoint, and no torch: the stream against what ModelOpt itself exported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize import quantize_checkpoint
from edgekit.recipe import load_recipe
from tests.tools.modelopt_export import write_source

EXPORT = Path(__file__).with_name("modelopt_export")

WITHOUT_TORCH = """
import sys
from pathlib import Path
for name in ("torch", "transformers", "modelopt"):
    sys.modules[name] = None  # importing it raises ImportError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.quantize import quantize_checkpoint
from edgekit.recipe import load_recipe
source, out, recipe = Path(sys.argv[1]), Path(sys.argv[2]), load_recipe(sys.argv[3])
quantized = quantize_checkpoint(source, recipe, out / "quantized")
print(quantized == source)
build_bundle(BuildRequest(quantized, out / "bundle", "cpu", recipe.name, 64, 16))
"""


def build_without_torch(source: Path, out: Path, recipe: str) -> str:
    """Whether the checkpoint went through unchanged, as text."""
    command = [sys.executable, "-c", WITHOUT_TORCH, str(source), str(out), recipe]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_mixed_weights_equal_modelopts_bit_for_bit(tmp_path: Path) -> None:
    """nano-nvfp4 has the rules of NVIDIA's recipe for Lightning, which the export was made by."""
    source = write_source(tmp_path / "source")
    ours = Checkpoint.open(quantize_checkpoint(source, load_recipe("nano-nvfp4"), tmp_path / "out"))
    theirs = Checkpoint.open(EXPORT)
    assert ours.formats == theirs.formats
    compared = 0
    for module, form in ours.formats.items():
        for mine, recorded in zip(ours.parts(module), theirs.parts(module), strict=True):
            assert mine.name == recorded.name
            assert mine.read().tobytes() == recorded.read().tobytes(), mine.name
        compared += form != "dense"
    assert compared == 2 + 2 * (2 * 4 + 2) + 1  # Mamba, experts and shared ones twice, lm_head


def test_a_bf16_checkpoint_needs_no_torch(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    assert build_without_torch(source, tmp_path, "nano-int4") == "False"
    assert (tmp_path / "bundle" / "manifest.json").is_file()


def test_a_quantized_checkpoint_needs_no_torch(tmp_path: Path) -> None:
    assert build_without_torch(EXPORT, tmp_path, "nano-nvfp4") == "True"
    assert (tmp_path / "bundle" / "manifest.json").is_file()
    assert not (tmp_path / "quantized").exists()
