"""nano on ONNX Runtime says the same with and without drafts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from edgekit.cli.options import embedded_checkpoint
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import load_model

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
    return build_bundle(BuildRequest(embedded_checkpoint(), output, "cpu", "none", 1024, 256))


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


@pytest.mark.parametrize(
    "params",
    [SamplingParams(temperature=0.0, max_tokens=64), SamplingParams(seed=5, max_tokens=48)],
    ids=["greedy", "seed"],
)
def test_the_answers_are_the_same(bundle: Path, params: SamplingParams) -> None:
    """Verify rows differ from single steps in the last bits; no choice here is that close."""
    plain, _ = answers(bundle, params)
    drafted, kept = answers(bundle, params, speculate="ngram", draft_tokens=7)
    assert drafted == plain
    assert kept > 20
