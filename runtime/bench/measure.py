"""Times a model: one case after the other in turns, so that a slow minute meets all of them.

A prompt is random tokens, as llama-bench's are. A generation is greedy, goes on from a question and
does not stop at the end of the answer. Both are timed on the session, as chat and server use it;
text is no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import numpy.typing as npt

from edgekit.runtime.bench.case import Case, check_fits
from edgekit.runtime.decoding import Decoding, plain_decoding
from edgekit.runtime.events import SamplingParams, SpeculationStats
from edgekit.runtime.model import Model
from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import F32, Rows, Snapshot

QUESTIONS = (
    "Explain in a few sentences how a bicycle stays upright.",
    "Write a short letter that invites a friend to dinner.",
    "What is the capital of France, and what is it known for?",
    "Which five things would you pack for a day in the mountains, and why?",
    "Tell a short story about a lighthouse and a storm.",
)
"""A repeat takes the next one: what is drafted well for one text may not be for another."""

_SEED = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run. Seconds.

    Attributes:
        started, ended: on the clock of `perf_counter`.
        first: to the first token drawn, of a prompt.
        tokens: of each generated token; those of one verify step share its time alike.
        speculation: what drafting did.
    """

    started: float
    ended: float
    first: float = 0.0
    tokens: tuple[float, ...] = ()
    speculation: SpeculationStats | None = None

    @property
    def seconds(self) -> float:
        return self.ended - self.started


@dataclass(frozen=True, slots=True)
class Measured:
    """A case, the tokens it went on from besides its depth, and its runs."""

    case: Case
    start: int
    samples: tuple[Sample, ...]


def measure(
    model: Model,
    cases: Sequence[Case],
    *,
    repeats: int,
    warmup: int,
    on_progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> tuple[Measured, ...]:
    """Runs every case `warmup` times and then `repeats` times.

    Args:
        on_progress: called with (runs done, runs in all, the case's name).

    Raises:
        DoesNotFitError: a case is longer than the context.
        BuildError: the executor fails or gives NaN.
    """
    bench = _Bench(model)
    check_fits(cases, model.session.capacity, bench.longest_start)
    samples: dict[Case, list[Sample]] = {case: [] for case in cases}
    done, total = 0, len(cases) * (warmup + repeats)
    for depth in dict.fromkeys(case.depth for case in cases):
        bench.go_to(depth)
        group = [case for case in cases if case.depth == depth]
        for repeat in range(-warmup, repeats):
            for case in group:
                on_progress(done, total, case.name)
                sample = bench.run(case, max(repeat, 0))
                if repeat >= 0:
                    samples[case].append(sample)
                done += 1
    on_progress(done, total, "")
    return tuple(
        Measured(case, bench.longest_start if case.kind == "generation" else 0, tuple(runs))
        for case, runs in samples.items()
    )


@dataclass(slots=True)
class _Depth:
    """The tokens every run of one depth begins behind, and what puts the model there."""

    tokens: list[int] = field(default_factory=list)
    snapshot: Snapshot | None = None
    draft: Rows = ()


class _Bench:
    def __init__(self, model: Model) -> None:
        self._session, self._speculator = model.session, model.speculator
        self._random = np.random.default_rng(_SEED)
        self._starts = [_encode(model, question) for question in QUESTIONS]
        self.longest_start = max(map(len, self._starts))
        self._depth = _Depth()

    def go_to(self, depth: int) -> None:
        """Fills the context to this depth once; `run` comes back to it."""
        self._session.reset()
        if self._speculator is not None:
            self._speculator.reset()
        self._depth = _Depth()
        if depth:
            tokens = self._some_tokens(depth)
            self._read(tokens)
            draft = self._speculator.read_rows(0) if self._speculator is not None else ()
            self._depth = _Depth(tokens, self._session.snapshot(), draft)

    def run(self, case: Case, repeat: int) -> Sample:
        self._return()
        if case.kind == "prompt":
            return self._prompt(case)
        return self._generation(case, self._starts[repeat % len(self._starts)])

    def _return(self) -> None:
        at = self._depth
        if at.snapshot is None:
            self._session.reset()
            if self._speculator is not None:
                self._speculator.reset()
            return
        self._session.restore(at.snapshot)
        if self._speculator is not None:
            self._speculator.resume(at.tokens, [(0, at.draft)])

    def _prompt(self, case: Case) -> Sample:
        prompt = self._some_tokens(case.tokens)
        started = perf_counter()
        logits = self._read(prompt)
        ended = perf_counter()
        sampler = self._sampler()
        sampler.observe_prompt(prompt)
        sampler.sample(logits)
        return Sample(started, ended, perf_counter() - started)

    def _generation(self, case: Case, start: list[int]) -> Sample:
        logits = self._read(start)
        sampler = self._sampler()
        sampler.observe_prompt(start)
        decoding: Decoding = (
            plain_decoding(self._session, sampler, logits)
            if self._speculator is None
            else self._speculator.decode(self._session, sampler, logits, case.tokens + 1)
        )
        try:
            draw, stats = decoding.next, decoding.stats
            draw()  # of the prompt's logits: no step yet
            times: list[float] = []
            steps: list[int] = []
            started = perf_counter()
            for _ in range(case.tokens):
                draw()
                times.append(perf_counter())
                steps.append(_steps(stats()))
            speculation = stats()
        finally:
            decoding.close()
        tokens = np.diff([started, *times])
        if speculation is not None:
            tokens = _share(tokens, steps)
        return Sample(started, times[-1], 0.0, tuple(tokens.tolist()), speculation)

    def _read(self, tokens: Sequence[int]) -> F32:
        """Commits a prompt in chunks, as generation does; logits [vocab_size] after it."""
        chunk = self._session.prefill_chunk
        for at in range(0, len(tokens), chunk):
            part = tokens[at : at + chunk]
            output = self._session.step(part)
            if self._speculator is not None:
                self._speculator.observe(part, output)
        logits: F32 = output.logits[-1]
        return logits

    def _sampler(self) -> Sampler:
        return Sampler(SamplingParams(temperature=0.0), self._session.vocab_size)

    def _some_tokens(self, count: int) -> list[int]:
        found: list[int] = self._random.integers(self._session.vocab_size, size=count).tolist()
        return found


def _encode(model: Model, question: str) -> list[int]:
    if model.template is None:
        return model.tokenizer.encode(question)
    return list(model.encode_chat([{"role": "user", "content": question}]).tokens)


def _steps(stats: SpeculationStats | None) -> int:
    return 0 if stats is None else stats.rounds + stats.plain_steps


def _share(seconds: npt.NDArray[np.float64], steps: Sequence[int]) -> npt.NDArray[np.float64]:
    """Each token's part of the time of the step that it came with."""
    _, which, count = np.unique(steps, return_inverse=True, return_counts=True)
    return (np.bincount(which, weights=seconds) / count)[which]
