"""Choosing how many tokens to draft from what rounds cost here and what came of earlier ones."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from edgekit.bundle import Bundle
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import MAX_VERIFY, Session
from edgekit.runtime.speculate.accept import Acceptance
from edgekit.runtime.speculate.choosing import Choosing, choosers
from edgekit.runtime.speculate.drafter import Drafter

_REPEATS = 5
_PRIOR, _PRIOR_WEIGHT = 0.9, 2.0
"""Acceptance believed before anything was seen, and how many rounds it counts for."""

_MEMORY = 0.98
"""Weight that a round keeps with each round after it: the last fifty decide."""

_MARGIN = 1.05
"""How much faster than plain decoding drafting must look; costs are measured to some per cent."""

_TRIAL_SHARE = 0.02
"""Most time that trials may cost while drafting is off."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds on this machine.

    Attributes:
        rounds: by drafted tokens 0..7, of a round: propose, verify and commit. The first is a plain
            step.
    """

    rounds: tuple[float, ...]


def measured_costs(
    session: Session,
    drafter: Drafter,
    name: str,
    bundle: Bundle,
    threads: int | None,
    cache: Path,
    *,
    choosing: Choosing = "greedy",
) -> Costs:
    """Costs of the session with this drafter, measured the first time and kept in `cache` then.

    Args:
        session, drafter: fresh; they are reset.
        choosing: of requests whose tokens are chosen so.
        cache: a folder, which need not be writable.
    """
    manifest = bundle.manifest
    weights = sorted(entry.sha256 for entry in manifest.files.values())
    machine = (platform.node(), platform.machine(), os.cpu_count(), threads)
    what = json.dumps([weights, manifest.versions, manifest.executor, machine, name, choosing])
    file = cache / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.json"
    try:
        rounds = tuple(float(seconds) for seconds in json.loads(file.read_text()))
        if len(rounds) == MAX_VERIFY and min(rounds) > 0:
            return Costs(rounds)
    except (OSError, ValueError, TypeError):
        pass
    costs = measure(session, drafter, choosing)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=cache, delete=False) as stream:
            stream.write(json.dumps(costs.rounds))
        Path(stream.name).replace(file)
    except OSError:
        pass  # measured again next time
    return costs


def measure(session: Session, drafter: Drafter, choosing: Choosing = "greedy") -> Costs:
    """Medians of rounds whose last token is refused, so that replaying is counted. Widths take
    turns, so that a disturbance meets all of them. A context too short for a width, and a drafter
    that drafts fewer, rule it out."""
    widths = min(MAX_VERIFY, session.capacity - 1, drafter.max_tokens + 1)
    seconds: list[list[float]] = [[] for _ in range(MAX_VERIFY)]
    temperature = 0.0 if choosing == "greedy" else 1.0
    logprobs = 0 if choosing == "host" else None
    params = SamplingParams(temperature=temperature, top_p=0.95, logprobs=logprobs)
    sampler = Sampler(params, session.vocab_size)
    for repeat in range(_REPEATS + 1):
        for width in range(1, widths + 1):
            session.reset()
            drafter.reset()
            drafter.observe((0,), session.step((0,)).taps)
            started = perf_counter()
            _round(session, drafter, width, sampler)
            if repeat:  # the first round makes buffers
                seconds[width - 1].append(perf_counter() - started)
    session.reset()
    drafter.reset()
    return Costs(tuple(median(times) if times else float("inf") for times in seconds))


def _round(session: Session, drafter: Drafter, width: int, sampler: Sampler) -> None:
    """What decoding does for one round, whatever the tokens are."""
    kept = max(width - 1, 1)
    taps = None
    chooser, on_device = choosers(session, drafter, sampler)
    draw = sampler.draw_elsewhere()
    if chooser is not None and width == 1:
        chooser.step_choose(0, draw)
    elif on_device is not None:
        on_device.round(0, width - 1, draw)
    elif chooser is not None:
        drafter.propose(0, width - 1, sampler.best)
        chooser.verify_choose((0,) * width, draw)
    elif width == 1:
        output = session.step((0,))
        taps = output.taps
        sampler.sample(output.logits[-1])
    else:
        acceptance = Acceptance(sampler)
        drafted = drafter.propose(0, width - 1, acceptance.choose)
        acceptance.end()
        output = session.verify((0,) * width)
        taps = output.taps
        for i, token in enumerate(drafted):
            acceptance.token(output.logits[i], i, token)
    drafter.observe((0,) * kept, None if taps is None else taps[:kept])
    if width > 1:
        session.commit(kept)


class AutoLength:
    """Drafts as many tokens as promise the most tokens a second, and none while that is slower.

    A round of k drafted tokens gives 1 + a_1 + a_1 a_2 + ... tokens, a_i being the share of drafted
    tokens kept at position i among those whose predecessors were kept. While drafting is off it is
    tried again now and then, so seldom that trials cost a hundredth of the time.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._kept = [0.0] * (MAX_VERIFY - 1)
        self._tried = [0.0] * (MAX_VERIFY - 1)
        self._plain_seconds = float("inf")  # since the last round; the first one is free
        self._k = 0
        self._gain = 1.0

    def acceptance(self) -> list[float]:
        """a_i: what was seen, leaning on the position before where little was."""
        shares: list[float] = []
        share = _PRIOR
        for kept, tried in zip(self._kept, self._tried, strict=True):
            share = (kept + _PRIOR_WEIGHT * share) / (tried + _PRIOR_WEIGHT)
            shares.append(share)
        return shares

    def gains(self, limit: int) -> Sequence[float]:
        """Speed relative to plain decoding, by drafted tokens 0..limit."""
        plain, tokens, survives = self.costs.rounds[0], 1.0, 1.0
        gains = [1.0]
        for share, seconds in zip(self.acceptance()[:limit], self.costs.rounds[1:], strict=False):
            survives *= share
            tokens += survives
            gains.append(tokens * plain / seconds)
        return gains

    def choose(self, limit: int) -> int:
        gains = self.gains(limit)
        best = max(range(1, len(gains)), key=gains.__getitem__, default=0)
        self._gain = gains[best]
        plain = self.costs.rounds[0]
        if best and gains[best] < _MARGIN:
            lost = self.costs.rounds[best] - plain
            if lost > _TRIAL_SHARE * self._plain_seconds:
                best = 0
        self._plain_seconds += plain
        self._k = best
        return best

    def record(self, offered: int, kept: int, rejected: bool) -> None:
        self._plain_seconds = 0.0
        for i in range(min(kept + rejected, offered)):
            self._kept[i] = _MEMORY * self._kept[i] + (i < kept)
            self._tried[i] = _MEMORY * self._tried[i] + 1

    @property
    def why(self) -> str:
        return f"{self._k}, {self._gain:.2f}x plain expected of the best length"
