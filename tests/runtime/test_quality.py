"""Answers lost and divergence, on models whose every distribution is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.runtime.quality import compare, log_probabilities, record_reference

V = 4


@dataclass(frozen=True)
class Asked:
    """Right is the answer that repeats the prompt."""

    skill: str
    prompt: str

    def right(self, answer: str) -> bool:
        return answer == self.prompt


class Table:
    """A model of letters a to d: the logits after a token are the token's row of a table."""

    prefill_chunk = 2

    def __init__(self, logits: np.ndarray, answers: dict[str, str]) -> None:
        self.table = logits.astype(np.float32)
        self.answers = answers
        self.session = self
        self.tokenizer = SimpleNamespace(encode=self.encode)

    @staticmethod
    def encode(text: str, special: bool) -> list[int]:
        return ["abcd".index(letter) for letter in text]

    def reset(self) -> None:
        """Has no state."""

    def step(self, tokens: Sequence[int], logits: str) -> Any:
        assert 1 <= len(tokens) <= self.prefill_chunk
        assert logits == "all"
        return SimpleNamespace(logits=self.table[list(tokens)])

    def generate(self, tokens: Sequence[int], params: Any, *, start_in_reasoning: bool) -> Iterator:
        assert params.temperature == 0
        answer = self.answers["".join("abcd"[token] for token in tokens)]
        for letter in answer:
            yield SimpleNamespace(tokens=self.encode(letter, True), channel="content", text=letter)


QUESTIONS = [Asked("x", "ab"), Asked("x", "ba"), Asked("y", "cd"), Asked("y", "dc")]


def model(seed: int, *answers: str) -> Any:
    logits = np.random.default_rng(seed).normal(size=(V, V))
    return Table(logits, dict(zip(("ab", "ba", "cd", "dc"), answers, strict=True)))


def test_a_model_against_itself() -> None:
    same = model(0, "ab", "ba", "cd", "a")
    quality = compare(record_reference(same, QUESTIONS), same)
    assert (quality.right, quality.reference_right) == (0.75, 0.75)
    assert (quality.lost, quality.interval, quality.kl) == (0, 0, 0)


def test_lost_answers_are_paired() -> None:
    reference = record_reference(model(0, "ab", "ba", "cd", "a"), QUESTIONS)
    assert reference.answers.right == (True, True, True, False)
    quality = compare(reference, model(0, "c", "b", "cd", "dc"))
    assert quality.right == 0.5
    assert quality.lost == 25
    assert dict(quality.skills) == {"x": 2, "y": -1}
    change = np.array([1, 1, 0, -1])
    assert quality.interval == pytest.approx(196 * change.std() / 2)


def test_divergence_is_the_definition() -> None:
    """KL of each answer token's distribution, by the definition's double sum."""
    one, other = model(1, "ab", "ba", "cd", "dc"), model(2, "ab", "ba", "cd", "dc")
    quality = compare(record_reference(one, QUESTIONS), other)
    expected = []
    for text in ("ab", "ba", "cd", "dc"):
        before = [text[-1], text[0]]  # the end of the prompt, then the answer's first token
        for letter in before:
            p, q = (np.exp(m.table["abcd".index(letter)].astype(float)) for m in (one, other))
            p, q = p / p.sum(), q / q.sum()
            expected.append(sum(p[i] * np.log(p[i] / q[i]) for i in range(V)))
    assert quality.kl == pytest.approx(np.mean(expected))
    assert quality.kl_worst == pytest.approx(np.max(expected))


def test_log_probabilities_are_normalised() -> None:
    logs = log_probabilities(model(3, "", "", "", ""), "abcd", [0, 1, 2])
    assert logs.shape == (3, V)
    np.testing.assert_allclose(np.exp(logs).sum(axis=-1), 1)
