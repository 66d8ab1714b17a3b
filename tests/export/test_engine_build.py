"""Engines of TensorRT for RTX, built without a GPU, and every way in which a build can fail."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from edgekit.engines import KNOWN_BAD, installed
from edgekit.errors import BuildError, DoesNotFitError, MissingDependencyError
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.engine import EngineRequest, Profile, build_engine
from edgekit.export.engine.build import predicted_bytes
from edgekit.export.engine.flavour import Toolkit
from edgekit.export.engine.layers import check_layers, parse_layers
from edgekit.export.graph.nemotron_h import build_step
from edgekit.export.lower import standard
from edgekit.export.weights import save_graph, write_weights
from tests.tools.int4_checkpoint import write_int4_checkpoint
from tests.tools.random_checkpoint import write_random_checkpoint

needs_rtx = pytest.mark.skipif(
    installed("tensorrt-rtx") is None, reason="TensorRT for RTX is not installed"
)
PROFILES = (Profile(1, 1, 8), Profile(1, 16, 16))


def request(folder: Path, checkpoint: Path, sm: int = 121) -> EngineRequest:
    """A request for an engine of a checkpoint, whose graph is written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    read = Checkpoint.open(checkpoint)
    model = standard.lower(build_step(read), read.spec, 32, "bfloat16")
    entry = write_weights([model], folder / "weights.bin", "weights.bin")
    save_graph(model, folder / "step.onnx")
    formats = frozenset(str(form) for form in read.formats.values())
    plan = folder / "step.plan"
    return EngineRequest(
        "tensorrt-rtx", folder / "step.onnx", plan, sm, PROFILES, formats, entry.nbytes
    )


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> EngineRequest:
    root = tmp_path_factory.mktemp("engine")
    checkpoint = write_random_checkpoint(root / "dense", pattern="-", dtype="bfloat16")
    return request(root / "graph", write_int4_checkpoint(checkpoint, root / "int4"))


def answering(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import json, os, signal, sys\nsys.stdin.read()\n{script}")


# -- building


@needs_rtx
def test_an_engine_is_built_without_a_gpu(asked: EngineRequest) -> None:
    told: list[tuple[int, int]] = []
    report = build_engine(asked, lambda done, total, phase: told.append((done, total)))
    assert report.plan == asked.plan
    assert asked.plan.stat().st_size == report.nbytes > asked.weight_bytes
    assert report.version == installed("tensorrt-rtx")
    assert report.layers > 4
    assert report.peak_bytes < predicted_bytes(asked.weight_bytes)
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert len(told) > 10
    assert sorted(path.name for path in asked.plan.parent.iterdir()) == [
        "step.onnx",
        "step.plan",
        "weights.bin",
    ]


@needs_rtx
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sm": 87}, BuildError, "does not build for sm_87"),
        ({"sm": 89, "formats": frozenset({"nvfp4"})}, BuildError, "no nvfp4 weights for sm_89"),
        ({"sm": 86, "formats": frozenset({"fp8"})}, BuildError, "no fp8 weights for sm_86"),
        ({"formats": frozenset({"int4", "fp8"})}, BuildError, "does not hold its fp8 weights"),
    ],
)
def test_what_cannot_be_built_is_refused(
    asked: EngineRequest, change: dict[str, object], error: type[Exception], message: str
) -> None:
    changed = replace(asked, plan=asked.plan.with_name("other.plan"), **change)  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        build_engine(changed)
    assert not list(asked.plan.parent.glob("other.plan*"))


@needs_rtx
def test_an_operator_without_a_plugin_is_named(asked: EngineRequest, tmp_path: Path) -> None:
    model = onnx.load(asked.graph, load_external_data=False)
    node = next(node for node in model.graph.node if node.op_type == "RMSNormalization")
    node.op_type, node.domain = "MoeExperts", "edgekit"
    del node.attribute[:]
    model.opset_import.append(onnx.helper.make_opsetid("edgekit", 1))
    onnx.save(model, tmp_path / "step.onnx")
    (tmp_path / "weights.bin").symlink_to(asked.graph.with_name("weights.bin"))
    bad = replace(asked, graph=tmp_path / "step.onnx", plan=tmp_path / "step.plan")
    with pytest.raises(BuildError, match=r"does not take step\.onnx") as caught:
        build_engine(bad)
    assert "plugin" in caught.value.cause.lower()
    assert "--executor kernels" in caught.value.hint
    assert not bad.plan.exists()


# -- failures of the builder's process


def test_too_little_memory_is_found_before_the_build(asked: EngineRequest, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 300000 kB\n")
    with pytest.raises(DoesNotFitError, match=r"needs about .* 293\.0 MiB is free"):
        build_engine(asked, root=tmp_path, command=answering("raise SystemExit('must not run')"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "builder was killed"),
        ("os.kill(os.getpid(), signal.SIGABRT)", "died with signal 6"),
        ("sys.exit('terminate called')", "died with exit code 1"),
        (
            "print(json.dumps({'type': 'done', 'plan': 'x', 'version': '1', 'nbytes': 5,"
            " 'layers': 1, 'seconds': 0, 'peak_bytes': 1}))",
            "is not there",
        ),
    ],
)
def test_a_builder_that_dies_leaves_one_error_and_no_plan(
    asked: EngineRequest, script: str, message: str
) -> None:
    plan = asked.plan.with_name("dead.plan")
    write = f"open({str(plan) + '.part'!r}, 'w').write('half')\n"
    with pytest.raises(BuildError, match=message) as caught:
        build_engine(replace(asked, plan=plan), command=answering(write + script))
    assert caught.value.hint
    assert not list(plan.parent.glob("dead.plan*"))


def test_an_interrupted_build_ends_its_process(asked: EngineRequest) -> None:
    script = (
        "print(json.dumps({'type': 'progress', 'done': os.getpid(), 'phase': ''}), flush=True)\n"
        "signal.pause()"
    )
    seen = []

    def interrupt(done: int, total: int, phase: str) -> None:
        seen.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_engine(asked, interrupt, command=answering(script))
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], signal.SIGTERM)


# -- versions


def test_versions_that_are_too_old_or_bad_are_refused() -> None:
    old = Toolkit("tensorrt-rtx", None, "1.6.0")
    with pytest.raises(MissingDependencyError, match=r"1\.6\.0 is too old") as caught:
        old.check(121, frozenset())
    assert "tensorrt-rtx" in caught.value.hint
    assert all(bad.source and bad.workaround for bad in KNOWN_BAD)
    with pytest.raises(MissingDependencyError, match="sm_110") as caught:
        Toolkit("tensorrt", None, "10.14.1").check(110, frozenset())
    assert "issue 4830" in caught.value.cause
    Toolkit("tensorrt", None, "10.14.1").check(121, frozenset())


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="it is installed")
def test_a_missing_flavour_says_what_to_install(asked: EngineRequest) -> None:
    plan = asked.plan.with_name("other.plan")
    with pytest.raises(MissingDependencyError, match="TensorRT is not installed") as caught:
        build_engine(replace(asked, flavour="tensorrt", plan=plan))
    assert "10.9" in caught.value.hint


# -- layers

LISTING = (
    "Layers:\n"
    "Name: a, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [-1,64], Datatype: {t}, Format: "
    "(Linear) Row major linear format }], Constants: [ { Name: w, Datatype: Int4, Format: f }], "
    "Outputs: [ { Name: y, Datatype: {t}, Format: f }], TacticName: t, StreamId: 0, "
    "Metadata: [ONNX Layer: MatMul:up.product][ONNX Layer: Relu:r]\n"
)


def test_an_engine_that_fell_back_to_float32_is_refused() -> None:
    good = parse_layers(LISTING.replace("{t}", "BFloat16"))
    assert good[0].nodes == ("MatMul:up.product", "Relu:r")
    assert good[0].constants == ("Int4",)
    check_layers(good, frozenset({"int4"}), ["MatMul:up.product"])
    wide = parse_layers(LISTING.replace("{t}", "Float"))
    with pytest.raises(BuildError, match="1 matrix products of the engine fell back to float32"):
        check_layers(wide, frozenset({"int4"}), ["MatMul:up.product"])
    check_layers(wide, frozenset({"int4"}), ["another"])
    with pytest.raises(BuildError, match="does not hold its nvfp4"):
        check_layers(good, frozenset({"nvfp4"}), [])
    with pytest.raises(BuildError, match="lists no layers"):
        check_layers(parse_layers("nothing"), frozenset(), [])


def test_requests_survive_the_way_to_the_worker(asked: EngineRequest) -> None:
    asked = replace(asked, timing_cache=Path("/tmp/cache"))
    assert EngineRequest.from_json(asked.to_json()) == asked
    assert json.loads(asked.to_json())["formats"] == ["int4"]
