"""nano on ONNX Runtime says the same with and without drafts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import load_model
from edgekit.runtime.speculate.length import FixedLength
from edgekit.runtime.speculate.rounds import Speculator

TOPICS = ("bread", "rivers", "the moon", "a garden", "bicycles", "music", "Rome", "snow")
QUESTIONS = [
    *(f"Tell me about {topic}." for topic in TOPICS),
    *(f"Repeat exactly: {topic} {i} zq{7919 * i} {topic}" for i, topic in enumerate(TOPICS, 3)),
    "Hello",
    "What is 12 + 30?",
    "Count from one to nine.",
    "What is edgekit?",
    "Which is larger, 9 or 11?",
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("bundles") / "nano"
    drafts = DraftRequest(embedded_checkpoint() / "draft", mtp=True)
    request = BuildRequest(embedded_checkpoint(), output, "cpu", "none", 1024, 32, drafts=drafts)
    return build_bundle(request)


def answers(bundle: Path, params: SamplingParams, **how: object) -> tuple[list[list[int]], int]:
    """The answers' tokens, and how many drafted tokens were kept in all."""
    found, kept = [], 0
    with load_model(bundle, threads=1, **how) as model:  # type: ignore[arg-type]
        for question in QUESTIONS:
            events = list(model.chat([{"role": "user", "content": question}], params))
            found.append([token for event in events for token in event.tokens])
            stats = events[-1].stats.speculation
            kept += sum(stats.accepted) if stats is not None else 0
    return found, kept


SETTINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=64),
    "seed": SamplingParams(seed=5, max_tokens=48),
}
LEAST_KEPT = {"dspark": 280, "mtp": 300, "ngram": 20}


@pytest.fixture(scope="module")
def plain(bundle: Path) -> dict[str, list[list[int]]]:
    return {name: answers(bundle, params)[0] for name, params in SETTINGS.items()}


@pytest.mark.parametrize("drafter", LEAST_KEPT)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_answers_are_the_same(
    bundle: Path, plain: dict[str, list[list[int]]], setting: str, drafter: str
) -> None:
    """Verify rows differ from single steps in the last bits; no choice here is that close."""
    drafted, kept = answers(bundle, SETTINGS[setting], speculate=drafter, draft_tokens=7)
    assert drafted == plain[setting]
    assert kept > LEAST_KEPT[drafter]


class Forced:
    """Drafts the answer that is known, wrong after as many tokens as each round is to keep."""

    max_tokens = 7

    def __init__(self, text: list[int], kept: Iterator[int]) -> None:
        self.text, self.kept = text, kept
        self.length = 0

    def observe(self, tokens: Sequence[int], taps: object = None) -> None:
        self.length += len(tokens)

    def propose(self, anchor: int, k: int, choose: object) -> list[int]:
        drafted = self.text[self.length + 1 : self.length + 1 + k]
        wrong = next(self.kept)
        return [token if i < wrong else (token + 1) % 4096 for i, token in enumerate(drafted)]

    def read_rows(self, first: int) -> tuple[()]:
        return ()

    def resume(self, tokens: Sequence[int], parts: object) -> None:
        self.length = len(tokens)

    def reset(self) -> None:
        self.length = 0

    def close(self) -> None:
        pass


PATTERNS = {"none": [0], "one": [1], "all": [7], "mixed": [3, 0, 7, 1, 5, 0, 2, 7, 7, 6, 4]}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_kept_leaves_the_state_of_plain_steps(bundle: Path, pattern: str) -> None:
    """Convolution and SSM state by a snapshot, the KV cache by the logits of a next token."""
    params = SamplingParams(temperature=0.0, max_tokens=60)
    messages = [{"role": "user", "content": "Count from one to nine."}]
    with load_model(bundle, threads=1) as plain, load_model(bundle, threads=1) as model:
        prompt = list(plain.encode_chat(messages).tokens)
        said = [token for event in plain.chat(messages, params) for token in event.tokens]
        drafter = Forced([*prompt, *said, *[7] * 8], itertools.cycle(PATTERNS[pattern]))
        model.speculator = Speculator(drafter, FixedLength(7), "forced")
        *_, last = model.chat(messages, params)
        assert model.committed == plain.committed == tuple([*prompt, *said][:-1])
        stats = last.stats.speculation
        assert stats is not None
        assert (sum(stats.accepted) == 0) == (pattern == "none")
        one, other = plain.session.snapshot(), model.session.snapshot()
        for expected, found in zip(one.arrays, other.arrays, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
        logits = [m.session.step([said[-1]]).logits.copy() for m in (plain, model)]
        np.testing.assert_allclose(logits[1], logits[0], rtol=0, atol=1e-3)
