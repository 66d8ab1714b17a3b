"""The NumPy reference, which golden logits come from, equals transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.export.checkpoint import Checkpoint
from edgekit.export.golden import compute_golden
from edgekit.export.graph.nemotron_h import build_commit, build_step
from edgekit.export.reference import ReferenceSession, run_graph
from edgekit.golden import TOP_K, Golden
from tests.executors.cases import CASES, TOLERANCE, Model, random_model


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=CASES)
def model(request: pytest.FixtureRequest, root: Path) -> Model:
    return random_model(request.param, root)


def reference(model: Model, taps: tuple[int, ...] = ()) -> ReferenceSession:
    checkpoint = Checkpoint.open(model.folder)
    return ReferenceSession(build_step(checkpoint, taps), checkpoint.spec, 300)


@pytest.mark.parametrize("n", [1, 2, 127, 128, 129])
def test_the_reference_is_transformers(model: Model, n: int) -> None:
    actual = reference(model).step(model.ids[:n])["logits"]
    assert actual.dtype == np.float32
    assert np.abs(actual - model.logits(n)).max() <= TOLERANCE


def test_chunks_rows_and_taps(root: Path) -> None:
    model = random_model("every-kind", root)
    ids, expected = model.ids, model.logits(129)
    session = reference(model, taps=(1, 4))
    first = session.step(ids[:100], rows=[3, 99])
    assert np.abs(first["logits"] - expected[[3, 99]]).max() <= TOLERANCE
    assert first["taps"].shape == (100, 2 * 64)
    for at in range(100, 129):
        row = session.step([ids[at]])["logits"]
        assert np.abs(row - expected[at]).max() <= TOLERANCE
    assert session.length == 129


def test_the_commit_graph_replays_the_step(root: Path) -> None:
    """With the canonical graphs alone: stash of five tokens, replay of three."""
    model = random_model("every-kind", root)
    checkpoint = Checkpoint.open(model.folder)
    commit = build_commit(checkpoint)
    assert commit is not None
    session = reference(model)
    session.step(model.ids[:20])
    names = [str(value.name) for value in commit.graph.inputs if "_state" in str(value.name)]
    before = {name: session._state[name] for name in names}
    outputs = session.step(model.ids[20:25])
    stash = {name: array[:3] for name, array in outputs.items() if name.startswith("stash")}
    assert stash.keys() | before.keys() == {str(value.name) for value in commit.graph.inputs}
    replayed = run_graph(commit, {**stash, **before})

    again = reference(model)
    again.step(model.ids[:20])
    again.step(model.ids[20:23])
    assert len(replayed) == len(names) == 4
    for name in names:
        kind, layer = name.split(".")
        expected = again._state[name]
        np.testing.assert_allclose(replayed[f"{kind}_out.{layer}"], expected, rtol=0, atol=1e-5)
        assert np.abs(before[name] - expected).max() > 0.01


def test_a_model_without_mamba_has_nothing_to_commit(root: Path) -> None:
    assert build_commit(Checkpoint.open(random_model("no-mamba", root).folder)) is None


def test_golden_logits_are_the_best_of_transformers(root: Path) -> None:
    model = random_model("every-kind", root)
    checkpoint = Checkpoint.open(model.folder)
    calls: list[tuple[int, int]] = []
    golden = compute_golden(
        build_step(checkpoint), checkpoint.spec, 24, lambda *done: calls.append(done)
    )
    expected = model.reference.logits(golden.prompt)
    assert len(golden.prompt) == len(golden.rows) == 24
    for row, logits in zip(golden.rows, expected, strict=True):
        best = np.sort(logits)[::-1][:TOP_K]
        np.testing.assert_allclose(row.logits, best, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(logits[list(row.tokens)], best, rtol=0, atol=TOLERANCE)
    assert Golden.from_json(golden.to_json()) == golden
    assert calls[-1][0] == calls[-1][1] == len(calls)
