"""The torch executor on a GPU, end to end on nano."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.executors import open_session
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.session import MAX_VERIFY, Session, prefill
from edgekit.runtime.verify import verify_bundle
from tests.tools.cpu_device import CpuDevice

pytestmark = pytest.mark.gpu

NANO = Path("recipes/nano/checkpoint")
CONTEXT = 2304
NEAR = 0.15
"""Logits nearer than this may change places: twice what bfloat16 usually costs nano's."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    major, minor = torch.cuda.get_device_capability()
    output = tmp_path_factory.mktemp("bundles") / "nano"
    request = BuildRequest(
        NANO, output, "gpu", "none", CONTEXT, 128, lowering="plugin", sm=10 * major + minor
    )
    return Bundle.open(build_bundle(request))


@pytest.fixture
def session(bundle: Bundle) -> Iterator[Session]:
    opened = open_session(bundle)
    yield opened
    opened.close()


def ids(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 4096, n).tolist()


def test_logits_are_those_of_the_definitions(bundle: Bundle, session: Session) -> None:
    """The same graph by NumPy: bfloat16 at the same places, sums in another order."""
    definitions = PluginSession(bundle, CpuDevice())
    rows = []
    for tokens in (ids(8), ids(1, 1), ids(3, 2)):
        both = [one.step(tokens, logits="all").logits.copy() for one in (session, definitions)]
        rows.append(np.abs(both[0] - both[1]).max(axis=1))
    both = [one.verify(ids(5, 3)).logits.copy() for one in (session, definitions)]
    rows.append(np.abs(both[0] - both[1]).max(axis=1))
    differences = np.concatenate(rows)
    assert np.median(differences) < 0.1, differences
    assert np.mean(differences > 0.5) <= 0.1, differences  # another expert, now and then


@pytest.mark.parametrize("T", [12, 64, 128])
def test_a_prompt_is_what_its_eights_are(session: Session, T: int) -> None:
    """The prefill graph's kernels round x, B and C of Mamba layers to bfloat16 as well."""
    whole = session.step(ids(T), logits="all").logits.copy()
    after = session.step(ids(3, 1), logits="all").logits.copy()
    session.reset()
    eights = [session.step(ids(T)[i : i + 8], logits="all").logits.copy() for i in range(0, T, 8)]
    follow = session.step(ids(3, 1), logits="all").logits.copy()
    differences = np.abs(np.concatenate([whole, after]) - np.concatenate([*eights, follow]))
    rows = differences.max(axis=1)
    assert np.median(rows) < 0.3, rows
    assert np.mean(rows > 0.7) <= 0.1, rows


def test_golden_logits(bundle: Bundle) -> None:
    report = verify_bundle(bundle)
    assert report.ok, report


def test_rejections_leave_the_text_alone(session: Session) -> None:
    """2000 tokens with drafts of which a random number is accepted, against plain decoding."""
    logits = prefill(session, ids(40)).copy()
    text, margins = [], []
    for _ in range(2000):
        second, best = np.sort(logits)[-2:]
        text.append(int(logits.argmax()))
        margins.append(best - second)
        logits = session.step([text[-1]]).logits[0].copy()

    random = np.random.default_rng(4)
    session.reset()
    prefill(session, ids(40))
    at = 0
    while at < len(text) - MAX_VERIFY:
        T = int(random.integers(1, MAX_VERIFY + 1))
        n = int(random.integers(1, T + 1))
        rejected = random.integers(0, 4096, T - n).tolist()
        rows = session.verify(text[at : at + n] + rejected).logits
        for i in range(n):
            if margins[at + i + 1] > NEAR:
                assert int(rows[i].argmax()) == text[at + i + 1], at + i
        session.commit(n)
        at += n
