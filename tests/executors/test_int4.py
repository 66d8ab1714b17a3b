"""int4 weights on ONNX Runtime's 4-bit kernels, which round activations to 8 bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.bundle import Bundle
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.graph.nemotron_h import build_step
from edgekit.export.reference import ReferenceSession
from edgekit.runtime.executors import open_session
from edgekit.runtime.verify import verify_bundle
from tests.tools.int4_checkpoint import write_int4_checkpoint
from tests.tools.random_checkpoint import write_random_checkpoint

IDS = np.random.default_rng(5).integers(0, 96, 40).tolist()


@pytest.fixture(scope="module", params=[32, 64])
def int4(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("int4")
    dense = write_random_checkpoint(
        root / "dense",
        pattern="M*E-ME",
        vocab_size=96,
        hidden_size=64,
        mamba_num_heads=4,
        mamba_head_dim=32,
        ssm_state_size=32,
        n_groups=2,
        head_dim=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=64,
        moe_shared_expert_intermediate_size=64,
    )
    return write_int4_checkpoint(dense, root / "int4", request.param)


@pytest.fixture(scope="module")
def bundle(int4: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    output = tmp_path_factory.mktemp("bundles") / "int4"
    return Bundle.open(build_bundle(BuildRequest(int4, output, "cpu", "none", 64, 16)))


def test_weights_stay_four_bits(bundle: Bundle) -> None:
    nodes = onnx.load(bundle.file("target.onnx"), load_external_data=False).graph.node
    kinds = [node.op_type for node in nodes]
    assert kinds.count("QMoE") == 2
    assert "MoE" not in kinds
    assert kinds.count("MatMul") == 2  # the routers
    assert bundle.manifest.weights_format == "float32+int4"


def test_logits_are_near_the_reference(int4: Path, bundle: Bundle) -> None:
    checkpoint = Checkpoint.open(int4)
    reference = ReferenceSession(build_step(checkpoint), checkpoint.spec, 64)
    expected = reference.step(IDS)["logits"]
    session = open_session(bundle, threads=1)
    chunks = [session.step(IDS[i : i + 16], logits="all").logits.copy() for i in range(0, 40, 16)]
    logits = np.concatenate(chunks)
    error = np.linalg.norm(logits - expected) / np.linalg.norm(expected)
    assert error < 0.05
    session.reset()
    for token, row in zip(IDS, logits, strict=True):
        assert np.abs(session.step([token]).logits[0] - row).max() < 0.05 * np.abs(row).max()


def test_verify_accepts_it(bundle: Bundle) -> None:
    report = verify_bundle(bundle)
    assert report.agreeing + report.near_ties == report.positions
