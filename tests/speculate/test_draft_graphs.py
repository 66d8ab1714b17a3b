"""A draft's graphs: the canonical ones against mlx-dspark, the lowered ones against those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from edgekit.cli.build import embedded_checkpoint
from edgekit.draft import DraftSpec
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.draft_checkpoint import DraftCheckpoint, open_mtp
from edgekit.export.graph.drafts import build_draft
from edgekit.export.graph.mtp import build_mtp
from edgekit.export.lower import ort
from edgekit.export.reference import run_graph
from edgekit.export.weights import save_graph, write_weights
from tests.tools import mlx_dspark
from tests.tools.random_checkpoint import write_random_checkpoint
from tests.tools.random_draft import dflash_config, draft_config, write_random_draft

Arrays = dict[str, npt.NDArray[Any]]
TAPS = np.random.default_rng(3).standard_normal((24, 128)).astype(np.float32)
BLOCK = [7, 5, 5, 5, 5, 5, 5, 5]
"""An anchor and mask tokens."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(write_random_checkpoint(tmp_path_factory.mktemp("target")))


def opened(folder: Path, config: dict[str, Any], target: Checkpoint, **how: Any) -> DraftCheckpoint:
    return DraftCheckpoint.open(write_random_draft(folder, config, **how), target)


def context_rows(graph: ir.Model, spec: DraftSpec, taps: npt.NDArray[Any], first: int) -> Arrays:
    cos, sin = spec.rope.angles(first, len(taps))
    return run_graph(graph, {"taps": taps, "cos": cos, "sin": sin})


def caches(spec: DraftSpec, rows: Arrays, capacity: int) -> Arrays:
    found = {}
    for name, part in rows.items():
        kind, layer = name.split("_rows.")
        heads = part.reshape(len(part), spec.num_key_value_heads, spec.head_dim).swapaxes(0, 1)
        cache = np.full((heads.shape[0], capacity, spec.head_dim), np.nan, np.float32)
        cache[:, : len(part)] = heads
        found[f"{kind}_cache.{layer}"] = cache
    return found


def block_feeds(spec: DraftSpec, rows: Arrays, length: int, k: int) -> Arrays:
    count, predicting = spec.rows(k)
    cos, sin = spec.rope.angles(length, count)
    return {
        "tokens": np.array(BLOCK[:count]),
        "rows": np.array(predicting),
        "length": np.array(length),
        "cos": cos,
        "sin": sin,
        **caches(spec, rows, length + 8),
    }


# -- against another implementation


def test_dspark_is_what_mlx_dspark_computes(tmp_path: Path, target: Checkpoint) -> None:
    """Nemotron's layout: causal, window shorter than the context, sinks, mask rows predict."""
    config = draft_config()
    checkpoint = opened(tmp_path, config, target)
    spec, graphs = checkpoint.spec, build_draft(checkpoint)
    mx = pytest.importorskip("mlx.core")
    theirs = mlx_dspark.load(tmp_path)
    lm_head = mx.array(target.read("lm_head.weight"))
    theirs.bind_lm_head(lambda hidden: hidden @ lm_head.T)

    length = 20
    mine = run_graph(
        graphs["block"],
        block_feeds(spec, context_rows(graphs["context"], spec, TAPS[:length], 0), length, 7),
    )
    context = theirs.make_ctx_cache()
    theirs.update_context(mx.array(TAPS[None, :13]), 0, context)
    theirs.update_context(mx.array(TAPS[None, 13:length]), 13, context)
    hidden = theirs.backbone(theirs.embed(mx.array([BLOCK])), length, context)
    hidden = theirs.head_slice(hidden, 7)[0]
    np.testing.assert_allclose(mine["hidden"], np.array(hidden), atol=1e-4)
    base = np.array(theirs.compute_logits(hidden))
    np.testing.assert_allclose(mine["base"], base, atol=1e-4)

    drafted = [int(t) for t in theirs.sample_block(mx.array(base), BLOCK[0])]
    previous, found = BLOCK[0], []
    for row in mine["base"]:
        feeds = {"tokens": np.array([previous]), "base": row[None]}
        previous = int(run_graph(graphs["head"], feeds)["logits"][0].argmax())
        found.append(previous)
    assert found == drafted


# -- against the canonical graphs


def ort_runner(model: ir.Model, target: Checkpoint, folder: Path) -> Any:
    import onnxruntime

    folder.mkdir(parents=True, exist_ok=True)
    lowered = ort.lower(model, target.spec)
    write_weights([lowered], folder / "weights.bin", "weights.bin")
    save_graph(lowered, folder / "graph.onnx")
    return onnxruntime.InferenceSession(
        str(folder / "graph.onnx"), providers=["CPUExecutionProvider"]
    )


def run_ort(session: Any, feeds: Arrays) -> Arrays:
    """Canonical feeds, lowered: a batch axis, and the length after the step."""
    given = {}
    count = len(feeds["tokens"]) if "tokens" in feeds else 0
    for wanted in session.get_inputs():
        name = wanted.name
        if name == "total_length":
            array = np.array(feeds["length"] + count, np.int32)
        elif name == "last_position":
            array = np.array([feeds["length"] + count - 1], np.int32)
        elif name in ("rows", "cos", "sin"):
            array = feeds[name]
        else:
            array = feeds[name][None]
        given[name] = array
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dspark": (draft_config(), {}),
    "gated": (draft_config(markov_head_type="gated"), {"flat": True}),
    "rnn": (draft_config(markov_head_type="rnn"), {"confidence": True}),
    "from_anchor": (
        draft_config(
            sample_from_anchor=True,
            dspark_bonus_anchor=False,
            dflash_config={"causal": True, "target_layer_ids": [1, 3]},
            has_lm_head=True,
        ),
        {"confidence": True, "flat": True},
    ),
    "dflash": (dflash_config(), {}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_lowered_graphs_equal_the_canonical(
    variant: str, tmp_path: Path, target: Checkpoint
) -> None:
    config, how = VARIANTS[variant]
    checkpoint = opened(tmp_path / "draft", config, target, **how)
    spec, graphs = checkpoint.spec, build_draft(checkpoint)
    lowered = {name: ort_runner(model, target, tmp_path / name) for name, model in graphs.items()}
    length = 20
    cos, sin = spec.rope.angles(0, length)
    rows = context_rows(graphs["context"], spec, TAPS[:length], 0)
    found = run_ort(lowered["context"], {"taps": TAPS[:length], "cos": cos, "sin": sin})
    for name, part in rows.items():
        np.testing.assert_allclose(found[name][0], part, atol=2e-5)

    feeds = block_feeds(spec, rows, length, 7)
    expected, found = run_graph(graphs["block"], feeds), run_ort(lowered["block"], feeds)
    for name in ("base", "hidden"):
        np.testing.assert_allclose(found[name][0], expected[name], atol=1e-4)
    if "head" not in graphs:
        return
    state = np.random.default_rng(1).standard_normal((1, 12)).astype(np.float32)
    feeds = {"tokens": np.array([9]), "base": expected["base"][:1], "state": state}
    feeds["hidden"] = expected["hidden"][:1]
    expected, found = run_graph(graphs["head"], feeds), run_ort(lowered["head"], feeds)
    assert ("confidence" in expected) == bool(how.get("confidence"))
    assert ("state_out" in expected) == (variant == "rnn")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name][0], array, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3])
def test_a_short_causal_block_is_the_front_of_a_long_one(
    k: int, tmp_path: Path, target: Checkpoint
) -> None:
    checkpoint = opened(tmp_path, draft_config(), target)
    spec, graphs = checkpoint.spec, build_draft(checkpoint)
    rows = context_rows(graphs["context"], spec, TAPS, 0)
    whole = run_graph(graphs["block"], block_feeds(spec, rows, len(TAPS), 7))
    part = run_graph(graphs["block"], block_feeds(spec, rows, len(TAPS), k))
    np.testing.assert_allclose(part["base"], whole["base"][:k], atol=1e-5)


def test_only_rows_within_the_window_count(tmp_path: Path, target: Checkpoint) -> None:
    checkpoint = opened(tmp_path, draft_config(), target)
    spec, graphs = checkpoint.spec, build_draft(checkpoint)
    assert spec.sliding_window == 9
    feeds = block_feeds(spec, context_rows(graphs["context"], spec, TAPS, 0), 24, 7)
    late = context_rows(graphs["context"], spec, TAPS[15:], 15)
    cut = feeds | caches(spec, late, 17) | {"length": np.array(9)}
    whole, capped = (run_graph(graphs["block"], one)["base"] for one in (feeds, cut))
    np.testing.assert_allclose(capped, whole, atol=1e-5)


def test_mtp_lowered_equals_the_canonical(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(embedded_checkpoint())
    mtp = open_mtp(checkpoint)
    assert mtp is not None
    model = build_mtp(mtp)
    spec = checkpoint.spec
    rng = np.random.default_rng(2)
    shape = (spec.num_key_value_heads, 40, spec.head_dim)
    feeds = {
        "tokens": rng.integers(0, spec.vocab_size, 6),
        "hidden": rng.standard_normal((6, spec.hidden_size)).astype(np.float32),
        "rows": np.array([2, 5]),
        "length": np.array(11),
        "key_cache.0": rng.standard_normal(shape).astype(np.float32),
        "value_cache.0": rng.standard_normal(shape).astype(np.float32),
    }
    expected = run_graph(model, feeds)
    found = run_ort(ort_runner(model, checkpoint, tmp_path), feeds)
    for name in ("logits", "hidden_out"):
        np.testing.assert_allclose(found[name][0], expected[name], rtol=1e-4, atol=1e-3)
