"""Where the next token comes from, once the prompt is read."""

from __future__ import annotations

from typing import Protocol

from edgekit.runtime.events import SpeculationStats
from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import F32, ChoosingSession, Session


class Decoding(Protocol):
    """Draws one token after another.

    Between two calls of `next` the session may hold a verify step that is not committed; `close`
    leaves it with every token drawn but the last.
    """

    def next(self) -> int:
        """Draws a token and counts it for the penalties.

        Raises:
            BuildError: the executor fails or gives NaN.
        """

    @property
    def logits(self) -> F32:
        """[V] that the last token was drawn from, as the model gave them; until `next`."""

    def stats(self) -> SpeculationStats | None:
        """What drafting did so far, None without a drafter."""

    def close(self) -> None:
        """Ends it. Nothing else may be called afterwards."""


def plain_decoding(session: Session, sampler: Sampler, logits: F32) -> Decoding:
    """One step a token, with the logits on the host where somebody looks at them.

    Args:
        logits: [V] after the prompt.
    """
    if not sampler.needs_logits and isinstance(session, ChoosingSession):
        return ChosenDecoding(session, sampler, logits)
    return PlainDecoding(session, sampler, logits)


class ChosenDecoding:
    """One step a token, which the session chooses itself."""

    __slots__ = ("_draw", "_first", "_step", "_token")

    def __init__(self, session: ChoosingSession, sampler: Sampler, logits: F32) -> None:
        self._step = session.step_choose
        self._draw = sampler.draw_elsewhere()
        self._first: int | None = sampler.sample(logits)
        self._token = -1

    def next(self) -> int:
        first, self._first = self._first, None
        self._token = self._step(self._token, self._draw) if first is None else first
        return self._token

    @property
    def logits(self) -> F32:
        raise ValueError("the logits are on the device")

    def stats(self) -> None:
        return None

    def close(self) -> None:
        pass


class PlainDecoding:
    """One step a token.

    Args:
        logits: [V] after the prompt.
    """

    __slots__ = ("_logits", "_observe", "_sample", "_step", "_token")

    def __init__(self, session: Session, sampler: Sampler, logits: F32) -> None:
        self._step = session.step
        self._sample, self._observe = sampler.sample, sampler.observe
        self._logits = logits
        self._token: int | None = None

    def next(self) -> int:
        if self._token is not None:
            self._logits = self._step((self._token,)).logits[-1]
        self._token = self._sample(self._logits)
        self._observe(self._token)
        return self._token

    @property
    def logits(self) -> F32:
        return self._logits

    def stats(self) -> None:
        return None

    def close(self) -> None:
        pass
