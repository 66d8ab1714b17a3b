"""The rounds of speculative decoding: propose, verify, draw, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

from edgekit.runtime.events import SpeculationStats
from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import MAX_VERIFY, Rows, Session, StepOutput
from edgekit.runtime.speculate.accept import Acceptance
from edgekit.runtime.speculate.choosing import Choosing, choosers, choosing_of
from edgekit.runtime.speculate.drafter import F32, Drafter
from edgekit.runtime.speculate.length import DraftLength


class Speculator:
    """A drafter beside a session, kept in step with it.

    Args:
        length: chooses how many tokens to draft.
        name: of the drafter, for people.
        lengths: the same for requests whose rounds cost something else.
    """

    def __init__(
        self,
        drafter: Drafter,
        length: DraftLength,
        name: str,
        lengths: Mapping[Choosing, DraftLength] | None = None,
    ) -> None:
        self.drafter = drafter
        self.length = length
        self.lengths = lengths or {}
        self.name = name

    def observe(self, tokens: Sequence[int], output: StepOutput) -> None:
        """The session committed these tokens in one step."""
        self.drafter.observe(tokens, output.taps)

    def decode(
        self, session: Session, sampler: Sampler, logits: F32, limit: int
    ) -> SpeculativeDecoding:
        """Decoding after a prompt that was observed; see `SpeculativeDecoding`."""
        return SpeculativeDecoding(self, session, sampler, logits, limit)

    def read_rows(self, first: int) -> Rows:
        """See `Drafter.read_rows`."""
        return self.drafter.read_rows(first)

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        """See `Drafter.resume`."""
        self.drafter.resume(tokens, parts)

    def reset(self) -> None:
        """Forgets the sequence."""
        self.drafter.reset()

    def close(self) -> None:
        """Frees the drafter's memory."""
        self.drafter.close()


class SpeculativeDecoding:
    """A `Decoding` whose steps verify drafted tokens.

    A round runs a block: the last token of the text (the anchor) and k drafted ones. Row i of the
    target's logits gives the token after the first i drafted ones. If that is the drafted token,
    row i + 1 gives the next; else the round is over and the rest of the block was in vain. A round
    is committed when the next begins, as far as its tokens were drawn: ending in the middle of it
    leaves the session as plain decoding would.

    Args:
        logits: [V] after the prompt.
        limit: tokens that will be drawn at most; no more are drafted.
    """

    def __init__(
        self, speculator: Speculator, session: Session, sampler: Sampler, logits: F32, limit: int
    ) -> None:
        self._speculator = speculator
        self._drafter = speculator.drafter
        self._session = session
        self._sampler = sampler
        self._acceptance = Acceptance(sampler)
        self._left = limit
        self._rows = logits[None]
        self._chosen: list[int] = []  # by the device, in place of logits
        self._chooser, self._device = choosers(session, speculator.drafter, sampler)
        self._draw = sampler.draw_elsewhere() if self._chooser is not None else None
        self._length = speculator.lengths.get(choosing_of(session, sampler), speculator.length)
        self._block: list[int] = []  # the anchor and the drafted tokens, if verified
        self._taps: F32 | None = None
        self._drawn = 0  # tokens of this round
        self._over = False
        self._anchor = -1
        self._tally = _Tally(speculator.name, self._length)

    def next(self) -> int:
        if self._over:
            self._settle()
            self._run()
        i, rows = self._drawn, self._rows
        if self._chosen:
            token = self._chosen[i]
            self._over = i + 1 == len(self._chosen) or token != self._block[i + 1]
        elif i + 1 < len(rows):
            drafted = self._block[i + 1]
            token = self._acceptance.token(rows[i], i, drafted)
            self._over = token != drafted
        else:
            token = self._sampler.sample(rows[i])
            self._over = True
        self._sampler.observe(token)
        self._drawn += 1
        self._left -= 1
        self._anchor = token
        return token

    @property
    def logits(self) -> F32:
        row: F32 = self._rows[self._drawn - 1]
        return row

    def stats(self) -> SpeculationStats:
        return self._tally.stats()

    def close(self) -> None:
        self._settle()

    def _settle(self) -> None:
        """Commits the tokens of the round that were drawn, but for the last."""
        if not self._block:
            return
        started = perf_counter()
        block, n = self._block, self._drawn
        self._block = []
        self._drafter.observe(block[:n], None if self._taps is None else self._taps[:n])
        self._session.commit(n)
        offered = len(block) - 1
        rejected = self._over and n <= offered
        kept = n - 1 if self._over else n
        self._length.record(offered, kept, rejected)
        self._tally.settled(offered, kept, perf_counter() - started)

    def _run(self) -> None:
        """Runs the anchor, with drafted tokens or alone."""
        started = perf_counter()
        self._drawn, self._over = 0, False
        self._chosen = []
        limit = min(self._left - 1, self._drafter.max_tokens, MAX_VERIFY - 1)
        k = self._length.choose(limit) if limit > 0 else 0
        if k and self._device is not None:
            drafted, self._chosen = self._device.round(self._anchor, k, self._draw)
            self._block, self._taps = [self._anchor, *drafted], None
            self._tally.ran(True, 0.0, perf_counter() - started)
            return
        drafted = self._draft(k)
        proposed = perf_counter()
        if drafted:
            self._block = block = [self._anchor, *drafted]
            if self._chooser is not None:
                self._chosen, self._taps = self._chooser.verify_choose(block, self._draw), None
            else:
                output = self._session.verify(block)
                self._rows, self._taps = output.logits, output.taps
        elif self._chooser is not None:
            self._chosen = [self._chooser.step_choose(self._anchor, self._draw)]
            self._drafter.observe((self._anchor,), None)
        else:
            output = self._session.step((self._anchor,))
            self._rows = output.logits[-1:]
            self._drafter.observe((self._anchor,), output.taps)
        self._tally.ran(bool(drafted), proposed - started, perf_counter() - proposed)

    def _draft(self, k: int) -> list[int]:
        if k == 0:
            return []
        acceptance = self._acceptance
        acceptance.begin()
        try:
            return self._drafter.propose(self._anchor, k, acceptance.choose)
        finally:
            acceptance.end()


class _Tally:
    """Counts and seconds of one generation."""

    __slots__ = (
        "_accepted",
        "_commit",
        "_draft",
        "_length",
        "_name",
        "_offered",
        "_plain",
        "_rounds",
        "_stats",
        "_verify",
    )

    def __init__(self, name: str, length: DraftLength) -> None:
        self._name, self._length = name, length
        self._rounds = self._plain = 0
        self._offered = [0] * (MAX_VERIFY - 1)
        self._accepted = [0] * (MAX_VERIFY - 1)
        self._draft = self._verify = self._commit = 0.0
        self._stats: SpeculationStats | None = None

    def ran(self, verified: bool, draft_seconds: float, seconds: float) -> None:
        if verified:
            self._rounds += 1
        else:
            self._plain += 1
        self._draft += draft_seconds
        self._verify += seconds
        self._stats = None

    def settled(self, offered: int, kept: int, seconds: float) -> None:
        for i in range(offered):
            self._offered[i] += 1
        for i in range(kept):
            self._accepted[i] += 1
        self._commit += seconds
        self._stats = None

    def stats(self) -> SpeculationStats:
        """The same object until something changes: a generation asks after every token."""
        if self._stats is None:
            used = next((i for i, n in enumerate(self._offered) if n == 0), len(self._offered))
            self._stats = SpeculationStats(
                self._name,
                self._rounds,
                self._plain,
                tuple(self._offered[:used]),
                tuple(self._accepted[:used]),
                self._draft,
                self._verify,
                self._commit,
                self._length.why,
            )
        return self._stats
