"""Memory pressure: what a server gives up, in which order, before the board wedges.

On boards whose CPU and GPU share memory, an allocation too many does not fail: it hangs the host,
and cgroup limits do not see CUDA's memory. So the server watches MemAvailable itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Pressure(IntEnum):
    """What is given up; each level includes those below it."""

    NONE = 0
    DROP_SNAPSHOTS = 1
    REFUSE_REQUESTS = 2
    STOP_PREFILL = 3


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """When each level begins, in bytes of MemAvailable.

    The levels begin below 3/2, 1 and 1/2 of the reserve: dropping snapshots may keep the reserve
    whole, refusing starts when it is touched, and half of it is left when prefill stops.

    Attributes:
        reserve: what the plan keeps free always.
        margin: a level ends this far above its beginning, so that it does not flicker.
        calm: observations in a row above that before one level ends.
    """

    reserve: int
    margin: int
    calm: int = 3

    def __post_init__(self) -> None:
        if self.reserve <= 0 or self.margin < 0 or self.calm < 1:
            raise ValueError("reserve > 0, margin >= 0 and calm >= 1")

    @classmethod
    def for_reserve(cls, reserve: int) -> GuardLimits:
        """The limits of a plan's reserve, with a margin of an eighth of it."""
        return cls(reserve, reserve // 8)

    def below(self, level: Pressure) -> int:
        """`level` begins when less than this is available."""
        return self.reserve * (4 - level) // 2


class MemoryGuard:
    """Turns observations of MemAvailable into a level. It reads nothing and waits for nothing.

    Pressure rises one level an observation, so that what a lower level frees is seen before more
    is given up, except that below half the reserve it is at the top at once.
    """

    def __init__(self, limits: GuardLimits) -> None:
        self.limits = limits
        self._level = Pressure.NONE
        self._calm = 0

    @property
    def level(self) -> Pressure:
        """What is given up now."""
        return self._level

    def observe(self, available: int) -> Pressure:
        """Takes a reading in bytes, some two to ten a second, and returns the level now."""
        limits = self.limits
        wanted = Pressure(sum(available < limits.below(Pressure(n)) for n in (1, 2, 3)))
        if wanted > self._level:
            top = wanted is Pressure.STOP_PREFILL
            self._level = wanted if top else Pressure(self._level + 1)
            self._calm = 0
        elif self._level and available >= limits.below(self._level) + limits.margin:
            self._calm += 1
            if self._calm >= limits.calm:
                self._level = Pressure(self._level - 1)
                self._calm = 0
        else:
            self._calm = 0
        return self._level
