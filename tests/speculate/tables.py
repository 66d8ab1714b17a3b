"""A session and a drafter whose distributions are tables, and every way their decoding can go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import Rows, Session, Snapshot, StepOutput
from edgekit.runtime.speculate.drafter import F32, Choose, Drafter


class Table:
    """Logits [V] after any text, made from its last two tokens."""

    def __init__(self, vocab_size: int, seed: int, scale: float = 1.5) -> None:
        rng = np.random.default_rng(seed)
        shape = (vocab_size + 1, vocab_size + 1, vocab_size)
        self._logits = (scale * rng.standard_normal(shape)).astype(np.float32)

    def __call__(self, text: Sequence[int]) -> F32:
        before, last = (-1, -1, *text)[-2:]
        return self._logits[before, last]


class TableSession:
    """The session contract over a table; commits are checked to follow it."""

    prefill_chunk = 8

    def __init__(self, table: Table, vocab_size: int, capacity: int = 64) -> None:
        self.table = table
        self.vocab_size = vocab_size
        self.capacity = capacity
        self.tokens: list[int] = []
        self.widths: list[int] = []
        self._pending: list[int] | None = None

    @property
    def length(self) -> int:
        return len(self.tokens)

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        output = self.verify(tokens)
        self.commit(len(tokens))
        return output

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        assert self._pending is None
        assert self.length + len(tokens) <= self.capacity
        self.widths.append(len(tokens))
        self._pending = list(tokens)
        texts = [self.tokens + self._pending[: i + 1] for i in range(len(tokens))]
        return StepOutput(np.stack([self.table(text) for text in texts]), None)

    def commit(self, n: int) -> None:
        assert self._pending is not None
        assert 0 <= n <= len(self._pending)
        self.tokens += self._pending[:n]
        self._pending = None

    def snapshot(self) -> Snapshot:
        return Snapshot(self.length, ())

    def restore(self, snapshot: Snapshot) -> None:
        del self.tokens[snapshot.length :]
        self._pending = None

    def reset(self) -> None:
        self.tokens, self._pending = [], None

    def close(self) -> None:
        self.reset()


class TableDrafter:
    """Drafts from a table of its own.

    Args:
        cut: given a token's logits and the token drawn from them, whether to end the draft before
            it: what a drafter must not do.
    """

    def __init__(
        self, table: Table, max_tokens: int = 7, cut: Callable[[F32, int], bool] | None = None
    ) -> None:
        self.table = table
        self.max_tokens = max_tokens
        self.cut = cut
        self.tokens: list[int] = []

    def observe(self, tokens: Sequence[int], taps: F32 | None = None) -> None:
        self.tokens += tokens

    def propose(self, anchor: int, k: int, choose: Choose) -> list[int]:
        drafted: list[int] = []
        for _ in range(k):
            logits = self.table([*self.tokens, anchor, *drafted])
            token = choose(logits)
            if self.cut is not None and self.cut(logits, token):
                break
            drafted.append(token)
        return drafted

    def read_rows(self, first: int) -> Rows:
        return ()

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        self.tokens = list(tokens)

    def reset(self) -> None:
        self.tokens = []

    def close(self) -> None:
        self.reset()


class Chance:
    """One way that chance can go: the first choices as told, of the others the first possible."""

    def __init__(self, told: Sequence[int]) -> None:
        self._told = told
        self._path: list[tuple[int, list[int]]] = []  # each choice among the possible ones
        self.probability = 1.0

    def pick(self, probabilities: Sequence[float]) -> int:
        possible = [i for i, p in enumerate(probabilities) if p > 0]
        at = len(self._path)
        choice = self._told[at] if at < len(self._told) else possible[0]
        self._path.append((choice, possible))
        self.probability *= probabilities[choice]
        return choice

    def following(self) -> list[int] | None:
        """What to tell for the next way, None after the last."""
        path = self._path
        while path and path[-1][0] == path[-1][1][-1]:
            path.pop()
        if not path:
            return None
        choice, possible = path[-1]
        return [c for c, _ in path[:-1]] + [possible[possible.index(choice) + 1]]


class ChanceSampler(Sampler):
    """A sampler whose draws are those of a Chance."""

    def __init__(self, params: Any, vocab_size: int, chance: Chance) -> None:
        super().__init__(params, vocab_size)
        self._chance = chance

    def sample(self, logits: F32) -> int:
        return self.draw(self.distribution(logits))

    def draw(self, weights: Any) -> int:
        return self._chance.pick((weights / weights.sum()).tolist())

    def passes(self, probability: float) -> bool:
        probability = min(1.0, probability)
        return self._chance.pick([1 - probability, probability]) == 1


def outcomes(run: Callable[[Chance], tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """The probability of everything that `run` can return."""
    found: dict[tuple[int, ...], float] = {}
    for result, probability in _ways(run):
        found[result] = found.get(result, 0.0) + probability
    return found


def _ways(run: Callable[[Chance], tuple[int, ...]]) -> Iterator[tuple[tuple[int, ...], float]]:
    told: list[int] | None = []
    while told is not None:
        chance = Chance(told)
        yield run(chance), chance.probability
        told = chance.following()


def difference(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    """Total variation distance."""
    return sum(abs(one.get(x, 0) - other.get(x, 0)) for x in one.keys() | other.keys()) / 2


def _are_what_they_claim(session: TableSession, drafter: TableDrafter) -> tuple[Session, Drafter]:
    return session, drafter
