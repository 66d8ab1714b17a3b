"""Speculation leaves the distribution of the text alone: every way decoding can go is counted.

Vocabulary of three, answers of four tokens. For every sampling setting the probability of each
answer with drafts equals that without, to rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgekit.runtime.decoding import PlainDecoding
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.sampling import Sampler
from edgekit.runtime.speculate.length import FixedLength
from edgekit.runtime.speculate.ngram import NgramDrafter
from edgekit.runtime.speculate.rounds import Speculator
from tests.speculate.tables import (
    Chance,
    ChanceSampler,
    Table,
    TableDrafter,
    TableSession,
    difference,
    outcomes,
)

V, ANSWER = 3, 4
PROMPT = (2, 0, 1, 2, 0)
TARGET = Table(V, seed=1)

SETTINGS = {
    "plain": SamplingParams(),
    "cold": SamplingParams(temperature=0.4),
    "hot": SamplingParams(temperature=3.0),
    "greedy": SamplingParams(temperature=0.0),
    "top-k": SamplingParams(top_k=2),
    "top-p": SamplingParams(top_p=0.7),
    "min-p": SamplingParams(min_p=0.3),
    "filters": SamplingParams(temperature=1.5, top_k=2, top_p=0.9, min_p=0.05),
    "repetition": SamplingParams(repetition_penalty=1.7),
    "presence": SamplingParams(presence_penalty=0.8, temperature=0.7),
    "frequency": SamplingParams(frequency_penalty=0.9, top_p=0.9),
    "seed": SamplingParams(seed=3),
}


class Opposite(Table):
    """A draft that likes best what the target likes least: most of it is rejected at once."""

    def __init__(self) -> None:
        super().__init__(V, seed=1, scale=-4.0)


DRAFTS = {
    "its own": lambda: TableDrafter(Table(V, seed=2)),
    "the target's": lambda: TableDrafter(TARGET),
    "the opposite": lambda: TableDrafter(Opposite()),
    "sharp": lambda: TableDrafter(Table(V, seed=3, scale=30.0)),
    "flat": lambda: TableDrafter(Table(V, seed=4, scale=0.0)),
    "n-gram": NgramDrafter,
}


def plain(params: SamplingParams, chance: Chance) -> tuple[int, ...]:
    session, sampler = TableSession(TARGET, V), ChanceSampler(params, V, chance)
    logits = session.step(PROMPT).logits[-1]
    sampler.observe_prompt(PROMPT)
    decoding = PlainDecoding(session, sampler, logits)
    return tuple(decoding.next() for _ in range(ANSWER))


def speculative(params, chance, drafter, length, cut=ANSWER):
    """The answer, and the session afterwards; `cut` ends decoding after so many tokens."""
    session, sampler = TableSession(TARGET, V), ChanceSampler(params, V, chance)
    output = session.step(PROMPT)
    sampler.observe_prompt(PROMPT)
    speculator = Speculator(drafter, length, "test")
    speculator.observe(PROMPT, output)
    decoding = speculator.decode(session, sampler, output.logits[-1], ANSWER)
    answer = tuple(decoding.next() for _ in range(cut))
    decoding.close()
    assert session.tokens == [*PROMPT, *answer[:-1]]
    known = drafter._tokens if isinstance(drafter, NgramDrafter) else drafter.tokens
    assert known == session.tokens
    return answer, decoding.stats()


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("k", [1, 3])
def test_the_distribution_is_the_targets(setting, draft, k):
    params, make = SETTINGS[setting], DRAFTS[draft]
    expected = outcomes(lambda chance: plain(params, chance))
    found = outcomes(lambda chance: speculative(params, chance, make(), FixedLength(k))[0])
    assert sum(expected.values()) == pytest.approx(1)
    assert difference(expected, found) < 1e-9


@pytest.mark.parametrize(("draft", "share"), [("the target's", 1.0), ("the opposite", 0.25)])
def test_all_accepted_and_rejected_at_once_are_among_them(draft, share):
    kept = {}

    def run(chance):
        answer, stats = speculative(SamplingParams(), chance, DRAFTS[draft](), FixedLength(3))
        kept[tuple(stats.accepted), stats.rounds] = True
        return answer

    outcomes(run)
    if share == 1.0:
        assert all(sum(accepted) == ANSWER - 2 for accepted, _ in kept), kept
    else:
        assert any(sum(accepted) == 0 and rounds == ANSWER - 2 for accepted, rounds in kept), kept


class Alternating:
    """A length that depends on what earlier rounds came to, as a measured one does."""

    why = ""

    def __init__(self) -> None:
        self._k = 2

    def choose(self, limit: int) -> int:
        return min(self._k, limit)

    def record(self, offered: int, kept: int, rejected: bool) -> None:
        self._k = 1 + kept if not rejected else 3 - self._k


@pytest.mark.parametrize("setting", ["plain", "filters", "frequency"])
def test_a_length_chosen_from_earlier_rounds_is_exact(setting):
    params = SETTINGS[setting]
    expected = outcomes(lambda chance: plain(params, chance))
    found = outcomes(
        lambda chance: speculative(params, chance, DRAFTS["its own"](), Alternating())[0]
    )
    assert difference(expected, found) < 1e-9


def test_a_cut_that_looks_at_the_drafted_token_is_caught():
    """Ending the draft where the token drawn seems unlikely: exact it looks, and is not."""

    def unlikely(logits, token):
        weights = np.exp(logits - logits.max())
        return weights[token] / weights.sum() < 0.4

    expected = outcomes(lambda chance: plain(SamplingParams(), chance))
    found = outcomes(
        lambda chance: speculative(
            SamplingParams(), chance, TableDrafter(Table(V, seed=2), cut=unlikely), FixedLength(3)
        )[0]
    )
    assert difference(expected, found) > 0.01


@pytest.mark.parametrize("cut", range(1, ANSWER + 1))
@pytest.mark.parametrize("draft", ["the target's", "its own"])
def test_an_answer_cut_off_anywhere_leaves_all_tokens_but_the_last(draft, cut):
    outcomes(
        lambda chance: speculative(
            SamplingParams(), chance, DRAFTS[draft](), FixedLength(3), cut=cut
        )[0]
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_seed_gives_the_same_text_with_any_drafter(setting):
    params = replace(SETTINGS[setting], seed=11)

    def run(drafter=None, k=0):
        session, sampler = TableSession(TARGET, V), Sampler(params, V)
        output = session.step(PROMPT)
        sampler.observe_prompt(PROMPT)
        if drafter is None:
            decoding = PlainDecoding(session, sampler, output.logits[-1])
        else:
            speculator = Speculator(drafter, FixedLength(k), "test")
            speculator.observe(PROMPT, output)
            decoding = speculator.decode(session, sampler, output.logits[-1], 40)
        return [decoding.next() for _ in range(40)]

    expected = run()
    for make in DRAFTS.values():
        for k in (0, 1, 4, 7):
            assert run(make(), k) == expected
