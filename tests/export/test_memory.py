"""The export needs memory for a chunk, not for a tensor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from edgekit.bundle import Bundle
from edgekit.safetensors import CHUNK, read_header
from tests.tools.nemotron_layout import Dims
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

EXPORT = """
import sys
from pathlib import Path
from edgekit.export.build import BuildRequest, build_bundle

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) << 10

import onnx, onnxruntime  # what the build imports on its way
checkpoint, output = map(Path, sys.argv[1:])
before = status("VmRSS")
build_bundle(BuildRequest(checkpoint, output, "cpu", "none", 64, 16, lowering="canonical"))
print(status("VmHWM") - before)
"""


def test_exporting_takes_a_few_chunks_whatever_the_size(tmp_path: Path) -> None:
    """220 MB of weights, 134 MB of them one tensor, in less than 64 MiB above the imports."""
    checkpoint = write_synthetic_lightning(tmp_path / "checkpoint", dims=LARGE)
    entries = read_header(checkpoint / "model.safetensors").values()
    assert max(entry.nbytes for entry in entries) == 65536 * 1024 * 2
    assert sum(entry.nbytes for entry in entries) > 200e6
    output = tmp_path / "bundle"
    run = subprocess.run(
        [sys.executable, "-c", EXPORT, str(checkpoint), str(output)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < 64 << 20
    assert int(run.stdout) > CHUNK // 2  # it measures something
    assert Bundle.open(output).manifest.nbytes > 200e6
