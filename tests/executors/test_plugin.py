"""The `plugin` lowering and its session, on the CPU: every node by its NumPy definition, and by its
kernel in the emulator.

Activations are bfloat16, so logits of standard deviation 3 differ from float32 ones by up to 0.15.
Now and then that much turns the choice of an expert, and a row differs by more.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BuildError, DoesNotFitError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.kernels import nodes
from edgekit.kernels.attention import KvCache
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.executors import open_session
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.program import Call
from edgekit.runtime.sampling import distribution
from edgekit.runtime.session import MAX_VERIFY, Draw, Session
from tests.executors.cases import CASES, F32
from tests.export.corrupt import LIGHTNING_SMALL
from tests.tools.cpu_device import Array, CpuDevice, Run, emulated, reference
from tests.tools.int4_checkpoint import write_int4_checkpoint
from tests.tools.plugin_reference import philox
from tests.tools.random_checkpoint import write_random_checkpoint
from tests.tools.synthetic_lightning import write_synthetic_lightning

TOLERANCE = 0.2
IDS = np.random.default_rng(1).integers(0, 256, 100).tolist()
CONTEXT, CHUNK = 96, 24

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ for the emulator")


def build(
    folder: Path, lowering: str, taps: tuple[int, ...] = (), kv_dtype: KvCache = "bfloat16"
) -> Bundle:
    request = BuildRequest(
        folder,
        folder.with_name(f"{folder.name}-{lowering}"),
        "cpu",
        "none",
        CONTEXT,
        CHUNK,
        lowering="plugin" if lowering == "plugin" else "ort",
        taps=taps,
        kv_dtype=kv_dtype,
    )
    return Bundle.open(build_bundle(request))


def sessions(
    folder: Path, run: Run = reference, taps: tuple[int, ...] = ()
) -> tuple[PluginSession, Session]:
    """The plugin session, and ONNX Runtime on the same checkpoint."""
    plugin = PluginSession(build(folder, "plugin", taps), CpuDevice(run))
    return plugin, open_session(build(folder, "ort", taps), threads=1)


def assert_follows(actual: F32, expected: F32, turned: float = 0.0) -> None:
    """Rows agree, but for a share `turned` of them, where an expert may have changed."""
    differences = np.abs(actual - expected).max(axis=1)
    assert np.mean(differences > TOLERANCE) <= turned, differences.round(2)


@pytest.mark.parametrize("name", CASES)
def test_logits_follow_onnxruntime(name: str, tmp_path: Path) -> None:
    """Single tokens, verify steps with every kind of commit, and chunks, of one sequence."""
    folder = write_random_checkpoint(tmp_path / "checkpoint", **CASES[name])
    plugin, ort = sessions(folder, taps=(0, 1))
    rows: list[tuple[F32, F32]] = []

    def step(n: int) -> None:
        tokens = IDS[plugin.length : plugin.length + n]
        ours, theirs = (session.step(tokens, logits="all") for session in (plugin, ort))
        rows.append((ours.logits.copy(), theirs.logits.copy()))
        assert ours.taps is not None
        assert theirs.taps is not None
        assert_follows(ours.taps, theirs.taps, turned=0.1)

    step(1)
    step(CHUNK)
    for n in (0, 1, 3, 5):
        tokens = IDS[plugin.length : plugin.length + 5]
        ours, theirs = (session.verify(tokens).logits for session in (plugin, ort))
        rows.append((ours.copy(), theirs.copy()))
        for session in (plugin, ort):
            session.commit(n)
        step(1)
    step(7)
    assert plugin.length == ort.length
    actual, expected = (np.concatenate(side) for side in zip(*rows, strict=True))
    assert_follows(actual, expected, turned=0.05 if "E" in CASES[name]["pattern"] else 0.0)


@pytest.fixture(scope="module", params=["fp8 and nvfp4", "int4"])
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("quantized")
    if request.param == "fp8 and nvfp4":
        return write_synthetic_lightning(
            root / "checkpoint", dims=replace(LIGHTNING_SMALL, head_dim=32)
        )
    dense = write_random_checkpoint(
        root / "dense",
        pattern="M*E-",
        vocab_size=256,
        head_dim=32,
        intermediate_size=128,
        moe_intermediate_size=64,
        moe_shared_expert_intermediate_size=64,
    )
    return write_int4_checkpoint(dense, root / "checkpoint", 32)


@pytest.fixture(scope="module")
def quantized_bundle(quantized: Path) -> Bundle:
    return build(quantized, "plugin")


def test_quantized_weights_stay_so(quantized: Path, quantized_bundle: Bundle) -> None:
    stored = sum(path.stat().st_size for path in quantized.iterdir())
    # Small matrices are padded to whole tiles and pages.
    assert quantized_bundle.manifest.files["weights/weights.bin"].nbytes < 2 * stored


def test_quantized_logits_follow_onnxruntime(quantized: Path, quantized_bundle: Bundle) -> None:
    plugin, ort = (
        PluginSession(quantized_bundle, CpuDevice()),
        open_session(build(quantized, "ort")),
    )
    ours, theirs = (session.step(IDS[:20], logits="all").logits for session in (plugin, ort))
    errors = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    assert np.median(errors) < 0.03


@pytest.mark.parametrize("run", [reference, pytest.param(emulated, marks=needs_compiler)])
def test_an_e4m3_cache(run: Run, tmp_path: Path) -> None:
    """Logits behind it stay near those behind a bfloat16 cache, and are not the same."""
    rows, dtypes = [], []
    for kv_dtype in get_args(KvCache):
        folder = write_random_checkpoint(tmp_path / kv_dtype, pattern="*-", head_dim=32)
        bundle = build(folder, "plugin", kv_dtype=kv_dtype)
        dtypes.append({t.dtype for t in bundle.manifest.target.state if t.kind == "cache"})
        session = PluginSession(bundle, CpuDevice(run))
        session.step(IDS[:CHUNK])
        rows.append(session.step(IDS[CHUNK : CHUNK + 3], logits="all").logits.copy())
    assert dtypes == [{"bfloat16"}, {"float8_e4m3fn"}]
    assert 0 < np.abs(rows[0] - rows[1]).max() < 3 * TOLERANCE


def test_the_device_chooses_what_the_host_would(tmp_path: Path) -> None:
    plugin, _ = sessions(write_random_checkpoint(tmp_path))
    plugin.step(IDS[:5])
    snapshot = plugin.snapshot()
    expected = [int(plugin.step([token]).logits[0].argmax()) for token in IDS[5:9]]
    plugin.restore(snapshot)
    assert [plugin.step_choose(token, None) for token in IDS[5:9]] == expected
    assert plugin.length == 9


def test_the_device_draws_by_seed_and_position(tmp_path: Path) -> None:
    """One token at a time, and behind a verify step's tokens, the same numbers are used."""
    plugin, _ = sessions(write_random_checkpoint(tmp_path))
    draw = Draw(1.0, 0, 1.0, 0.0, 2**63 + 5, drafts=True)
    plugin.step(IDS[:5])
    snapshot = plugin.snapshot()
    logits = [plugin.step([token]).logits[0].copy() for token in IDS[5:9]]
    params = SamplingParams(temperature=1.0)
    expected = []
    for position, row in enumerate(logits, start=5):
        mass = np.cumsum(distribution(row, params))
        expected.append(int(np.searchsorted(mass, philox(position, 0, draw.seed) / 2**64, "right")))
    plugin.restore(snapshot)
    assert [plugin.step_choose(token, draw) for token in IDS[5:9]] == expected
    plugin.restore(snapshot)
    assert plugin.verify_choose(IDS[5:9], draw) == expected
    plugin.commit(4)
    assert plugin.length == 9


def test_a_device_that_finds_nan_says_so(tmp_path: Path) -> None:
    def broken(call: Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        reference(call, inputs, outputs)
        if call.node.op == "argmax":
            outputs[0][...] = -1

    plugin, _ = sessions(write_random_checkpoint(tmp_path), broken)
    with pytest.raises(BuildError, match="NaN or infinite"):
        plugin.step_choose(3, None)


@needs_compiler
def test_kernels_take_what_the_graph_gives_them(quantized_bundle: Bundle) -> None:
    """Every launch in the emulator, against its node's definition."""
    seen: set[str] = set()

    def both(call: Call, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        seen.add(call.node.op)
        before = {id(array): array.copy() for array in (*inputs, *outputs)}
        emulated(call, inputs, outputs)
        own = [before[id(array)] for array in outputs]
        reference(call, [before[id(array)] for array in inputs], own)
        for name, actual, expected in zip(call.node.outputs, outputs, own, strict=True):
            own_business = (
                name.startswith("partials")
                or name.endswith("sums")
                or name in ("slices", "scratch")
            )
            if own_business:
                continue
            # What neither writes still holds the bits of what was there before.
            written = actual.view(np.uint8) != expected.view(np.uint8)
            written = written.reshape(*actual.shape, -1).any(axis=-1) | np.isfinite(expected)
            ours, theirs = (a.astype(np.float64)[written] for a in (actual, expected))
            assert np.linalg.norm(ours - theirs) <= 1e-2 * np.linalg.norm(theirs), name

    session = PluginSession(quantized_bundle, CpuDevice(both))
    session.step(IDS[:3])
    session.verify(IDS[3:5])
    session.commit(1)
    session.step(IDS[4:15])
    assert session.step_choose(IDS[15], None) >= 0
    assert session.step_choose(IDS[16], Draw(1.0, 0, 0.95, 0.0, 7, drafts=True)) >= 0
    elsewhere = {"judge", "norm_rope", "context_rows", "swiglu"}  # where there is a draft
    assert seen | elsewhere == set(nodes.OPERATORS)


# -- the contract


@pytest.fixture(params=["four-groups", "no-mamba", "every-kind"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> PluginSession:
    folder = write_random_checkpoint(tmp_path / "checkpoint", **CASES[request.param])
    return PluginSession(build(folder, "plugin"), CpuDevice())


def test_commit_leaves_what_single_steps_leave(session: PluginSession) -> None:
    session.step(IDS[:5])
    start = session.snapshot()
    states = [start]
    for token in IDS[5 : 5 + MAX_VERIFY]:
        session.step([token])
        states.append(session.snapshot())
    for T in (1, 4, MAX_VERIFY):
        for n in (0, 1, T):
            session.restore(start)
            session.verify(IDS[5 : 5 + T])
            session.commit(n)
            after = session.snapshot()
            assert after.length == 5 + n
            for one, other in zip(after.arrays, states[n].arrays, strict=True):
                np.testing.assert_allclose(
                    one.view(np.float32), other.view(np.float32), rtol=0.02, atol=0.05
                )


def test_restore_and_reset_are_exact(session: PluginSession) -> None:
    first = session.step(IDS[:6]).logits.copy()
    snapshot = session.snapshot()
    expected = [session.step([token]).logits.copy() for token in IDS[6:9]]
    session.verify(IDS[:3])
    session.restore(snapshot)
    for token, logits in zip(IDS[6:9], expected, strict=True):
        np.testing.assert_array_equal(session.step([token]).logits, logits)
    session.verify(IDS[:3])
    session.reset()
    assert session.length == 0
    np.testing.assert_array_equal(session.step(IDS[:6]).logits, first)


def test_a_prefix_moves_to_another_session(session: PluginSession, tmp_path: Path) -> None:
    session.step(IDS[:6])
    kept, rows = session.snapshot(), session.read_rows(0, 6)
    arrays = session.to_host(kept)
    expected = session.step(IDS[6:9]).logits
    session.reset()
    session.step(IDS[20:28])
    session.write_rows(0, tuple(part[:, :2] for part in rows))
    session.write_rows(0, rows, skip=2)
    session.restore(session.from_host(6, arrays))
    np.testing.assert_array_equal(session.step(IDS[6:9]).logits, expected)
    if arrays:
        with pytest.raises(ValueError, match="another model"):
            session.from_host(6, (*arrays, arrays[0]))


def test_what_is_refused(session: PluginSession) -> None:
    with pytest.raises(ValueError, match="does not follow a verify"):
        session.commit(0)
    with pytest.raises(ValueError, match="at most 8"):
        session.verify([1] * 9)
    with pytest.raises(ValueError, match=rf"1\.\.{CHUNK} tokens"):
        session.step([1] * (CHUNK + 1))
    with pytest.raises(ValueError, match="token ids run from 0 to 255"):
        session.step([256])
    session.verify([1])
    with pytest.raises(ValueError, match="waiting for commit"):
        session.step([1])
    session.commit(0)
    for _ in range(CONTEXT // CHUNK):
        session.step(IDS[:CHUNK])
    with pytest.raises(DoesNotFitError, match=f"{CONTEXT} tokens and 1 more, of {CONTEXT}"):
        session.step([1])
    session.close()


def test_launches_of_a_step(tmp_path: Path) -> None:
    """Three launches a layer of experts or attention, one commit whatever the number of layers."""
    folder = write_random_checkpoint(tmp_path / "checkpoint", **CASES["every-kind"])
    device = CpuDevice()
    session = PluginSession(build(folder, "plugin"), device)
    session.step([1])
    assert device.calls == {
        "embed": 1,
        "linear_step": 9,  # in and out of two Mamba layers, attention and the MLP; the head
        "mamba2_scan": 2,
        "attention_step": 1,
        "moe_route_step": 2,
        "moe_up_step": 2,
        "moe_down_step": 2,
    }
    device.calls.clear()
    session.verify([1, 2])
    device.calls.clear()
    session.commit(1)
    assert device.calls == {"mamba2_commit": 1}


def test_a_long_step_needs_the_head_once(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "checkpoint", **CASES["only-mamba"])
    device = CpuDevice()
    session = PluginSession(build(folder, "plugin"), device)
    output = session.step(IDS[:20])
    assert output.logits.shape == (1, 256)
    assert device.calls == {
        "embed": 1,
        "norm_prefill": 4,
        "linear_prefill": 4,
        "mamba2_prefill": 2,
        "linear_step": 1,
    }


def test_all_logits_of_a_long_step(session: PluginSession) -> None:
    """The head takes them in eights; the last are those of a step that returns no others."""
    logits = session.step(IDS[:20], logits="all").logits
    assert logits.shape == (20, session.vocab_size)
    session.reset()
    last = session.step(IDS[:20]).logits[0]
    np.testing.assert_allclose(last, logits[-1], atol=1e-5)  # BLAS sums one row in another order


def test_dimensions_without_a_kernel_are_refused(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "checkpoint", pattern="M*", head_dim=24)
    request = BuildRequest(
        folder, tmp_path / "bundle", "gpu", "none", 64, 16, lowering="plugin", sm=87
    )
    with pytest.raises(BuildError, match="cannot run on edgekit's CUDA kernels") as caught:
        build_bundle(request)
    assert "head_dim 24 is not one of" in caught.value.cause
    assert not (tmp_path / "bundle").exists()
