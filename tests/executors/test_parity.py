"""Logits of `ort` bundles equal those of transformers, on every kind of layer and setting.

Logits have standard deviation 3 and reach 15, as those of a trained model do, so the tolerance of
1e-4 is seven significant digits of the largest: float32 itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.runtime.executors import open_session
from edgekit.runtime.session import Session, prefill
from tests.executors.cases import CASES, F32, TOLERANCE, Model, random_model

LENGTHS = (1, 2, 127, 128, 129, 1000)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=CASES)
def model(request: pytest.FixtureRequest, root: Path) -> Model:
    return random_model(request.param, root)


@pytest.fixture
def session(model: Model) -> Iterator[Session]:
    opened = open_session(model.bundle(prefill_chunk=1000), threads=1)
    yield opened
    opened.close()


def run(session: Session, ids: list[int], chunk: int) -> F32:
    """Logits of every position, `chunk` tokens a step, from an empty sequence."""
    session.reset()
    rows = [
        session.step(ids[start : start + chunk], logits="all").logits.copy()
        for start in range(0, len(ids), chunk)
    ]
    assert session.length == len(ids)
    return np.concatenate(rows)


def test_logits_are_those_of_transformers(model: Model, session: Session) -> None:
    for n in LENGTHS:
        expected = model.logits(n)
        actual = run(session, model.ids[:n], 1000)
        assert actual.shape == expected.shape
        assert actual.dtype == np.float32
        assert np.abs(actual - expected).max() <= TOLERANCE, f"{n} tokens"
        # What a person waits for: the default chunk, logits of the last token only.
        session.reset()
        last = prefill(session, model.ids[:n])
        assert np.abs(last - expected[-1]).max() <= TOLERANCE, f"last of {n} tokens"
    assert 2 < model.logits(1000).std() < 4
    assert len(set(model.logits(1000).argmax(axis=-1))) > 50


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 8, 9, 64, 128, 129, 500])
def test_chunks_of_any_size_do_not_change_the_logits(
    model: Model, session: Session, chunk: int
) -> None:
    n = 1000 if chunk >= 64 else 260
    actual = run(session, model.ids[:n], chunk)
    assert np.abs(actual - model.logits(1000)[:n]).max() <= TOLERANCE


def test_large_activations_keep_their_squared_relu(root: Path) -> None:
    """`MoE` computes relu(h)^2 through a sigmoid; it must hold far from where h is of order 1."""
    from safetensors.numpy import load_file, save_file

    model = random_model("every-kind", root)
    folder = root / "large"
    folder.mkdir()
    (folder / "config.json").write_bytes((model.folder / "config.json").read_bytes())
    tensors = load_file(model.folder / "model.safetensors")
    for name, array in tensors.items():
        if ".experts." in name and "up_proj" in name:
            tensors[name] = array * np.float32(30)
        if ".experts." in name and "down_proj" in name:
            tensors[name] = array / np.float32(900)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    large = Model("large", folder, folder, model.ids)
    session = open_session(large.bundle(), threads=1)
    actual = run(session, large.ids[:128], 128)
    session.close()
    assert np.abs(actual - large.logits(128)).max() <= TOLERANCE
    # The same function as the unscaled model: 30^2 / 900 = 1.
    assert np.abs(large.logits(128) - model.logits(128)).max() <= TOLERANCE
