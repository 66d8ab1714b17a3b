"""Bundles of engines: whole or not at all."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle
from edgekit.engines import Flavour, installed
from edgekit.errors import BuildError, BundleError, DoesNotFitError, EdgekitError
from edgekit.export import engines
from edgekit.export.build import BuildEvent, BuildRequest, build_bundle
from edgekit.export.engine import build as engine_build
from edgekit.export.engine import build_engine, check
from edgekit.export.engines import EngineTarget
from edgekit.export.quantize import quantize_checkpoint
from edgekit.recipe import load_recipe
from tests.tools.random_checkpoint import write_random_checkpoint

NANO = Path("recipes/nano/checkpoint")

pytestmark = pytest.mark.skipif(
    installed("tensorrt-rtx") is None, reason="TensorRT for RTX is not installed"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles") / "checkpoint"
    return write_random_checkpoint(
        folder,
        pattern="ME*",
        dtype="bfloat16",
        mamba_num_heads=2,
        n_groups=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
    )


def request(checkpoint: Path, output: Path, sm: int = 121) -> BuildRequest:
    return BuildRequest(
        checkpoint,
        output,
        "dgx-spark",
        "published",
        32,
        16,
        lowering="standard",
        sm=sm,
        engine=EngineTarget("tensorrt-rtx", sm),
    )


def test_a_bundle_holds_plans_that_hold_the_weights(checkpoint: Path, tmp_path: Path) -> None:
    events: list[BuildEvent] = []
    bundle = Bundle.open(build_bundle(request(checkpoint, tmp_path / "b"), events.append))
    manifest = bundle.manifest
    assert (manifest.lowering, manifest.executor) == ("standard", "tensorrt-rtx")
    assert manifest.versions["tensorrt-rtx"] == installed("tensorrt-rtx")
    assert manifest.versions["sm"] == "121"
    assert (manifest.target.step, manifest.target.commit) == ("target.plan", "target.commit.plan")
    files = {path.name for path in bundle.path.iterdir()}
    assert files == {"config.json", "golden.json", "manifest.json", "target.plan"} | {
        "target.commit.plan"
    }
    caches = {s.input: s for s in manifest.target.state if s.kind == "cache"}
    assert caches["key_cache.2"].shape == (1, 1, 32, 32)
    assert caches["key_cache.2"].dtype == "bfloat16"
    finished = [event.detail for event in events if event.step == "engines"]
    assert [detail.split(":")[0] for detail in finished] == ["target.plan", "target.commit.plan"]
    assert "layers" in finished[0]
    assert "--executor tensorrt-rtx --sm 121" in bundle.rebuild_command
    # One changed byte is found.
    plan = bundle.file("target.plan")
    data = bytearray(plan.read_bytes())
    data[len(data) // 2] ^= 1
    plan.write_bytes(data)
    with pytest.raises(BundleError, match=r"target\.plan"):
        Bundle.open(bundle.path).check_hashes()


def killed(request: Any, on_progress: Any) -> Any:
    script = f"import os, sys; sys.stdin.read(); os.kill(os.getpid(), {int(signal.SIGKILL)})"
    return build_engine(request, on_progress, command=(sys.executable, "-c", script))


def test_a_killed_builder_leaves_no_bundle(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "build_engine", killed)
    with pytest.raises(BuildError, match="builder was killed") as caught:
        build_bundle(request(checkpoint, tmp_path / "b"))
    assert "ran out of memory" in caught.value.cause
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flavour", "version", "message"),
    [
        ("tensorrt", None, "TensorRT is not installed"),
        ("tensorrt", "10.3.0", "TensorRT 10.3.0 is too old"),
        ("tensorrt", "10.13.3.9", "for the GPU of this machine, not for sm_121"),
        ("tensorrt-rtx", "1.6.0", "TensorRT for RTX 1.6.0 is too old"),
    ],
)
def test_what_is_missing_is_told_before_anything_is_computed(
    flavour: Flavour,
    version: str | None,
    message: str,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "installed", lambda asked: version)
    monkeypatch.setattr(check, "gpu_here", lambda: None)
    asked = replace(request(checkpoint, tmp_path / "b"), engine=EngineTarget(flavour, 121))
    events: list[BuildEvent] = []
    with pytest.raises(EdgekitError, match=re.escape(message)) as caught:
        build_bundle(asked, events.append)
    assert "--executor" in caught.value.hint
    assert not events
    assert not list(tmp_path.iterdir())


def test_too_little_memory_is_told_before_weights_are_written(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_build, "read_meminfo", lambda root: {"MemAvailable": 300 << 20})
    events: list[BuildEvent] = []
    with pytest.raises(DoesNotFitError, match=r"needs about .*, 300\.0 MiB is free") as caught:
        build_bundle(request(checkpoint, tmp_path / "b"), events.append)
    assert "--executor kernels" in caught.value.hint
    assert {event.step for event in events} == {"read"}
    assert not list(tmp_path.iterdir())


def test_a_gpu_it_does_not_know_leaves_no_bundle(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="does not build for sm_87"):
        build_bundle(request(checkpoint, tmp_path / "b", sm=87))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def quantize(recipe: str) -> Path:
        folder = tmp_path_factory.mktemp("nano") / recipe
        return quantize_checkpoint(NANO, load_recipe(recipe), folder, lambda event: None, None)

    return quantize


@pytest.mark.slow
@pytest.mark.parametrize("sm", [121, 120, 89, 86])
@pytest.mark.parametrize("recipe", ["published", "nano-int4", "nano-fp8", "nano-nvfp4"])
def test_nano_builds_for_every_gpu(
    recipe: str, sm: int, tmp_path: Path, quantized: Callable[[str], Path]
) -> None:
    asked = request(quantized(recipe), tmp_path / "bundle", sm)
    if sm < {"nano-nvfp4": 120, "nano-fp8": 89}.get(recipe, 0):
        with pytest.raises(BuildError, match=r"takes no (nvfp4|fp8) weights"):
            build_bundle(asked)
        return
    events: list[BuildEvent] = []
    bundle = Bundle.open(build_bundle(asked, events.append))
    print(recipe, sm, [event.detail for event in events if event.step == "engines"])
    assert bundle.manifest.versions["sm"] == str(sm)
    # Weights of 18.5 MB in bfloat16, and the machine code.
    limits = {"published": 45e6, "nano-int4": 35e6, "nano-fp8": 40e6, "nano-nvfp4": 37e6}
    assert bundle.manifest.files["target.plan"].nbytes < limits[recipe]


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


@pytest.mark.slow
def test_from_the_command_line_killed_and_again(tmp_path: Path) -> None:
    """A build that dies leaves no bundle, and its builder does not go on without it."""
    output = tmp_path / "bundles" / "nano"
    words = ("build", "nano", "--device", "dgx-spark", "--output", str(output))
    command = [str(Path(sys.executable).with_name("edgekit")), *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as build:
        assert build.stderr is not None
        for line in build.stderr:
            if line.startswith(b"writing weights"):
                break
        while not (workers := children(build.pid)):
            assert build.poll() is None
        build.kill()
    assert not output.exists()
    while Path(f"/proc/{workers[0]}/stat").exists():
        state = Path(f"/proc/{workers[0]}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "Z":  # nobody waits for it here
            break
        time.sleep(0.1)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(output)
    assert "executor tensorrt-rtx for sm_121: profile dgx-spark" in done.stderr
    assert [path.name for path in output.parent.iterdir()] == ["nano"]
    assert Bundle.open(output).manifest.executor == "tensorrt-rtx"
