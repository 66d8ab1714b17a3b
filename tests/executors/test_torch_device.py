"""What the torch executor needs no GPU for: its memory, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError, MissingDependencyError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.kernels.launch import Kernel
from edgekit.manifest import KERNELS
from edgekit.runtime.executors import open_session
from edgekit.runtime.executors import torch as executor
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.program import Call
from edgekit.runtime.executors.torch import TorchDevice, kernel_loader
from tests.executors.cases import CASES
from tests.tools.cpu_device import CpuDevice
from tests.tools.plugin_reference import compute
from tests.tools.random_checkpoint import write_random_checkpoint

torch = pytest.importorskip("torch")
IDS = np.random.default_rng(1).integers(0, 256, 30).tolist()


class TorchOnCpu(TorchDevice):
    """PyTorch's memory, NumPy's launches."""

    def __init__(self) -> None:
        super().__init__(lambda kernel: b"", kind="cpu")

    def ready(self, calls: Any) -> Callable[[], None]:
        def run() -> None:
            for call in calls:
                self._enqueue(call)

        return run

    def _load_kernels(self, calls: Any) -> None:
        pass

    def _enqueue(self, call: Call) -> None:
        if call.launch is None:
            super()._enqueue(call)
            return
        shared = {id(v.memory): v.memory.numpy() for v in (*call.inputs, *call.outputs)}
        views = [
            [replace(view, memory=shared[id(view.memory)]) for view in side]
            for side in (call.inputs, call.outputs)
        ]
        device = CpuDevice(lambda c, i, o: compute(c.node.op, c.node.attributes, i, o))
        device.ready([replace(call, inputs=tuple(views[0]), outputs=tuple(views[1]))])()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    folder = write_random_checkpoint(tmp_path / "checkpoint", **CASES["every-kind"])
    request = BuildRequest(
        folder, tmp_path / "bundle", "gpu", "none", 64, 16, lowering="plugin", taps=(0, 3)
    )
    return Bundle.open(build_bundle(request))


def test_memory_of_torch_is_memory_of_numpy(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "PIECE", 10_000)  # the weights come in many pieces
    ours, theirs = PluginSession(bundle, TorchOnCpu()), PluginSession(bundle, CpuDevice())
    for session in (ours, theirs):
        session.step(IDS[:12])
    saved = [session.snapshot() for session in (ours, theirs)]
    assert saved[0].nbytes == saved[1].nbytes == bundle.spec.state_bytes()
    for _ in range(2):
        for session in (ours, theirs):
            session.verify(IDS[12:16])
            session.commit(2)
        outputs = [session.step(IDS[14:15]) for session in (ours, theirs)]
        np.testing.assert_array_equal(outputs[0].logits, outputs[1].logits)
        assert outputs[0].taps is not None
        assert outputs[1].taps is not None
        np.testing.assert_array_equal(outputs[0].taps, outputs[1].taps)
        for session, snapshot in zip((ours, theirs), saved, strict=True):
            session.restore(snapshot)
    for mine, yours in zip(ours.read_rows(3, 7), theirs.read_rows(3, 7), strict=True):
        np.testing.assert_array_equal(mine, yours)
    for session, other in ((ours, theirs), (theirs, ours)):
        session.write_rows(0, other.read_rows(0, 12))
    for mine, yours in zip(
        ours.to_host(ours.snapshot()), theirs.to_host(theirs.snapshot()), strict=True
    ):
        np.testing.assert_array_equal(mine, yours)
    for session in (ours, theirs):
        session.reset()
    outputs = [session.step(IDS[:3], logits="all") for session in (ours, theirs)]
    np.testing.assert_array_equal(outputs[0].logits, outputs[1].logits)


def test_a_kernel_of_another_version(bundle: Bundle) -> None:
    index = bundle.file(KERNELS)
    index.parent.mkdir()
    kernel = Kernel("a.cu", "a")
    index.write_text(json.dumps({kernel.key: "kernels/a.cubin"}))
    bundle.file("kernels/a.cubin").write_bytes(b"code")
    load = kernel_loader(bundle)
    assert load(kernel) == b"code"
    with pytest.raises(BundleError, match="no kernel 'a' as this edgekit") as caught:
        load(Kernel("a.cu", "a", (("T", 1),)))
    assert "edgekit build" in caught.value.hint


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(bundle: Bundle) -> None:
    with pytest.raises(MissingDependencyError, match="needs an NVIDIA GPU"):
        open_session(bundle)


def test_another_gpu(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 7))
    versions = bundle.manifest.versions | {"sm": "90"}
    other = replace(bundle, manifest=replace(bundle.manifest, versions=versions))
    with pytest.raises(BundleError, match="is for sm_90, and this GPU is sm_87") as caught:
        open_session(other)
    assert "edgekit build" in caught.value.hint
