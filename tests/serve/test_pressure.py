"""What an engine gives up while memory is short, in order, and that it recovers."""

from __future__ import annotations

import asyncio
import queue

import pytest

from edgekit.errors import EdgekitError
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.guard import GuardLimits, MemoryGuard, Pressure
from edgekit.runtime.serve.engine import DeadlineError, Engine, Job, PressureError
from edgekit.runtime.serve.errors import from_edgekit
from edgekit.runtime.serve.server import watch_memory
from tests.runtime.fake_model import make_model
from tests.serve.test_engine import Inbox

PROMPT = list(range(1, 40))
PARAMS = SamplingParams(temperature=0.0, max_tokens=4)


def submit(engine: Engine, **more: object) -> Inbox:
    inbox = Inbox()
    engine.submit([(Job(PROMPT, PARAMS, snapshot_at=(20,), **more), inbox)])
    return inbox


def test_snapshots_go_first_and_answers_stay_the_same() -> None:
    engine = Engine([make_model()])
    try:
        expected = [event.tokens for event in submit(engine).all()]
        assert len(engine.model.prefixes) > 0
        engine.press(Pressure.DROP_SNAPSHOTS)
        found = submit(engine).all()
        tokens = [event.tokens for event in found if event.tokens]
        assert tokens == [part for part in expected if part]
    finally:
        engine.drain(1)


def test_an_idle_engine_drops_them_too() -> None:
    engine = Engine([make_model()])
    submit(engine).all()
    engine.press(Pressure.DROP_SNAPSHOTS)
    engine.drain(10)
    assert len(engine.model.prefixes) == 0


def test_then_requests_are_refused_until_it_recovers() -> None:
    engine = Engine([make_model()])
    try:
        engine.press(Pressure.REFUSE_REQUESTS)
        with pytest.raises(PressureError) as caught:
            submit(engine)
        answer = from_edgekit(caught.value)
        assert (answer.status, answer.code) == (503, "memory_pressure")
        engine.press(Pressure.NONE)
        assert submit(engine).all()[-1].finish_reason is not None
    finally:
        engine.drain(1)


def test_then_prompts_wait_until_it_recovers() -> None:
    engine = Engine([make_model()])
    try:
        engine._changed.acquire()  # the worker sees job and pressure at once
        inbox = submit(engine)
        engine.press(Pressure.STOP_PREFILL)
        engine._changed.release()
        with pytest.raises(queue.Empty):
            inbox.items.get(timeout=0.6)
        assert engine.stalled_for() < 5
        engine.press(Pressure.NONE)
        assert inbox.all()[-1].finish_reason is not None
    finally:
        engine.drain(1)


def test_a_prompt_that_waits_keeps_its_deadline() -> None:
    engine = Engine([make_model()])
    try:
        engine._changed.acquire()
        inbox = submit(engine, timeout=0.3)
        engine.press(Pressure.STOP_PREFILL)
        engine._changed.release()
        assert isinstance(inbox.all()[-1], DeadlineError)
    finally:
        engine.drain(1)


def test_memory_that_goes_and_comes_back() -> None:
    readings = [1000, 140, 140, 90, 40, 40, *[1000] * 12]
    levels: list[Pressure] = []

    def available() -> int:
        if not readings:
            raise EdgekitError("end")
        return readings.pop(0)

    guard = MemoryGuard(GuardLimits(reserve=100, margin=10))
    asyncio.run(watch_memory(guard, levels.append, available, 0))  # ends when it cannot read
    assert [int(level) for level in levels] == [1, 2, 3, 2, 1, 0]


def test_an_answer_that_has_begun_goes_on() -> None:
    engine = Engine([make_model()])
    try:
        inbox = Inbox()
        job = Job(PROMPT, SamplingParams(temperature=0.0, max_tokens=300))

        def sink(item: object) -> None:
            if getattr(item, "tokens", ()):
                engine.press(Pressure.STOP_PREFILL)  # at the first token
            inbox(item)

        engine.submit([(job, sink)])
        assert inbox.all()[-1].finish_reason is not None
    finally:
        engine.drain(1)
