"""A draft's graphs in the `standard` lowering: run by ONNX Runtime they equal the NumPy
definitions, and TensorRT for RTX builds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgekit.cli.options import embedded_checkpoint
from edgekit.engines import installed
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.draft_checkpoint import DraftCheckpoint
from edgekit.export.engine import EngineRequest, Profile, build_engine
from edgekit.export.graph.drafts import build_draft
from edgekit.export.lower.standard_draft import lower_draft
from edgekit.export.reference import run_graph
from edgekit.export.weights import save_graph, write_weights
from tests.export.test_standard import load, run
from tests.speculate.test_draft_graphs import (
    TAPS,
    VARIANTS,
    block_feeds,
    context_rows,
    opened,
)
from tests.tools.random_checkpoint import write_random_checkpoint

LENGTH, TOLERANCE = 20, 1e-4
NANO = embedded_checkpoint()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(write_random_checkpoint(tmp_path_factory.mktemp("target")))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("k", [1, 7])
def test_it_equals_the_definitions(
    variant: str, k: int, tmp_path: Path, target: Checkpoint
) -> None:
    config, how = VARIANTS[variant]
    checkpoint = opened(tmp_path / "draft", config, target, **how)
    spec, graphs = checkpoint.spec, build_draft(checkpoint)
    rows = context_rows(graphs["context"], spec, TAPS[:LENGTH], 0)
    feeds = block_feeds(spec, rows, LENGTH, k)
    sizes = [array.shape[1] for name, array in feeds.items() if "_cache." in name]

    def lowered(name: str) -> ir.Model:
        model = lower_draft(graphs[name], spec, target.spec, sizes[0], "float32")
        assert {node.domain for node in model.graph} == {""}
        onnx.checker.check_model(ir.to_proto(model), full_check=True)
        return model

    cos, sin = spec.rope.angles(0, LENGTH)
    found = run(load(lowered("context")), {"taps": TAPS[:LENGTH], "cos": cos, "sin": sin})
    for name, part in rows.items():
        np.testing.assert_allclose(found[name], part, atol=TOLERANCE)

    expected = run_graph(graphs["block"], feeds)
    # What was never written, or by a block before this one, must not count.
    given = {
        name: np.nan_to_num(array, nan=1e3)[None] if "_cache." in name else array
        for name, array in feeds.items()
    }
    found = run(load(lowered("block")), given)
    for name in ("base", "hidden"):
        np.testing.assert_allclose(found[name], expected[name], atol=TOLERANCE)
    for name, before in given.items():
        if "_cache." in name:
            after = found[name.replace("_cache.", "_cache_out.")]
            np.testing.assert_array_equal(after[:, :, :LENGTH], before[:, :, :LENGTH])
    if "head" not in graphs:
        return
    state = np.random.default_rng(1).standard_normal((1, 12)).astype(np.float32)
    feeds = {"tokens": np.array([9]), "base": expected["base"][:1], "state": state}
    feeds["hidden"] = expected["hidden"][:1]
    expected, found = run_graph(graphs["head"], feeds), run(load(lowered("head")), feeds)
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=TOLERANCE)


@pytest.mark.skipif(installed("tensorrt-rtx") is None, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("name", ["context", "block", "head"])
def test_nanos_draft_is_built_for_spark(name: str, tmp_path: Path) -> None:
    nano = Checkpoint.open(NANO)
    draft = DraftCheckpoint.open(NANO / "draft", nano)
    model = lower_draft(build_draft(draft)[name], draft.spec, nano.spec, 264, "bfloat16")
    entry = write_weights([model], tmp_path / "weights.bin", "weights.bin")
    save_graph(model, tmp_path / f"{name}.onnx")
    request = EngineRequest(
        "tensorrt-rtx",
        tmp_path / f"{name}.onnx",
        tmp_path / f"{name}.plan",
        121,
        (Profile(1, 8, 8),),
        frozenset({"dense"}),
        entry.nbytes,
    )
    report = build_engine(request)
    assert report.nbytes > entry.nbytes / 2
    print(name, f"{report.nbytes / 2**20:.1f} MiB, {report.layers} layers, {report.seconds:.0f} s")
