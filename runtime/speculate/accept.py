"""Which drafted tokens stay, so that the text is distributed as without a draft.

A token x drawn from the draft's q stays with probability min(1, p(x) / q(x)); the first that does
not is replaced by a draw from (p - q)_+ (Leviathan et al. 2023, arXiv:2211.17192, section 2.3).
Both distributions are made by the same sampler: temperature, filters and penalties are on both
sides.

A draft without q, greedy or looked up, needs no rule of its own: the target's token is drawn as
always, and the drafted one stays if it is the same. That draws exactly as plain decoding does. So
with a seed drafts are greedy, and the seed gives the same text with and without speculation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgekit.runtime.sampling import Sampler
from edgekit.runtime.speculate.drafter import F32

F64 = npt.NDArray[np.float64]


class Acceptance:
    """Draws the tokens of one draft after another, and what the target makes of them."""

    __slots__ = ("_chosen", "_draws", "_q", "_sampler")

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._draws = not sampler.is_greedy and sampler.params.seed is None
        self._q: list[F64] = []
        self._chosen: list[int] = []

    def begin(self) -> None:
        """A new draft starts."""
        self._q.clear()

    def choose(self, logits: F32) -> int:
        """The next drafted token, from the draft's logits [V]."""
        sampler = self._sampler
        if self._draws:
            q = sampler.distribution(logits)
            token = sampler.draw(q)
            self._q.append(q)
        else:
            token = sampler.best(logits)
        sampler.observe(token)  # penalties of the next drafted token count this one
        self._chosen.append(token)
        return token

    def end(self) -> None:
        """The draft is complete: its tokens are no part of the text yet."""
        for token in reversed(self._chosen):
            self._sampler.forget(token)
        self._chosen.clear()

    def token(self, logits: F32, i: int, drafted: int) -> int:
        """The text's token at position i of the block; `drafted` stays if it is this one.

        Args:
            logits: [V] of the target behind the first i drafted tokens, which were kept.
        """
        sampler = self._sampler
        if i >= len(self._q):
            return sampler.sample(logits)
        p, q = sampler.distribution(logits), self._q[i]
        if sampler.passes(p[drafted] / q[drafted]):
            return drafted
        residual = np.maximum(p - q, 0.0)
        # All zero only by rounding, where p is q and refusing has no probability.
        return sampler.draw(residual if residual.any() else p)
