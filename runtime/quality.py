"""What a change of weights costs a model: answers that become wrong, and divergence of its logits.

A reference model answers questions greedily; another one answers the same. The loss is paired:
only questions that one of the two answers rightly count. KL is that of the next token's
distribution, reference to other, at every token of some of the reference's answers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model

F64 = npt.NDArray[np.float64]
LIMIT = 512
"""Most tokens of an answer."""

SAMPLE = 60
"""Questions whose answers are compared token by token."""

Progress = Callable[[int, int], None]


class Question(Protocol):
    """A prompt as text, and whether an answer to it is right."""

    @property
    def skill(self) -> str: ...
    @property
    def prompt(self) -> str: ...
    def right(self, answer: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model answers to questions: rightly or not, and in which tokens."""

    right: tuple[bool, ...]
    tokens: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A model's answers and the logits others are compared with.

    Attributes:
        sampled: which questions' answers are compared token by token.
        logs: log p [answer tokens, vocabulary] of each of them.
    """

    questions: tuple[Question, ...]
    answers: Answers
    sampled: tuple[int, ...]
    logs: tuple[F64, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """One model against the reference.

    Attributes:
        right, reference_right: shares of right answers.
        lost: points of them lost. interval: half of its 95 % confidence interval.
        kl: nats a token, mean. kl_worst: of any token.
        skills: right answers lost by skill, negative where some were gained.
    """

    questions: int
    right: float
    reference_right: float
    lost: float
    interval: float
    kl: float
    kl_worst: float
    skills: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def record_reference(
    model: Model, questions: Sequence[Question], on_progress: Progress = lambda done, total: None
) -> Reference:
    """Asks the model that others are to be compared with."""
    answers = ask(model, questions, on_progress)
    spaced = range(0, len(questions), max(1, math.ceil(len(questions) / SAMPLE)))
    sampled = tuple(i for i in spaced if answers.tokens[i])
    logs = (log_probabilities(model, questions[i].prompt, answers.tokens[i]) for i in sampled)
    return Reference(tuple(questions), answers, sampled, tuple(logs))


def compare(
    reference: Reference, model: Model, on_progress: Progress = lambda done, total: None
) -> Quality:
    """Asks `model` the same, and compares."""
    questions, expected = reference.questions, reference.answers
    found = ask(model, questions, on_progress)
    divergence = []
    for i, p in zip(reference.sampled, reference.logs, strict=True):
        q = log_probabilities(model, questions[i].prompt, expected.tokens[i])
        divergence.append(np.sum(np.exp(p) * (p - q), axis=-1))
    kl = np.concatenate(divergence)
    lost = np.array(expected.right, float) - np.array(found.right, float)
    skills: dict[str, int] = defaultdict(int)
    for question, one in zip(questions, lost, strict=True):
        skills[question.skill] += int(one)
    return Quality(
        questions=len(questions),
        right=float(np.mean(found.right)),
        reference_right=float(np.mean(expected.right)),
        lost=100 * float(lost.mean()),
        interval=100 * 1.96 * float(lost.std() / np.sqrt(len(lost))),
        kl=float(kl.mean()),
        kl_worst=float(kl.max()),
        skills=dict(skills),
    )


def ask(
    model: Model, questions: Sequence[Question], on_progress: Progress = lambda done, total: None
) -> Answers:
    """Greedy answers, and whether they are right."""
    params = SamplingParams(temperature=0.0, max_tokens=LIMIT)
    right, tokens = [], []
    for number, question in enumerate(questions, start=1):
        text = ""
        spoken: list[int] = []
        prompt = model.tokenizer.encode(question.prompt, special=True)
        reasons = question.prompt.rstrip().endswith("<think>")
        for event in model.generate(prompt, params, start_in_reasoning=reasons):
            spoken += event.tokens
            if event.channel == "content":
                text += event.text
        right.append(question.right(text.strip()))
        tokens.append(tuple(spoken))
        on_progress(number, len(questions))
    return Answers(tuple(right), tuple(tokens))


def log_probabilities(model: Model, prompt: str, answer: Sequence[int]) -> F64:
    """log p [answer tokens, vocabulary] of each answer token's place."""
    before = model.tokenizer.encode(prompt, special=True)
    tokens = [*before, *answer[:-1]]
    model.reset()
    rows = []
    chunk = model.session.prefill_chunk
    for start in range(0, len(tokens), chunk):
        output = model.session.step(tokens[start : start + chunk], logits="all")
        rows.append(output.logits.astype(np.float64))
    model.session.reset()
    logits = np.concatenate(rows)[len(before) - 1 :]
    logits -= logits.max(axis=-1, keepdims=True)
    result: F64 = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return result
