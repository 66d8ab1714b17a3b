"""The session of TensorRT engines, against a stand-in for TensorRT: its logits are those of ONNX
Runtime's own session, and its promises are kept. TensorRT itself has not run it: docs/tensorrt.md.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.bundle import Bundle
from edgekit.detect import query_gpu
from edgekit.engines import installed
from edgekit.errors import BundleError, MissingDependencyError
from edgekit.export import build, engines
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.engine import EngineReport, EngineRequest
from edgekit.export.engines import EngineTarget
from edgekit.export.lower import standard
from edgekit.runtime.executors import open_session
from edgekit.runtime.executors.tensorrt import TensorRtSession
from edgekit.runtime.session import Session
from tests.executors.cases import TOLERANCE, random_model
from tests.executors.fake_tensorrt import (
    VERSION,
    FakeConfig,
    FakeContext,
    FakeEngine,
    FakeMemory,
    fake_tensorrt,
)

CONTEXT, CHUNK = 64, 16
CASES = ("every-kind", "no-mamba", "only-mamba", "no-state")


def onnx_as_plan(request: EngineRequest, on_progress: Any) -> EngineReport:
    """ "Builds" a plan that is the graph with its weights inside."""
    onnx.save(onnx.load(request.graph), request.plan)
    return EngineReport(request.plan, VERSION, request.plan.stat().st_size, 1, 0.0, 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tensorrt")


def bundles(name: str, root: Path, taps: tuple[int, ...] = ()) -> tuple[Bundle, Bundle]:
    """A bundle of stand-in plans in float32, and ONNX Runtime's of the same model."""
    model = random_model(name, root)
    output = root / name / f"engines-{len(taps)}"
    if not output.exists():
        request = BuildRequest(
            model.folder,
            output,
            "dgx-spark",
            "none",
            CONTEXT,
            CHUNK,
            lowering="standard",
            sm=121,
            engine=EngineTarget("tensorrt-rtx", 121),
            taps=taps,
        )
        lower = standard.lower
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engines, "build_engine", onnx_as_plan)
            patch.setattr(build.standard, "lower", lambda m, s, c, _: lower(m, s, c, "float32"))
            build_bundle(request)
    ours = model.bundle(context=CONTEXT, prefill_chunk=CHUNK, taps=taps)
    return Bundle.open(output), ours


def sessions(name: str, root: Path, taps: tuple[int, ...] = ()) -> tuple[Session, Session]:
    bundle, other = bundles(name, root, taps)
    memory = FakeMemory()
    engine = TensorRtSession(bundle, fake_tensorrt(memory), memory)
    return engine, open_session(other, threads=1)


@pytest.mark.parametrize("name", CASES)
def test_steps_and_chunks_are_those_of_onnx_runtime(name: str, root: Path) -> None:
    taps = (0,) if name == "every-kind" else ()
    engine, ort = sessions(name, root, taps)
    ids = random_model(name, root).ids
    for T in (16, 1, 9, 8, 1, 3):
        tokens = ids[ort.length :][:T]
        wanted, got = (session.step(tokens, logits="all") for session in (ort, engine))
        assert np.abs(got.logits - wanted.logits).max() <= TOLERANCE
        if taps:
            assert got.taps is not None
            assert np.abs(got.taps - wanted.taps).max() <= TOLERANCE
        assert engine.length == ort.length
    engine.reset()
    first = engine.step(ids[:16]).logits
    engine.close()
    ort.reset()
    assert np.abs(first - ort.step(ids[:16]).logits).max() <= TOLERANCE


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("accepted", [0, 1, 4, 8])
def test_verify_commits_what_is_accepted(name: str, accepted: int, root: Path) -> None:
    engine, ort = sessions(name, root)
    ids = random_model(name, root).ids
    for session in (engine, ort):
        session.step(ids[:10])
    wanted = ort.verify(ids[10:18]).logits
    assert np.abs(engine.verify(ids[10:18]).logits - wanted).max() <= TOLERANCE
    with pytest.raises(ValueError, match="waiting for commit"):
        engine.step(ids[:1])
    for session in (engine, ort):
        session.commit(accepted)
    assert engine.length == 10 + accepted
    with pytest.raises(ValueError, match="does not follow"):
        engine.commit(0)
    after, expected = (session.step(ids[30:31]).logits for session in (engine, ort))
    assert np.abs(after - expected).max() <= TOLERANCE


def test_snapshots_and_rows_come_back(root: Path) -> None:
    engine, _ = sessions("every-kind", root)
    ids = random_model("every-kind", root).ids
    engine.step(ids[:12])
    snapshot, rows = engine.snapshot(), engine.read_rows(0, 12)
    expected = engine.step(ids[12:13]).logits
    engine.step(ids[20:30])
    engine.restore(snapshot)
    assert np.array_equal(engine.step(ids[12:13]).logits, expected)
    other, _ = sessions("every-kind", root)
    other.write_rows(0, tuple(part[:, :, :5] for part in rows))
    other.write_rows(3, tuple(part[:, :, 3:] for part in rows), skip=2)
    other.restore(other.from_host(12, engine.to_host(snapshot)))
    assert np.array_equal(other.step(ids[12:13]).logits, expected)
    with pytest.raises(ValueError, match="of another model"):
        other.from_host(12, snapshot.arrays[1:])


def test_a_small_step_is_captured_for_each_buffer_of_the_state(root: Path) -> None:
    bundle, _ = bundles("every-kind", root)
    memory = FakeMemory()
    session = TensorRtSession(bundle, fake_tensorrt(memory), memory)
    ids = random_model("every-kind", root).ids
    for T, captures in ((1, 0), (1, 0), (1, 1), (1, 2), (1, 2), (16, 2), (16, 2), (2, 2)):
        session.step(ids[:T])
        assert memory.captures == captures


def test_what_was_compiled_is_kept(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundle, _ = bundles("every-kind", root)
    for expected in ([], [b"kernels", b"kernels"]):  # of the step and of the commit engine
        memory = FakeMemory()
        session = TensorRtSession(bundle, fake_tensorrt(memory), memory)
        assert memory.compiled == expected
        session.close()
    assert not list(tmp_path.rglob("*.part"))


def test_engines_for_something_else_are_refused(root: Path) -> None:
    bundle, _ = bundles("no-state", root)
    memory = FakeMemory()
    with pytest.raises(BundleError, match=r"built with tensorrt-rtx 1\.7\.1\.116, and 1\.8"):
        TensorRtSession(bundle, fake_tensorrt(memory, "1.8"), memory)
    with pytest.raises(BundleError, match="for sm_121, and this GPU is sm_120"):
        TensorRtSession(bundle, fake_tensorrt(memory), FakeMemory(120))
    with pytest.raises(BundleError, match=r"cannot load target\.plan") as caught:
        TensorRtSession(bundle, fake_tensorrt(memory, loads=False), memory)
    assert "edgekit build" in caught.value.hint


def test_a_changed_plan_is_not_loaded(root: Path) -> None:
    bundle, _ = bundles("no-mamba", root)
    plan = bundle.file("target.plan")
    data = bytearray(plan.read_bytes())
    data[len(data) // 2] ^= 1
    plan.write_bytes(data)
    memory = FakeMemory()
    trt = fake_tensorrt(memory)
    trt.Runtime = lambda logger: pytest.fail("loaded") if logger is None else object()
    with pytest.raises(BundleError, match=r"target\.plan .* was changed") as caught:
        TensorRtSession(bundle, trt, memory)
    assert "--force" in caught.value.hint


@pytest.mark.skipif(query_gpu() is not None, reason="there is a GPU")
def test_without_a_gpu_it_says_so(root: Path) -> None:
    bundle, _ = bundles("no-state", root)
    with pytest.raises(MissingDependencyError):
        open_session(bundle)


@pytest.mark.skipif(installed("tensorrt-rtx") is None, reason="TensorRT for RTX is not installed")
def test_the_stand_in_has_no_names_of_its_own() -> None:
    """Every call that the session makes exists in NVIDIA's module."""
    trt = importlib.import_module("tensorrt_rtx_bindings")
    for fake, real in (
        (FakeEngine, trt.ICudaEngine),
        (FakeContext, trt.IExecutionContext),
        (FakeConfig, trt.IRuntimeConfig),
    ):
        public = {name for name in vars(fake) if not name.startswith("_")}
        assert public <= set(dir(real))
    assert {"num_io_tensors", "num_optimization_profiles"} <= set(dir(trt.ICudaEngine))
    assert hasattr(trt.IExecutionContext, "active_optimization_profile")
    assert hasattr(trt.TensorIOMode, "INPUT")
    assert hasattr(trt.DynamicShapesKernelSpecializationStrategy, "EAGER")
    assert {"serialize", "deserialize"} <= set(dir(trt.IRuntimeCache))
    assert hasattr(trt.ExecutionContextAllocationStrategy, "USER_MANAGED")
    assert hasattr(trt.Runtime, "deserialize_cuda_engine")
