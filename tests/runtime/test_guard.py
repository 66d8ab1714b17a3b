"""The memory guard: the order of what is given up, and how it comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.guard import GuardLimits, MemoryGuard, Pressure

LIMITS = GuardLimits(reserve=1000, margin=100, calm=3)


def levels(*readings: int) -> list[int]:
    guard = MemoryGuard(LIMITS)
    return [int(guard.observe(reading)) for reading in readings]


def test_memory_eaten_in_steps_gives_up_in_the_stated_order() -> None:
    assert levels(2000, 1500, 1499, 1000, 999, 500, 499) == [0, 0, 1, 1, 2, 2, 3]


def test_a_lower_level_gets_a_chance_to_free_memory_first() -> None:
    assert levels(900, 1550) == [1, 1]
    assert levels(900, 900) == [1, 2]


def test_no_ladder_when_half_the_reserve_is_gone() -> None:
    assert levels(5000, 100) == [0, 3]


def test_recovers_a_level_at_a_time_after_calm() -> None:
    guard = MemoryGuard(LIMITS)
    guard.observe(0)
    assert [int(guard.observe(5000)) for _ in range(9)] == [3, 3, 2, 2, 2, 1, 1, 1, 0]


def test_does_not_flicker_at_a_limit() -> None:
    # Above the beginning of level 1, and below its end.
    assert levels(1499, *[1501, 1599] * 20) == [1] * 41
    # One low reading starts the calm again.
    assert levels(1499, 1700, 1700, 1550, 1700, 1700, 1700) == [1, 1, 1, 1, 1, 1, 0]


@given(st.lists(st.integers(-10, 4000), max_size=60))
def test_any_readings(readings: list[int]) -> None:
    guard = MemoryGuard(LIMITS)
    before = Pressure.NONE
    for reading in readings:
        now = guard.observe(reading)
        if reading < LIMITS.below(Pressure.STOP_PREFILL):
            assert now is Pressure.STOP_PREFILL
        elif now > before:
            assert now == before + 1
            assert reading < LIMITS.below(now)
        elif now < before:
            assert now == before - 1
            assert reading >= LIMITS.below(before) + LIMITS.margin
        before = now
    for _ in range(9):
        guard.observe(10_000)
    assert guard.level is Pressure.NONE


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_limits_that_make_no_sense(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="reserve"):
        GuardLimits(*bad)
