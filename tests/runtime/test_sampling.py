"""Sampling against a slow implementation in plain Python floats, and against its own seeds."""

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import BuildError, UsageError
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.sampling import Sampler, TokenCounts, _invert, distribution, logprob

FIVE = np.array([2.0, 0.5, -1.0, 1.5, 0.0], dtype=np.float32)


def slow_distribution(logits, params, prompt=(), answer=()):
    """The definitions, token by token; keeps ties like the module's docstring says."""
    x = [float(v) for v in logits]
    for token in set(prompt) | set(answer):
        factor = params.repetition_penalty
        x[token] = x[token] / factor if x[token] > 0 else x[token] * factor
    for token in set(answer):
        x[token] -= params.frequency_penalty * answer.count(token) + params.presence_penalty
    if params.temperature == 0:
        best = max(range(len(x)), key=lambda i: x[i])
        return [float(i == best) for i in range(len(x))]
    x = [v / params.temperature for v in x]
    if 0 < params.top_k < len(x):
        kth = sorted(x, reverse=True)[params.top_k - 1]
        x = [v if v >= kth else -math.inf for v in x]
    p = [math.exp(v - max(x)) for v in x]
    if params.top_p < 1:
        mass, edge = 0.0, 0.0
        for value in sorted(p, reverse=True):
            mass, edge = mass + value, value
            if mass >= params.top_p * sum(p):
                break
        p = [v if v >= edge else 0.0 for v in p]
    p = [v if v >= params.min_p * max(p) else 0.0 for v in p]
    return [v / sum(p) for v in p]


def counts_of(vocab_size, prompt=(), answer=()):
    counts = TokenCounts(vocab_size)
    counts.add_prompt(prompt)
    for token in answer:
        counts.add(token)
    return counts


def chi_square(drawn, expected):
    """Standard deviations over its mean; tokens of probability 0 must not be drawn at all."""
    assert drawn[expected == 0].sum() == 0
    kept = expected * drawn.sum() > 5
    drawn, expected = drawn[kept], expected[kept] * drawn.sum()
    free = max(1, len(drawn) - 1)
    return float((((drawn - expected) ** 2 / expected).sum() - free) / math.sqrt(2 * free))


PARAMS = [
    SamplingParams(),
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=3.0),
    SamplingParams(top_k=1),
    SamplingParams(top_k=3),
    SamplingParams(top_k=5),
    SamplingParams(top_k=99),
    SamplingParams(top_p=0.01),
    SamplingParams(top_p=0.5),
    SamplingParams(top_p=0.9),
    SamplingParams(top_p=0.999999),
    SamplingParams(min_p=0.1),
    SamplingParams(min_p=1.0),
    SamplingParams(temperature=0.7, top_k=4, top_p=0.8, min_p=0.05),
    SamplingParams(temperature=2.0, top_k=3, top_p=0.95, min_p=0.3),
]


@pytest.mark.parametrize("params", PARAMS)
def test_distribution_of_five_tokens_is_the_definition(params):
    got = distribution(FIVE, params)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, slow_distribution(FIVE, params), atol=1e-6)
    assert got.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("params", PARAMS)
def test_draws_follow_the_distribution(params):
    sampler = Sampler(SamplingParams(**{**_fields(params), "seed": 7}), 5)
    drawn = np.bincount([sampler.sample(FIVE) for _ in range(4000)], minlength=5)
    assert chi_square(drawn, distribution(FIVE, params)) < 4.0


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_p=0.9),
        SamplingParams(top_p=0.6, min_p=0.002),
        SamplingParams(top_p=0.3),
        SamplingParams(top_k=700, top_p=0.97),
        SamplingParams(min_p=0.01),
    ],
)
def test_draws_from_a_large_vocabulary_follow_the_distribution(params):
    """V is over the size where drawing goes by blocks and by rejection, and no multiple of it."""
    logits = np.random.default_rng(1).normal(0, 2, 1999).astype(np.float32)
    expected = distribution(logits, params)
    np.testing.assert_allclose(expected, slow_distribution(logits, params), atol=1e-6)
    sampler = Sampler(SamplingParams(**{**_fields(params), "seed": 3}), len(logits))
    drawn = np.bincount([sampler.sample(logits) for _ in range(5000)], minlength=len(logits))
    assert chi_square(drawn, expected) < 4.0


@pytest.mark.parametrize("lead", [5.0, 9.0, 13.0])
@pytest.mark.parametrize("tied", [1, 2])
def test_a_token_far_ahead_in_a_large_vocabulary(lead, tied):
    logits = np.random.default_rng(4).normal(0, 1, 2000).astype(np.float32)
    logits[[17, 1234][:tied]] = lead
    params = SamplingParams(top_p=0.5, seed=9)
    sampler = Sampler(params, 2000)
    drawn = np.bincount([sampler.sample(logits) for _ in range(1000)], minlength=2000)
    assert chi_square(drawn, distribution(logits, params)) < 4.0


@given(
    st.lists(st.floats(-20, 20, width=16), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    st.integers(0, 14),
    st.sampled_from([0.05, 0.37, 0.77, 0.953, 1.0]),
    st.sampled_from([0.0, 0.013, 0.51]),
)
def test_any_logits_ties_included(values, temperature, top_k, top_p, min_p):
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = np.array(values, dtype=np.float32)
    np.testing.assert_allclose(
        distribution(logits, params), slow_distribution(logits, params), atol=1e-5
    )


@given(st.permutations(range(8)), st.integers(0, 8), st.sampled_from([0.2, 0.6, 1.0]))
def test_a_permuted_vocabulary_gives_the_permuted_distribution(order, top_k, top_p):
    logits = np.array([1, 1, 0, 2, 2, 2, -1, 0], dtype=np.float32)
    params = SamplingParams(top_k=top_k, top_p=top_p)
    moved = distribution(logits[list(order)], params)
    np.testing.assert_allclose(moved, distribution(logits, params)[list(order)], atol=1e-12)


@pytest.mark.parametrize("prompt", [(), (0, 2)])
@pytest.mark.parametrize("answer", [(), (3, 3, 1), (2, 0, 0, 0)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_penalties(prompt, answer, temperature):
    params = SamplingParams(
        temperature=temperature,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.25,
        seed=0,
    )
    expected = slow_distribution(FIVE, params, prompt, list(answer))
    np.testing.assert_allclose(
        distribution(FIVE, params, counts_of(5, prompt, answer)), expected, atol=1e-6
    )
    sampler = Sampler(params, 5)
    sampler.observe_prompt(prompt)
    for token in answer:
        sampler.observe(token)
    np.testing.assert_allclose(sampler.distribution(FIVE), expected, atol=1e-6)
    drawn = np.bincount([sampler.sample(FIVE) for _ in range(2000)], minlength=5)
    assert chi_square(drawn, np.array(expected)) < 4.0


def test_penalties_leave_the_logits_alone_and_can_be_taken_back():
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=1.0)
    logits = FIVE.copy()
    counts = counts_of(5, answer=[1, 1, 4])
    before = distribution(logits, params, counts)
    for token in (0, 0, 1):
        counts.add(token)
    for token in (1, 0, 0):
        counts.remove(token)
    np.testing.assert_array_equal(distribution(logits, params, counts), before)
    np.testing.assert_array_equal(logits, FIVE)
    with pytest.raises(ValueError, match="token 2 is not in the answer"):
        counts.remove(2)


def test_many_seen_tokens():
    counts = counts_of(5000, prompt=range(0, 4000, 3), answer=list(range(1000)))
    params = SamplingParams(repetition_penalty=1.5)
    logits = np.ones(5000, dtype=np.float32)
    penalised = counts.penalise(logits, params)
    seen = set(range(0, 4000, 3)) | set(range(1000))
    assert {int(i) for i in np.flatnonzero(penalised < 1)} == seen


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_greedy_takes_the_first_of_the_largest(temperature):
    sampler = Sampler(SamplingParams(temperature=temperature, top_p=0.5), 4)
    logits = np.array([1, 3, 3, 2], dtype=np.float32)
    assert sampler.sample(logits) == 1
    np.testing.assert_array_equal(sampler.distribution(logits), [0, 1, 0, 0])


@pytest.mark.parametrize("params", [*PARAMS, SamplingParams(temperature=0)])
@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min])
def test_one_possible_token(params, hidden):
    logits = np.full(600, hidden, dtype=np.float32)
    logits[417] = -3.0
    sampler = Sampler(params, 600)
    assert {sampler.sample(logits) for _ in range(50)} == {417}
    assert distribution(logits, params)[417] == 1.0


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("size", [3, 700])
def test_a_token_of_no_probability_is_never_drawn(u, size):
    logits = np.full(size, -np.inf, dtype=np.float32)
    logits[[1, size // 2]] = [0.0, -0.1]
    sampler = Sampler(SamplingParams(), size)
    sampler._random = lambda: u
    assert sampler.sample(logits) in (1, size // 2)


def test_rounding_up_to_the_total_means_the_last_token_of_any_mass():
    """A position inside a block is a quotient, which may round to 1."""
    assert _invert(np.array([0.0, 2.0, 5.0, 5.0]), 1.0) == (2, 1.0)


@pytest.mark.parametrize("size", [7, 1000])
def test_the_unit_interval_maps_to_tokens_in_proportion(size):
    logits = np.random.default_rng(5).normal(size=size).astype(np.float32)
    sampler = Sampler(SamplingParams(), size)
    n = 10000
    numbers = count()
    sampler._random = lambda: (next(numbers) + 0.5) / n
    drawn = np.bincount([sampler.sample(logits) for _ in range(n)], minlength=size)
    assert np.abs(drawn - distribution(logits, SamplingParams()) * n).max() <= 1.0


def test_the_same_seed_gives_the_same_tokens():
    logits = np.random.default_rng(2).normal(size=(40, 900)).astype(np.float32)

    def run(seed):
        sampler = Sampler(SamplingParams(seed=seed, top_p=0.95), 900)
        return [sampler.sample(row) for row in logits]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(None) != run(None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[0, np.nan, 1], [np.inf, 0, 0], [-np.inf] * 3, [np.nan] * 3])
def test_broken_logits(temperature, bad):
    params = SamplingParams(temperature=temperature)
    logits = np.array(bad, dtype=np.float32)
    with pytest.raises(BuildError, match="the executor produced logits"):
        Sampler(params, 3).sample(logits)
    with pytest.raises(BuildError, match="the executor produced logits"):
        distribution(logits, params)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("seed", -1),
        ("max_tokens", -1),
        ("stop", ("a", "")),
    ],
)
def test_parameters_out_of_range(name, value):
    with pytest.raises(UsageError, match=name):
        Sampler(SamplingParams(**{name: value}), 5)


def _fields(params):
    return {name: getattr(params, name) for name in SamplingParams.__dataclass_fields__}


def test_log_probabilities_are_torchs():
    import torch

    logits = np.random.default_rng(0).normal(0, 4, 300).astype(np.float32)
    expected = torch.log_softmax(torch.from_numpy(logits).double(), 0)
    found = logprob(logits, 7, 5)
    values, ids = torch.topk(expected, 5)
    assert [token for token, _ in found.top] == ids.tolist()
    np.testing.assert_allclose([value for _, value in found.top], values, rtol=1e-12)
    assert found.logprob == pytest.approx(float(expected[7]), rel=1e-12)
    assert logprob(logits, 7, 0).top == ()
    assert len(logprob(logits, 7, 999).top) == 300


def test_a_bias_moves_one_logit_before_the_filters():
    logits = np.array([0.0, 1.0, 2.0, 3.0], np.float32)
    params = SamplingParams(temperature=0.5, logit_bias=((0, 2.5), (3, -100.0)))
    biased = logits + np.array([2.5, 0, 0, -100], np.float32)
    expected = distribution(biased, SamplingParams(temperature=0.5))
    np.testing.assert_array_equal(Sampler(params, 4).distribution(logits), expected)
    assert Sampler(replace(params, temperature=0.0), 4).sample(logits) == 0
    assert logits[0] == 0.0, "the logits are not ours to change"


class _Only:
    """Allows one token, and notes what it is told."""

    def __init__(self, token):
        self.token, self.told = token, []

    def mask(self, logits):
        masked = np.full_like(logits, -np.inf)
        masked[self.token] = logits[self.token]
        return masked

    def advance(self, token):
        self.told.append(token)

    def rewind(self):
        self.told.pop()


def test_a_constraint_has_the_last_word_and_follows_the_text():
    only = _Only(2)
    sampler = Sampler(SamplingParams(logit_bias=((2, -100.0),)), 4, only)
    logits = np.zeros(4, np.float32)
    assert sampler.sample(logits) == sampler.best(logits) == 2
    sampler.observe(2)
    sampler.observe(1)
    sampler.forget(1)
    assert only.told == [2]
