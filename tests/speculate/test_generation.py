"""Generations with a drafter give the events of plain ones, and leave the model as they do."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model
from edgekit.runtime.prefix import PrefixStore
from edgekit.runtime.session import MAX_VERIFY
from edgekit.runtime.speculate.length import FixedLength
from edgekit.runtime.speculate.ngram import NgramDrafter
from edgekit.runtime.speculate.rounds import Speculator
from edgekit.runtime.template import ChatTemplate
from tests.runtime.fake_model import TEMPLATE, Says
from tests.runtime.fake_session import FakeSession
from tests.runtime.fake_tokenizer import make_tokenizer

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)
QUESTION = [{"role": "user", "content": "hello"}]


class Foretold:
    """Drafts a text that is known beforehand, with every n-th token wrong.

    Args:
        texts: prompts with their answers. The one that what was observed begins is drafted.
    """

    max_tokens = MAX_VERIFY - 1

    def __init__(self, texts, wrong_every):
        self.texts, self.wrong_every = texts, wrong_every
        self.tokens = []

    def observe(self, tokens, taps=None):
        self.tokens += tokens

    def propose(self, anchor, k, choose):
        known = [*self.tokens, anchor]
        n = len(known)
        text = next((t for t in self.texts if t[:n] == known), [])
        drafted = text[n : n + k]
        return [
            (token + 1) % 320 if (n + i) % self.wrong_every == 0 else token
            for i, token in enumerate(drafted)
        ]

    def read_rows(self, first):
        return (np.array(self.tokens[first:]),)

    def resume(self, tokens, parts):
        self.tokens = []
        for first, (rows,) in parts:
            self.tokens[first:] = rows.tolist()
        assert self.tokens == tokens

    def reset(self):
        self.tokens = []

    def close(self):
        self.reset()


def make(drafter=None, k=7, *, capacity=600, script=None, params=GREEDY):
    tokenizer = make_tokenizer()
    speculator = None if drafter is None else Speculator(drafter, FixedLength(k), "test")
    return Model(
        FakeSession(tokenizer.size, capacity, script=script),
        tokenizer,
        ChatTemplate(TEMPLATE),
        sampling=params,
        name="fake",
        prefixes=PrefixStore(1 << 20),
        speculator=speculator,
    )


def shown(events):
    """Everything of the events but times and what drafting did."""
    plain = {"prompt_seconds": 0.0, "decode_seconds": 0.0, "speculation": None}
    return [replace(event, stats=replace(event.stats, **plain)) for event in events]


def texts_of(script, prompt, params):
    """A prompt and its plain answer, as Foretold takes it."""
    events = make(script=script, params=params).generate(prompt, params)
    return [[*prompt, *itertools.chain.from_iterable(event.tokens for event in events)]]


ANSWERS = {
    "words": "hello world, this is an answer",
    "thinking": "I think so</think>Hello world",
    "only thinking": "I think so, I think so, I think so",
    "characters in pieces": "é😀!é😀",
    "repetition": "abc abc abc abc abc abc abc",
}
STOPS = {
    "no stop": {},
    "a stop string": {"stop": ("so", "wor")},
    "a stop string over tokens": {"stop": ("lo wo", "c ab")},
    "a stop token": {"stop_token_ids": (ord("s"), 300)},
    "few tokens": {"max_tokens": 5},
    "one token": {"max_tokens": 1},
    "no token": {"max_tokens": 0},
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("stop", STOPS)
def test_the_events_are_those_of_plain_decoding(answer, stop):
    params = replace(GREEDY, **{"max_tokens": 40, **STOPS[stop]})
    script = Says(ANSWERS[answer])
    plain = make(script=script, params=params)
    expected = shown(plain.chat(QUESTION))
    prompt = plain.encode_chat(QUESTION).tokens
    texts = texts_of(script, prompt, replace(params, stop=(), stop_token_ids=(), max_tokens=60))
    for drafter, k in itertools.product(
        (NgramDrafter, lambda: Foretold(texts, 1000), lambda: Foretold(texts, 3)), (1, 7)
    ):
        model = make(drafter(), k, script=script, params=params)
        assert shown(model.chat(QUESTION)) == expected
        assert model.committed == plain.committed
        assert list(model.committed) == model.session.committed


@pytest.mark.parametrize("wrong_every", [2, 3, 5, 1000])
def test_an_answer_closed_at_any_event_leaves_what_plain_decoding_leaves(wrong_every):
    script = Says("I think so</think>Hello world, this")
    texts = texts_of(script, make().encode_chat(QUESTION).tokens, replace(GREEDY, max_tokens=40))
    for count in itertools.count(1):
        plain, model = make(script=script), make(Foretold(texts, wrong_every), script=script)
        left = []
        for one in (plain, model):
            with closing(one.chat(QUESTION)) as events:
                left.append(len(list(itertools.islice(events, count))))
        assert model.committed == plain.committed
        assert list(model.committed) == model.session.committed
        assert model.session._recurrent == plain.session._recurrent
        assert model.speculator.drafter.tokens == model.session.committed
        assert left[0] == left[1]
        if left[0] < count:
            break


@pytest.mark.parametrize("room", [1, 2, 3, 8, 9])
def test_drafts_end_with_the_context(room):
    prompt = list(range(20, 40))
    params = replace(GREEDY, max_tokens=None)
    texts = texts_of(None, prompt, params)
    expected = shown(make(capacity=20 + room).generate(prompt, params))
    model = make(Foretold(texts, 1000), capacity=20 + room)
    assert shown(model.generate(prompt, params)) == expected
    assert expected[-1].finish_reason == "length"


def test_a_draft_of_none_is_plain_decoding():
    prompt = list(range(20, 40))
    model = make(NgramDrafter(), 0)
    expected = shown(make().generate(prompt))
    assert shown(model.generate(prompt)) == expected
    assert model.session.steps == [8, 8, 4] + [1] * (GREEDY.max_tokens - 1)


def test_stats_tell_what_drafting_did():
    prompt = list(range(20, 40))
    texts = texts_of(None, prompt, GREEDY)
    *_, last = make(Foretold(texts, 1000), 3).generate(prompt)
    stats = last.stats.speculation
    # 12 tokens: one from the prompt, rounds of 4, 4 and 3 (no more than can be used is drafted).
    assert stats.rounds == 3
    assert stats.plain_steps == 0
    assert stats.offered[0] == 2  # the last round is not settled yet when its last token is told
    assert stats.accepted == stats.offered
    assert stats.tokens_per_round >= 3
    *_, last = make(Foretold(texts, 1), 3).generate(prompt)
    assert sum(last.stats.speculation.accepted) == 0
    *_, last = make().generate(prompt)
    assert last.stats.speculation is None


def test_a_failing_step_leaves_model_and_drafter_in_step():
    prompt = list(range(20, 40))
    model = make(NgramDrafter(), 3)
    list(model.generate(prompt))
    model.session.fail_after = 1
    with pytest.raises(KeyboardInterrupt):
        list(model.generate([*prompt, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]))
    model.session.fail_after = None
    assert model.speculator.drafter._tokens == model.session.committed
    assert shown(model.generate(prompt)) == shown(make().generate(prompt))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 14), st.sampled_from([None, 12])), max_size=6
    )
)
def test_any_sequence_of_prompts_gives_the_answers_of_a_fresh_model(requests):
    """Reused prefixes, snapshots and answers given up half-way, all with drafts."""
    base = list(range(20, 50))
    prompts = [base, base[:21], [*base, 60, 61, 62], [*base[:15], 99, *base[15:]]]
    plain = {i: [e.tokens for e in make().generate(p)] for i, p in enumerate(prompts)}
    texts = [[*p, *itertools.chain(*plain[i])] for i, p in enumerate(prompts)]
    model = make(Foretold(texts, 4))
    for which, count, boundary in requests:
        prompt = prompts[which]
        at = (boundary,) if boundary else ()
        with closing(model.generate(prompt, snapshot_at=at)) as events:
            tokens = [e.tokens for e in itertools.islice(events, count)]
        said = [t for t in tokens if t]
        assert said == [t for t in plain[which] if t][: len(said)]
        assert list(model.committed) == model.session.committed
        assert model.speculator.drafter.tokens == model.session.committed
