"""The session of engines with plugins, against a stand-in for TensorRT: it is the session of the
kernels themselves. TensorRT has not run it: docs/tensorrt.md."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.errors import BundleError
from edgekit.export import build as module
from edgekit.export import engines
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.engines import EngineTarget
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.plugin_draft import PluginDraft
from edgekit.runtime.executors.plugin_engines import plugin_engine_session
from edgekit.runtime.executors.plugin_graph import read_graph
from edgekit.runtime.session import Draw
from tests.executors.cases import CASES
from tests.executors.fake_plugin_engine import VERSION, PluginEngine, graph_as_plan, most_tokens
from tests.executors.fake_tensorrt import FakeMemory, fake_tensorrt
from tests.tools.cpu_device import CpuDevice
from tests.tools.random_checkpoint import write_random_checkpoint

CONTEXT, CHUNK = 96, 24
IDS = np.random.default_rng(3).integers(0, 256, 100).tolist()
WIDE = {"pattern": "M*", "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 2}
"""Its out_proj has 4096 columns: more shared memory for eight tokens than a plugin may take."""


def build(
    checkpoint: Path, output: Path, engine: bool, drafts: DraftRequest | None = None
) -> Bundle:
    request = BuildRequest(
        checkpoint,
        output,
        "jetson-thor",
        "none",
        CONTEXT,
        CHUNK,
        lowering="plugin",
        sm=110 if engine else None,
        engine=EngineTarget("tensorrt", 110) if engine else None,
        taps=() if drafts else (0,),
        drafts=drafts or DraftRequest(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "build_engine", graph_as_plan)
        patch.setattr(module, "check_installed", lambda *what: None)
        return Bundle.open(build_bundle(request))


@pytest.fixture(scope="module", params=["every-kind", "no-mamba", "wide matrix"])
def bundles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("plans")
    case = WIDE if request.param == "wide matrix" else CASES[request.param]
    checkpoint = write_random_checkpoint(root / "checkpoint", **{**case, "head_dim": 32})
    return build(checkpoint, root / "engines", True), build(checkpoint, root / "kernels", False)


def open_engines(bundle: Bundle, memory: FakeMemory) -> PluginSession:
    return plugin_engine_session(
        bundle, fake_tensorrt(memory, VERSION, engine=PluginEngine), memory
    )


def test_a_bundle_has_plans_beside_its_graphs(bundles: tuple[Bundle, Bundle]) -> None:
    bundle, kernels = bundles
    manifest = bundle.manifest
    assert (manifest.lowering, manifest.executor) == ("plugin", "tensorrt")
    assert manifest.versions["tensorrt"] == VERSION
    files = {path.name for path in bundle.path.iterdir()}
    plans = {name for name in files if name.endswith(".plan")}
    assert plans == {name.replace(".onnx", ".plan") for name in files if name.endswith(".onnx")}
    # One copy of the weights, the same as the kernels'; no machine code but the plans'.
    weights = "weights/weights.bin"
    assert manifest.files[weights] == kernels.manifest.files[weights]
    assert "kernels" not in files
    assert "--executor tensorrt --sm 110" in bundle.rebuild_command


def test_steps_take_what_shared_memory_allows(bundles: tuple[Bundle, Bundle]) -> None:
    """A verify step always eight tokens: a product that is too wide for that is a prompt's."""
    bundle, _ = bundles
    wide = "mamba2_scan" in operators(bundle, "target.onnx") and bundle.spec.d_inner == 4096
    assert most_tokens(bundle.file("target.plan")) == (5 if wide else 8)
    assert most_tokens(bundle.file("target.verify.plan")) == 8
    assert most_tokens(bundle.file("target.prefill.plan")) == CHUNK
    assert ("linear_prefill" in operators(bundle, "target.verify.onnx")) == wide
    assert "mamba2_prefill" not in operators(bundle, "target.prefill.onnx")


def operators(bundle: Bundle, graph: str) -> set[str]:
    return {node.op for node in read_graph(bundle.file(graph)).nodes}


def test_it_is_the_session_of_the_kernels(bundles: tuple[Bundle, Bundle]) -> None:
    """Steps, chunks, verify steps with every kind of commit, snapshots, rows."""
    engines_bundle, kernels_bundle = bundles
    memory = FakeMemory(110)
    ours, theirs = open_engines(engines_bundle, memory), PluginSession(kernels_bundle, CpuDevice())

    def both(n: int, verify: bool = False) -> None:
        tokens = IDS[ours.length : ours.length + n]
        a, b = (
            session.verify(tokens) if verify else session.step(tokens, logits="all")
            for session in (ours, theirs)
        )
        # The same definitions on the same values; wide products round their input once more.
        np.testing.assert_allclose(a.logits, b.logits, atol=0.15)
        assert a.taps is not None
        assert b.taps is not None
        np.testing.assert_allclose(a.taps, b.taps, atol=0.15)

    both(1)
    both(CHUNK)
    both(7)
    for n in (0, 2, 8):
        both(8, verify=True)
        for session in (ours, theirs):
            session.commit(n)
        both(1)
    kept, rows = ours.snapshot(), ours.read_rows(0, ours.length)
    host = ours.to_host(kept)
    length = ours.length
    expected = ours.step(IDS[length : length + 2]).logits.copy()
    ours.reset()
    ours.step(IDS[50:60])
    ours.write_rows(0, tuple(part[:, :3] for part in rows))
    ours.write_rows(0, rows, skip=3)
    ours.restore(ours.from_host(length, host))
    np.testing.assert_array_equal(ours.step(IDS[length : length + 2]).logits, expected)


def test_a_shape_is_captured_at_its_second_run(bundles: tuple[Bundle, Bundle]) -> None:
    memory = FakeMemory(110)
    session = open_engines(bundles[0], memory)
    for T, captures in ((1, 0), (1, 1), (1, 1), (2, 1), (2, 2), (1, 2), (CHUNK, 2), (CHUNK, 3)):
        session.step(IDS[:T])
        assert memory.captures == captures


def test_memory_of_a_snapshot_is_given_back(bundles: tuple[Bundle, Bundle]) -> None:
    memory = FakeMemory(110)
    session = open_engines(bundles[0], memory)
    session.step(IDS[:3])
    before = len(memory.allocations)
    snapshot = session.snapshot()
    assert len(memory.allocations) - before == len(snapshot.arrays)
    del snapshot
    gc.collect()
    assert len(memory.allocations) == before


def test_a_changed_plan_and_another_version_are_refused(bundles: tuple[Bundle, Bundle]) -> None:
    bundle, _ = bundles
    with pytest.raises(BundleError, match=r"built with tensorrt 10\.13\.3\.9, and 10\.16"):
        plugin_engine_session(bundle, fake_tensorrt(FakeMemory(110), "10.16"), FakeMemory(110))
    with pytest.raises(BundleError, match="for sm_110, and this GPU is sm_121"):
        plugin_engine_session(bundle, fake_tensorrt(FakeMemory(), VERSION), FakeMemory())


def test_a_drafted_round_is_that_of_the_kernels(tmp_path: Path) -> None:
    """nano with its DSpark draft, whose graphs are engines too."""
    nano = embedded_checkpoint()
    drafts = DraftRequest(nano / "draft")
    bundle, kernels = (
        build(nano, tmp_path / name, engine, drafts)
        for name, engine in (("engines", True), ("kernels", False))
    )
    plans = {path.name for path in bundle.path.glob("dspark.*.plan")}
    assert plans == {f"dspark.{name}.plan" for name in ("context", "block", "base", "head")}
    memory = FakeMemory(110)
    text = IDS[:70]
    results = []
    for session, own in (
        (open_engines(bundle, memory), bundle),
        (PluginSession(kernels, CpuDevice()), kernels),
    ):
        drafter = PluginDraft(session, own, own.manifest.drafts[0])
        for at in range(0, len(text), CHUNK):
            tokens = text[at : at + CHUNK]
            drafter.observe(tokens, session.step(tokens).taps)
        rounds = []
        for draw in (None, Draw(0.3, 0, 0.9, 0.0, 3, True), Draw(0.3, 4, 1.0, 0.0, 3, False)):
            rounds.append(drafter.round(44, 5, draw))
            session.commit(1)
            drafter.observe([44], None)
        results.append(rounds)
    assert results[0] == results[1]
    assert memory.captures
