"""From logits to a token: bias, penalties, constraint, temperature, top-k, top-p, min-p, in that
order.

The order is that of transformers' `generate`, for which checkpoints publish their defaults
(llama.cpp applies temperature last, which changes what top-p and min-p keep at other than 1).

All three filters keep whatever is at or above a threshold, so tokens of equal probability stay or
go together and a permuted vocabulary gives the permuted distribution:

- top-k: the k-th largest logit;
- top-p: the smallest probability of the smallest set of tokens that together have at least top_p of
  what top-k left (Holtzman et al. 2020, arXiv:1904.09751);
- min-p: min_p times the largest probability (Nguyen et al. 2024, arXiv:2407.01082).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgekit.errors import BuildError, UsageError
from edgekit.runtime.events import SamplingParams, TokenLogprob
from edgekit.runtime.session import Draw

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: dividing by them would overflow float32."""

_SORTED = 512
"""Up to so many weights are sorted and summed one by one; more are treated in blocks."""

_BLOCK = 64


def check_params(params: SamplingParams) -> None:
    """Raises UsageError for a value that makes no sense."""

    def require(ok: bool, name: str, wanted: str) -> None:
        if not ok:
            raise UsageError(f"{name} is {getattr(params, name)!r}, not {wanted}")

    # Comparisons are written so that NaN fails them.
    require(0 <= params.temperature < math.inf, "temperature", "a number >= 0")
    require(params.top_k >= 0, "top_k", "a count >= 0 (0 is off)")
    require(0 < params.top_p <= 1, "top_p", "in (0, 1] (1 is off)")
    require(0 <= params.min_p <= 1, "min_p", "in [0, 1] (0 is off)")
    require(
        0 < params.repetition_penalty < math.inf,
        "repetition_penalty",
        "a number > 0 (1 is off)",
    )
    for name in ("presence_penalty", "frequency_penalty"):
        require(math.isfinite(getattr(params, name)), name, "a finite number (0 is off)")
    require(params.seed is None or params.seed >= 0, "seed", "an integer >= 0")
    require(params.max_tokens is None or params.max_tokens >= 0, "max_tokens", "a count >= 0")
    require(
        all(math.isfinite(bias) for _, bias in params.logit_bias),
        "logit_bias",
        "finite numbers by token id",
    )
    require(params.logprobs is None or params.logprobs >= 0, "logprobs", "a count >= 0")
    require(all(params.stop), "stop", "a list of strings with at least one character")


class Constraint(Protocol):
    """What the next token may be, given those before it. Belongs to one generation."""

    def mask(self, logits: F32) -> F32:
        """Logits [V] with -inf for what must not come next: a copy, or the same array if anything
        may. At least one token stays."""

    def advance(self, token: int) -> None:
        """The text goes on with this token."""

    def rewind(self) -> None:
        """Takes the last `advance` back."""


def has_penalties(params: SamplingParams) -> bool:
    """Whether the distribution depends on the tokens seen so far."""
    return (
        params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


class TokenCounts:
    """Which tokens the prompt holds and how often each is in the answer.

    Speculation adds drafted tokens with `add` and takes rejected ones back with `remove`.
    """

    __slots__ = ("_answer", "_is_seen", "_prompt", "_seen", "_seen_count")

    def __init__(self, vocab_size: int) -> None:
        self._prompt = np.zeros(vocab_size, dtype=np.bool_)
        self._answer = np.zeros(vocab_size, dtype=np.int32)
        self._is_seen = np.zeros(vocab_size, dtype=np.bool_)
        self._seen: Index = np.zeros(256, dtype=np.intp)  # grows; the first _seen_count are used
        self._seen_count = 0

    def add_prompt(self, tokens: Iterable[int]) -> None:
        """Marks the tokens of a prompt."""
        for token in set(tokens):
            self._prompt[token] = True
            self._note(token)

    def add(self, token: int) -> None:
        """Counts one token of the answer."""
        self._answer[token] += 1
        self._note(token)

    def remove(self, token: int) -> None:
        """Takes one `add` of this token back."""
        if self._answer[token] == 0:
            raise ValueError(f"token {token} is not in the answer")
        self._answer[token] -= 1

    def _note(self, token: int) -> None:
        if self._is_seen[token]:
            return
        self._is_seen[token] = True
        if self._seen_count == len(self._seen):
            self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)])
        self._seen[self._seen_count] = token
        self._seen_count += 1

    def penalise(self, logits: F32, params: SamplingParams) -> F32:
        """A copy of logits [V] with the penalties applied: repetition, frequency, presence."""
        x = logits.copy()
        seen = self._seen[: self._seen_count]
        values = x[seen]
        answer = self._answer[seen]
        if params.repetition_penalty != 1.0:
            factor = np.float32(params.repetition_penalty)
            repeated = np.where(values > 0, values / factor, values * factor)
            values = np.where(self._prompt[seen] | (answer > 0), repeated, values)
        if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
            penalty = params.frequency_penalty * answer + params.presence_penalty * (answer > 0)
            values -= penalty.astype(np.float32)
        x[seen] = values
        return x


def distribution(logits: F32, params: SamplingParams, counts: TokenCounts | None = None) -> F64:
    """Probabilities of the next token, exactly as `Sampler` draws it.

    Args:
        logits: [V].
        params: greedy gives a one-hot vector.
        counts: tokens seen so far; needed only with penalties.

    Returns:
        [V], zero for tokens the filters drop, sum 1 (to rounding).

    Raises:
        BuildError: the logits hold NaN or +inf, or nothing but -inf.
    """
    if counts is not None and has_penalties(params):
        logits = counts.penalise(logits, params)
    best = _best(logits)
    probabilities = np.zeros(logits.shape[0], dtype=np.float64)
    if params.temperature < _GREEDY_BELOW:
        probabilities[best] = 1.0
        return probabilities
    ids, weights = _weigh(logits, logits[best], params)
    ids, weights = _keep(ids, weights, _threshold(weights, params))
    exact = weights.astype(np.float64)
    exact /= exact.sum()
    if ids is None:
        return exact
    probabilities[ids] = exact
    return probabilities


class Sampler:
    """Draws the tokens of one generation.

    Args:
        params: validated here.
        vocab_size: V.
        constraint: fresh; None allows every token.

    Raises:
        UsageError: a parameter is out of range.
    """

    __slots__ = (
        "_bias",
        "_biased",
        "_constraint",
        "_greedy",
        "_penalised",
        "_random",
        "_shapes",
        "counts",
        "params",
    )

    def __init__(
        self, params: SamplingParams, vocab_size: int, constraint: Constraint | None = None
    ) -> None:
        check_params(params)
        self._constraint = constraint
        self._biased = np.array([token for token, _ in params.logit_bias], np.intp)
        self._bias = np.array([bias for _, bias in params.logit_bias], np.float32)
        self.params = params
        self.counts = TokenCounts(vocab_size)
        self._greedy = params.temperature < _GREEDY_BELOW
        self._penalised = has_penalties(params)
        self._shapes = self._penalised or constraint is not None or bool(params.logit_bias)
        if not self._greedy:  # numpy.random takes 7 MiB
            self._random = np.random.Generator(np.random.PCG64(params.seed)).random

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the likeliest one."""
        return self._greedy

    @property
    def needs_logits(self) -> bool:
        """Whether the logits are shaped or shown, not only drawn from."""
        return self._shapes or self.params.logprobs is not None

    def draw_elsewhere(self) -> Draw | None:
        """What another place needs to draw this generation's tokens; None takes the likeliest."""
        if self._greedy:
            return None
        params = self.params
        seed = secrets.randbits(64) if params.seed is None else params.seed % 2**64
        filters = params.temperature, params.top_k, params.top_p, params.min_p
        return Draw(*filters, seed, drafts=params.seed is None)

    def observe_prompt(self, tokens: Iterable[int]) -> None:
        """Tokens of the prompt, for the repetition penalty."""
        if self._penalised:
            self.counts.add_prompt(tokens)

    def observe(self, token: int) -> None:
        """One token of the answer, for penalties and constraint."""
        if self._penalised:
            self.counts.add(token)
        if self._constraint is not None:
            self._constraint.advance(token)

    def forget(self, token: int) -> None:
        """Takes one `observe` of this token back; of several, the last first."""
        if self._penalised:
            self.counts.remove(token)
        if self._constraint is not None:
            self._constraint.rewind()

    def _shaped(self, logits: F32) -> F32:
        """Logits [V] with bias, penalties and constraint applied; a copy."""
        x = self.counts.penalise(self._with_bias(logits), self.params)
        return x if self._constraint is None else self._constraint.mask(x)

    def _with_bias(self, logits: F32) -> F32:
        if not len(self._biased):
            return logits
        x = logits.copy()
        x[self._biased] += self._bias
        return x

    def distribution(self, logits: F32) -> F64:
        """Probabilities [V] from which `sample` would draw now."""
        return distribution(self._shaped(logits) if self._shapes else logits, self.params)

    def best(self, logits: F32) -> int:
        """The likeliest token; draws nothing.

        Raises:
            BuildError: the logits hold NaN or +inf, or nothing but -inf.
        """
        return _best(self._shaped(logits) if self._shapes else logits)

    def draw(self, weights: F64) -> int:
        """One index of weights [V], which need not sum to 1. Not when greedy."""
        return _draw(weights, self._random())

    def passes(self, probability: float) -> bool:
        """True with this probability. Not when greedy."""
        return bool(self._random() < probability)

    def sample(self, logits: F32) -> int:
        """One token from logits [V]; the same seed and logits give the same tokens.

        Raises:
            BuildError: the logits hold NaN or +inf, or nothing but -inf.
        """
        if self._shapes:
            logits = self._shaped(logits)
        best = _best(logits)
        if self._greedy:
            return best
        top_p, min_p = self.params.top_p, self.params.min_p
        ids, weights = _weigh(logits, logits[best], self.params)
        if top_p == 1.0 or top_p < 0.5 or len(weights) <= _SORTED:
            ids, kept = _keep(ids, weights, _threshold(weights, self.params))
            index = _draw(kept, self._random())
        else:
            # Faster than finding the nucleus: draw without it until a token is in it, which is
            # when the tokens above it do not have top_p yet. Fewer than 1 / top_p draws on average.
            limit = top_p * float(weights.sum(dtype=np.float64))
            if limit < 1.0:  # The likeliest alone, which has weight 1; top_p >= 0.5 rules out ties.
                return best
            ids, kept = _keep(ids, weights, min_p)
            while True:
                index = _draw(kept, self._random())
                above = weights[weights > kept[index]]
                if float(above.sum(dtype=np.float64)) < limit:
                    break
        return index if ids is None else int(ids[index])


def logprob(logits: F32, token: int, count: int) -> TokenLogprob:
    """The log probability of a token by logits [V], with the `count` likeliest ones."""
    x = logits.astype(np.float64)
    x -= x.max()
    x -= math.log(float(np.exp(x).sum()))
    count = min(count, len(x))
    best = np.argpartition(-x, count - 1)[:count] if count else np.zeros(0, np.intp)
    best = best[np.argsort(-x[best], kind="stable")]
    top = tuple((int(i), float(x[i])) for i in best)
    return TokenLogprob(token, float(x[token]), top)


def _best(logits: F32) -> int:
    """The arg-max; NaN counts as the largest value, so one look at the maximum finds all faults."""
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):
        raise _not_finite(f"{logits[best]}")
    return best


def check_best(token: int) -> None:
    """Refuses what a device's arg-max returns in place of a token: -1 for NaN and infinity.

    Raises:
        BuildError: it is no token.
    """
    if token < 0:
        raise _not_finite("NaN or infinite")


def _not_finite(largest: str) -> BuildError:
    return BuildError(
        f"the executor produced logits whose maximum is {largest}",
        cause="a weight, a scale or a kernel is wrong; no token can be drawn from this",
        hint="run `edgekit verify` on the bundle, then build it again",
    )


def _weigh(x: F32, top: np.float32, params: SamplingParams) -> tuple[Index | None, F32]:
    """Tokens that pass top-k (None: all V) and their weights, 1 for the likeliest."""
    ids: Index | None = None
    if 0 < params.top_k < x.shape[0]:
        kth = np.partition(x, x.shape[0] - params.top_k)[x.shape[0] - params.top_k]
        ids = np.flatnonzero(x >= kth)
        x = x[ids]
    weights = x - top
    if params.temperature != 1.0:
        with np.errstate(over="ignore"):  # to -inf, whose weight is 0
            weights *= np.float32(1.0 / params.temperature)
    return ids, np.exp(weights, out=weights)


def _threshold(weights: F32, params: SamplingParams) -> float:
    """The smallest weight that top-p and min-p keep."""
    if params.top_p == 1.0:
        return params.min_p
    return max(params.min_p, _nucleus_threshold(weights, params.top_p))


def _nucleus_threshold(weights: F32, top_p: float) -> float:
    """The smallest weight in the smallest set that has top_p of the total weight.

    Only what can be in that set is sorted: n weights below (1 - top_p) x total / n sum to less than
    (1 - top_p) x total, so the others have top_p without them. The half is for rounding.
    """
    total = float(weights.sum(dtype=np.float64))
    floor = 0.5 * (1.0 - top_p) * total / len(weights)
    descending = np.sort(weights[weights >= np.float32(floor)])[::-1]
    mass = np.cumsum(descending, dtype=np.float64)
    last = min(int(mass.searchsorted(top_p * total)), len(descending) - 1)
    return float(descending[last])


def _keep(ids: Index | None, weights: F32, threshold: float) -> tuple[Index | None, F32]:
    """The tokens at or above a threshold, with their weights."""
    if threshold <= 0.0:
        return ids, weights
    kept = np.flatnonzero(weights >= np.float32(threshold))
    return kept if ids is None else ids[kept], weights[kept]


def _draw(weights: F32 | F64, u: float) -> int:
    """The first index at which the cumulative weight exceeds u x total, u in [0, 1).

    Many weights are summed in blocks first: a running sum is one dependent addition a weight.
    """
    start = 0
    if len(weights) > _SORTED:
        sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK), dtype=np.float64)
        block, u = _invert(np.cumsum(sums), u)
        start = block * _BLOCK
        weights = weights[start : start + _BLOCK]
    return start + _invert(np.cumsum(weights, dtype=np.float64), u)[0]


def _invert(mass: F64, u: float) -> tuple[int, float]:
    """The interval of a cumulative mass that u x total falls in, and where in it, in [0, 1).

    An interval of no mass is never hit. When rounding puts the target at the total itself, the last
    interval with mass is meant.
    """
    target = u * mass[-1]
    index = int(mass.searchsorted(target, side="right"))
    if index == len(mass):
        index = int(mass.searchsorted(mass[-1]))
    low = mass[index - 1] if index else 0.0
    return index, float((target - low) / (mass[index] - low))
