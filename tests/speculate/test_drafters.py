"""The drafters on graphs: however the tokens come, the drafted ones are those of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from edgekit.bundle import Bundle
from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.errors import UsageError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.executors.ort import OrtSession
from edgekit.runtime.model import load_model
from edgekit.runtime.speculate.choose import open_speculator
from edgekit.runtime.speculate.drafter import Drafter
from tests.tools.random_draft import dflash_config, write_random_draft

NANO = embedded_checkpoint()
KINDS = ("dspark", "dflash", "mtp")
LONG = 420
"""Tokens: beyond nano's window of 256 and the 128 rows its cache takes on top of it."""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """nano with its own draft and head, and nano with a DFlash draft that knows nothing."""
    folder = tmp_path_factory.mktemp("bundles")
    config = dflash_config(hidden_size=256, vocab_size=4096)
    drafts = {
        "dspark": DraftRequest(NANO / "draft", mtp=True),
        "dflash": DraftRequest(write_random_draft(folder / "draft", config)),
    }
    built = {}
    for name, request in drafts.items():
        how = BuildRequest(NANO, folder / name, "cpu", "none", 512, 64, drafts=request)
        built[name] = Bundle.open(build_bundle(how))
    return built | {"mtp": built["dspark"]}


@pytest.fixture(scope="module")
def text() -> list[int]:
    return [int(token) for token in np.random.default_rng(4).integers(20, 4000, LONG + 1)]


@pytest.fixture(scope="module")
def taps(bundles: dict[str, Bundle], text: list[int]) -> dict[str, np.ndarray[Any, Any]]:
    """The target's taps for the whole text."""
    found = {}
    for name, bundle in bundles.items():
        session = OrtSession(bundle, threads=1)
        parts = [session.step(text[at : at + 60]).taps for at in range(0, LONG, 60)]
        found[name] = np.concatenate([np.array(part) for part in parts if part is not None])
        session.close()
    return found


def drafter_of(bundle: Bundle, kind: Any) -> Drafter:
    session = OrtSession(bundle, threads=1)
    speculator = open_speculator(session, bundle, kind, 7, 1)
    assert speculator is not None
    return speculator.drafter


def drafted(drafter: Drafter, anchor: int, k: int = 7) -> tuple[list[int], list[Any]]:
    """Greedy tokens, and the logits they were taken from."""
    rows: list[Any] = []

    def choose(logits: Any) -> int:
        rows.append(logits.copy())
        return int(logits.argmax())

    return drafter.propose(anchor, k, choose), rows


def observe(drafter: Drafter, text: list[int], taps: Any, pieces: list[int]) -> None:
    at = 0
    for size in pieces:
        drafter.observe(text[at : at + size], taps[at : at + size])
        at += size
    assert at == LONG


PIECES: dict[str, list[int]] = {
    "in chunks": [64] * 6 + [36],
    "one by one": [1] * LONG,
    "a short turn, then a long one": [10, 300, 5, 105],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pieces", PIECES)
def test_the_draft_does_not_depend_on_how_the_text_came(
    bundles: dict[str, Bundle], text: list[int], taps: Any, kind: str, pieces: str
) -> None:
    whole, parts = (drafter_of(bundles[kind], kind) for _ in range(2))
    observe(whole, text, taps[kind], [LONG])
    observe(parts, text, taps[kind], PIECES[pieces])
    _, expected = drafted(whole, text[LONG])
    _, found = drafted(parts, text[LONG])
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_leave_nothing_behind(
    bundles: dict[str, Bundle], text: list[int], taps: Any, kind: str
) -> None:
    """Drafting in between, with other anchors, does not change what is drafted later."""
    whole, rounds = (drafter_of(bundles[kind], kind) for _ in range(2))
    observe(whole, text, taps[kind], [LONG])
    at = 0
    rng = np.random.default_rng(1)
    while at < LONG:
        size = min(int(rng.integers(1, 30)), LONG - at)
        rounds.observe(text[at : at + size], taps[kind][at : at + size])
        at += size
        drafted(rounds, 77, int(rng.integers(1, 8)))
    _, expected = drafted(whole, text[LONG])
    _, found = drafted(rounds, text[LONG])
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [[100, LONG], [7, 300, LONG], [LONG]])
def test_a_kept_beginning_is_as_good_as_a_computed_one(
    bundles: dict[str, Bundle], text: list[int], taps: Any, kind: str, cuts: list[int]
) -> None:
    source, other = (drafter_of(bundles[kind], kind) for _ in range(2))
    parts, first = [], 0
    for end in cuts:
        source.observe(text[first:end], taps[kind][first:end])
        parts.append((first, source.read_rows(first)))
        first = end
    other.observe(text[5:60], taps[kind][5:60])
    drafted(other, 3)
    other.resume(text[:LONG], parts)
    _, expected = drafted(source, text[LONG])
    _, found = drafted(other, text[LONG])
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_before_any_token_there_is_a_draft_or_none(bundles: dict[str, Bundle], kind: str) -> None:
    tokens, rows = drafted(drafter_of(bundles[kind], kind), 9)
    assert len(tokens) in (0, 7)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("kind", ["dspark", "mtp"])
def test_reused_beginnings_change_no_text(bundles: dict[str, Bundle], kind: Any) -> None:
    """Two conversations in turn, each going back to what it has in the store of beginnings."""

    def talk(prefix_bytes: int) -> tuple[list[list[int]], int]:
        said, reused = [], 0
        params = SamplingParams(temperature=0.0, max_tokens=24)
        path = bundles[kind].path
        with load_model(
            path, threads=1, speculate=kind, draft_tokens=7, prefix_bytes=prefix_bytes
        ) as model:
            talks: list[list[dict[str, Any]]] = [[], []]
            for question in ("What is bread?", "Why is the sky blue?", "Count to five."):
                for messages in talks:
                    extra = " Please." if messages is talks[1] else ""
                    messages.append({"role": "user", "content": question + extra})
                    *_, last = events = list(model.chat(messages, params))
                    text = "".join(event.text for event in events if event.channel == "content")
                    messages.append({"role": "assistant", "content": text})
                    said.append([token for event in events for token in event.tokens])
                    reused += last.stats.cached_tokens
        return said, reused

    without, _ = talk(0)
    with_store, reused = talk(64 << 20)
    assert with_store == without
    assert reused > 100


def test_two_sessions_share_graphs_and_nothing_else(
    bundles: dict[str, Bundle], text: list[int], taps: Any
) -> None:
    bundle = bundles["dspark"]
    session = OrtSession(bundle, threads=1)
    one = open_speculator(session, bundle, "dspark", 7, 1)
    other = open_speculator(session, bundle, "dspark", 7, 1, beside=one)
    assert one is not None
    assert other is not None
    observe(one.drafter, text, taps["dspark"], [LONG])
    tokens, _ = drafted(one.drafter, text[LONG])
    other.drafter.observe(text[:50], taps["dspark"][:50])
    drafted(other.drafter, 5)
    assert drafted(one.drafter, text[LONG])[0] == tokens


def test_a_drafter_that_is_not_there(bundles: dict[str, Bundle]) -> None:
    session = OrtSession(bundles["dflash"], threads=1)
    with pytest.raises(UsageError, match="has no dspark draft") as caught:
        open_speculator(session, bundles["dflash"], "dspark", None, 1)
    assert "dflash, ngram" in str(caught.value.cause)


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
