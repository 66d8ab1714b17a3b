"""Sampling on the device against the CPU's sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
import pytest

from edgekit.errors import BuildError
from edgekit.kernels.launch import Launch
from edgekit.kernels.nodes import form
from edgekit.kernels.sampling import MAX_VOCAB, SLICES, judge, random_words, sample, sampling_words
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.sampling import distribution
from tests.tools.plugin_reference import philox

F32 = np.float32


def run_argmax(backend: ModuleType, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    R, V = logits.shape
    made = form("argmax", {"vocab_size": V}, R)
    best, slices, arrivals = (np.full(out.shape, -7, out.dtype) for out in made.outputs)
    arrivals[:] = 0
    backend.run(made.launch, [logits, arrivals], [best, slices, arrivals])
    assert not arrivals.any()
    return best, slices


def run_sample(
    backend: ModuleType,
    logits: np.ndarray,
    params: SamplingParams,
    random: np.ndarray,
    *,
    philox: bool = False,
) -> np.ndarray:
    best, slices = run_argmax(backend, logits)
    return run_sample_of(backend, logits, best, slices, params, random, philox)


def run_sample_of(
    backend: ModuleType,
    logits: np.ndarray,
    best: np.ndarray,
    slices: np.ndarray,
    params: SamplingParams,
    random: np.ndarray,
    philox: bool,
) -> np.ndarray:
    words = sampling_words(params.temperature, params.top_k, params.top_p, params.min_p)
    made = form("sample", {"vocab_size": logits.shape[1], "philox": int(philox)}, len(logits))
    token, scratch = (np.full(out.shape, -7, out.dtype) for out in made.outputs)
    inputs = [logits, best, slices, np.array(words, np.uint32), random]
    backend.run(made.launch, inputs, [token, scratch])
    return token


def draws(
    backend: ModuleType, row: np.ndarray, params: SamplingParams, points: Sequence[float]
) -> np.ndarray:
    """What each uniform number takes from one row."""
    R = len(points)
    best, slices = run_argmax(backend, row[None])
    logits, best, slices = (np.repeat(one, R, axis=0) for one in (row[None], best, slices))
    return run_sample_of(backend, logits, best, slices, params, uniform(points), False)


def uniform(numbers: Sequence[float]) -> np.ndarray:
    """Numbers in [0, 1) as 64-bit shares."""
    shares = np.array([min(int(u * 2**64), 2**64 - 1) for u in numbers], np.uint64)
    return shares.view(np.uint32).reshape(-1, 2)


# -- the likeliest token


@pytest.mark.parametrize(("R", "V"), [(1, 5), (3, 64), (8, 1000), (2, 4099)])
def test_the_likeliest(backend: ModuleType, R: int, V: int) -> None:
    logits = np.random.default_rng(V).normal(size=(R, V)).astype(F32)
    logits[0] = -np.abs(logits[0])
    best, slices = run_argmax(backend, logits)
    np.testing.assert_array_equal(best, logits.argmax(axis=1))
    if V == 4099:  # every slice's own best, an id within it
        share = -(-V // SLICES)
        expected = [row[i : i + share].argmax() + i for row in logits for i in range(0, V, share)]
        used = -(-V // share)
        np.testing.assert_array_equal(slices[:, :used, 1].reshape(-1), expected)


def test_of_equal_logits_the_lowest_id(backend: ModuleType) -> None:
    logits = np.zeros((4, 700), F32)
    logits[1, [3, 600]] = 2
    logits[2] = -1
    logits[2, [50, 90]] = [-0.0, 0.0]  # one number
    logits[3, 650:] = 1
    best, _ = run_argmax(backend, logits)
    np.testing.assert_array_equal(best, [0, 3, 50, 650])


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_a_fault_is_no_token(backend: ModuleType, bad: float) -> None:
    logits = np.ones((3, 300), F32)
    logits[1, 77] = bad
    logits[2] = -np.inf
    best, _ = run_argmax(backend, logits)
    np.testing.assert_array_equal(best, [0, -1, -1])
    params = SamplingParams(temperature=1.0, top_p=0.9)
    token = run_sample(backend, logits, params, uniform([0.5] * 3))
    assert token[0] >= 0
    np.testing.assert_array_equal(token[1:], [-1, -1])


# -- draws

PARAMS = {
    "plain": SamplingParams(temperature=1.0),
    "hot": SamplingParams(temperature=3.0),
    "cold": SamplingParams(temperature=0.05),
    "top-k": SamplingParams(temperature=0.8, top_k=3),
    "top-k of one": SamplingParams(temperature=1.0, top_k=1),
    "top-k of more than there are": SamplingParams(temperature=1.0, top_k=1000),
    "top-p": SamplingParams(temperature=1.0, top_p=0.7),
    "tiny top-p": SamplingParams(temperature=1.0, top_p=1e-12),
    "min-p": SamplingParams(temperature=1.0, min_p=0.2),
    "all": SamplingParams(temperature=1.3, top_k=9, top_p=0.9, min_p=0.05),
    "greedy": SamplingParams(temperature=0.0),
}


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("ties", [False, True])
def test_every_share_of_a_small_vocabulary(backend: ModuleType, name: str, ties: bool) -> None:
    """The token changes where the CPU's cumulative probabilities are, and nowhere else."""
    row = np.random.default_rng(3).normal(scale=2, size=13).astype(F32)
    if ties:
        row = np.round(row)
    expected = distribution(row, PARAMS[name])
    edges = np.concatenate([[0], np.cumsum(expected)])
    points, wanted = [], []
    for token in np.flatnonzero(expected > 1e-12):  # the kernel counts in 2^-44
        low, high = edges[token], edges[token + 1]
        margin = min(1e-6, (high - low) / 4)
        points += [low + margin, high - margin]
        wanted += [token] * 2
    np.testing.assert_array_equal(draws(backend, row, PARAMS[name], points), wanted)


@pytest.mark.parametrize("name", ["plain", "top-k", "top-p", "min-p", "all"])
def test_kept_tokens_and_their_probabilities(backend: ModuleType, name: str) -> None:
    """The first and the last of what is kept of many, where the CPU puts them."""
    V = 4100  # more than a batch
    random = np.random.default_rng(4)
    logits = np.stack([random.normal(scale=s, size=V) for s in (1, 3)]).astype(F32)
    logits[1, :1500] = -np.inf
    for row in logits:
        expected = distribution(row, PARAMS[name])
        kept = np.flatnonzero(expected)
        edges = np.cumsum(expected)
        tokens = [kept[0], kept[-1]]
        points = [edges[t] - expected[t] / 2 for t in tokens]
        np.testing.assert_array_equal(draws(backend, row, PARAMS[name], points), tokens)


@pytest.mark.parametrize("top_k", [1, 2, SLICES, SLICES + 1, 299])
def test_top_k_of_equal_logits(backend: ModuleType, top_k: int) -> None:
    """All that equal the k-th largest stay."""
    row = np.repeat(np.arange(100, dtype=F32) / 50, 3)
    params = SamplingParams(temperature=1.0, top_k=top_k)
    expected = distribution(row, params)
    first, last = np.flatnonzero(expected)[[0, -1]]
    token = draws(backend, row, params, [0, 1 - 2**-53])
    np.testing.assert_array_equal(token, [first, last])


def test_the_order_of_threads_changes_nothing(backend: ModuleType) -> None:
    logits = np.random.default_rng(5).normal(size=(2, 3000)).astype(F32)
    random = np.random.default_rng(6).integers(0, 2**32, (2, 2), np.uint32)
    first, second = (run_sample(backend, logits, PARAMS["all"], random) for _ in range(2))
    np.testing.assert_array_equal(first, second)


# -- random numbers of the device


def test_the_generator_is_philox() -> None:
    # The published known answer for zeros.
    assert philox(0, 0, 0) == 0xE169C58D_6627E8D5


@pytest.mark.parametrize(("seed", "position"), [(0, 0), (0x1234_5678_9ABC_DEF0, 77), (5, 2**31)])
def test_seed_and_position_give_the_draw(backend: ModuleType, seed: int, position: int) -> None:
    V = 1024  # equal logits: the token is the share's upper 10 bits
    logits = np.zeros((2, V), F32)
    words = np.array(random_words(seed, position, "draft"), np.uint32)
    token = run_sample(backend, logits, PARAMS["plain"], words, philox=True)
    np.testing.assert_array_equal(token, [philox(position + i, 2, seed) >> 54 for i in range(2)])


# -- drafts


def run_judge(
    backend: ModuleType,
    rows: tuple[np.ndarray, np.ndarray],
    tokens: np.ndarray,
    params: SamplingParams,
    random: np.ndarray,
) -> np.ndarray:
    """With numbers given: `random` [R, 2], for the draw and for keeping."""
    words = sampling_words(params.temperature, params.top_k, params.top_p, params.min_p)
    R, V = rows[0].shape
    made = form("judge", {"vocab_size": V, "philox": 0}, R)
    token, scratch = (np.full(out.shape, -7, out.dtype) for out in made.outputs)
    inputs = [one for logits in rows for one in (logits, *run_argmax(backend, logits))]
    inputs += [tokens.astype(np.int32), np.array(words, np.uint32), uniform(random.reshape(-1))]
    backend.run(made.launch, inputs, [token, scratch])
    return token


@pytest.mark.parametrize("name", [name for name in PARAMS if name != "greedy"])
def test_a_drawn_draft_stays_as_often_as_it_must(backend: ModuleType, name: str) -> None:
    """Kept below p / q and not above; then what is drawn changes where max(p - q, 0) says."""
    random = np.random.default_rng(8)
    p_row, q_row = random.normal(scale=1.5, size=(2, 11)).astype(F32)
    p, q = (distribution(row, PARAMS[name]) for row in (p_row, q_row))
    residual = np.maximum(p - q, 0)
    edges = np.concatenate([[0], np.cumsum(residual / max(residual.sum(), 1e-300))])
    drafted, numbers, wanted = [], [], []
    for x in np.flatnonzero(q > 1e-9):
        ratio = min(1.0, p[x] / q[x])
        if ratio > 0:
            drafted.append(x), numbers.append([0.5, max(ratio - 1e-5, ratio / 2)]), wanted.append(x)
        if ratio > 1 - 1e-4:
            continue
        for y in np.flatnonzero(residual > 1e-6):
            for share in (0.001, 0.999):
                point = edges[y] + share * (edges[y + 1] - edges[y])
                drafted.append(x), numbers.append([point, ratio + 1e-5]), wanted.append(y)
    R = len(drafted) + 1  # the last row has no draft
    likeliest = int(p.argmax())
    numbers.append([np.cumsum(p)[likeliest] - p[likeliest] / 2, 0.0])
    rows = (np.repeat(p_row[None], R, 0), np.repeat(q_row[None], R, 0))
    found = run_judge(backend, rows, np.array([0, *drafted]), PARAMS[name], np.array(numbers))
    np.testing.assert_array_equal(found, [*wanted, likeliest])


def test_equal_distributions_keep_every_draft(backend: ModuleType) -> None:
    row = np.random.default_rng(9).normal(size=(1, 40)).astype(F32)
    rows = np.repeat(row, 3, 0)
    numbers = np.array([[0.3, 1 - 2**-24]] * 3)
    found = run_judge(backend, (rows, rows), np.array([0, 7, 31]), PARAMS["plain"], numbers)
    assert found[:2].tolist() == [7, 31]


def test_a_draft_with_faults_is_drawn_anew(backend: ModuleType) -> None:
    """What a draft's NaN drafts is no token; the target's own distribution stands in."""
    p = np.zeros((3, 16), F32)
    q = np.full((3, 16), np.nan, F32)
    found = run_judge(backend, (p, q), np.array([0, -1, -1]), PARAMS["plain"], np.full((3, 2), 0.5))
    assert found.tolist() == [8, 8, 8]
    p[1] = np.nan
    found = run_judge(backend, (p, p), np.array([0, 1, 1]), PARAMS["plain"], np.full((3, 2), 0.5))
    assert found[1] == -1


@pytest.mark.parametrize("launch", [sample, judge])
def test_a_vocabulary_too_large(launch: Callable[..., Launch]) -> None:
    with pytest.raises(BuildError, match="cannot be sampled on the device"):
        launch(1, MAX_VOCAB + 1, philox=True)


# -- sizes for which the emulator is too slow


@pytest.mark.gpu
@pytest.mark.parametrize("name", PARAMS)
def test_a_whole_vocabulary(on_gpu: ModuleType, name: str) -> None:
    logits = np.random.default_rng(7).normal(scale=3, size=(8, 131072)).astype(F32)
    points, wanted = [], []
    for row in logits:
        expected = distribution(row, PARAMS[name])
        token = int(expected.argmax())
        points.append(np.cumsum(expected)[token] - expected[token] / 2)
        wanted.append(token)
    np.testing.assert_array_equal(run_sample(on_gpu, logits, PARAMS[name], uniform(points)), wanted)
