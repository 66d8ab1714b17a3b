"""ONNX Runtime must not report to its maker from a process that edgekit started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.random_checkpoint import write_random_checkpoint

CODE = """
import sys
from pathlib import Path
from edgekit.bundle import Bundle
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.executors import open_session
root = Path(sys.argv[1])
bundle = build_bundle(BuildRequest(root / "tiny", root / "bundle", "cpu", "none", 32, 16))
open_session(Bundle.open(bundle)).step([1, 2])
"""


def test_no_device_id_is_written(tmp_path: Path) -> None:
    write_random_checkpoint(tmp_path / "tiny", pattern="M*E")
    home = tmp_path / "home"
    home.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_"))}
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    subprocess.run(command, env=env | {"HOME": str(home)}, check=True, timeout=120)
    assert [path for path in home.rglob("*") if "onnxruntime" in str(path)] == []
