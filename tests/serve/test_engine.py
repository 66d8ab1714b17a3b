"""The engine over fake sessions: every answer is as if it were alone, whatever the others do."""

import queue
import threading

import pytest

from edgekit.errors import BuildError, EdgekitError
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.serve.engine import BusyError, DeadlineError, Engine, Job, StoppedError
from tests.runtime.fake_model import make_model

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


class Inbox:
    """A sink to wait on."""

    def __init__(self):
        self.items = queue.Queue()

    def __call__(self, item):
        self.items.put(item)

    def next(self):
        return self.items.get(timeout=20)

    def all(self):
        """Everything up to the end."""
        found = [self.next()]
        while not isinstance(found[-1], EdgekitError) and found[-1].finish_reason is None:
            found.append(self.next())
        return found


class Gate:
    """A session whose steps wait until they are let through; notes who stepped."""

    def __init__(self, session, name, log, gate):
        self._session, self._name, self._log, self._gate = session, name, log, gate

    def __getattr__(self, name):
        return getattr(self._session, name)

    def step(self, tokens, *, logits="last"):
        assert self._gate.acquire(timeout=20)
        self._log.append((self._name, len(tokens)))
        return self._session.step(tokens, logits=logits)


def engine(slots=2, *, gate=None, log=None, **options):
    models = [make_model() for _ in range(slots)]
    if gate is not None:
        for i, model in enumerate(models):
            model.session = Gate(model.session, i, log, gate)
    return Engine(models, **options)


@pytest.fixture
def closing():
    opened = []
    yield opened.append
    for one in opened:
        one.drain(0)


def submit(engine, prompt, params=GREEDY, **fields):
    inbox = Inbox()
    (ticket,) = engine.submit([(Job(prompt, params, **fields), inbox)])
    return ticket, inbox


def tokens_of(events):
    return [token for event in events for token in event.tokens]


def alone(prompt, params=GREEDY):
    return tokens_of(make_model().generate(prompt, params))


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_each_answer_is_as_if_it_were_alone(slots, closing):
    shared = engine(slots)
    closing(shared)
    prompts = [[i, *range(3 * i)] for i in range(1, 13)]
    params = [SamplingParams(temperature=float(i % 2), seed=i, max_tokens=4 + i) for i in range(12)]
    boxes = [submit(shared, p, q)[1] for p, q in zip(prompts, params, strict=True)]
    for prompt, param, box in zip(prompts, params, boxes, strict=True):
        assert tokens_of(box.all()) == alone(prompt, param)


def test_between_two_steps_of_one_user_others_do_a_chunk_at_most(closing):
    gate, log = threading.Semaphore(0), []
    shared = engine(2, gate=gate, log=log)
    closing(shared)
    _, first = submit(shared, [1, 2, 3], SamplingParams(0.0, max_tokens=40))
    for _ in range(4):
        gate.release()
    for _ in range(4):
        first.next()
    _, second = submit(shared, list(range(200)), GREEDY)  # 25 chunks of 8
    for _ in range(200):
        gate.release()
    assert tokens_of(second.all()) == alone(list(range(200)))
    owner = log[0][0]
    begun = next(i for i, (who, _) in enumerate(log) if who != owner)
    waited = 0
    for who, tokens in log[begun:]:
        if who == owner:
            waited = 0
        else:
            waited += tokens
            if sum(1 for w, _ in log if w == owner) < 40:
                assert waited <= 8
    assert sum(1 for who, _ in log[begun:] if who == owner) >= 25, "it went on meanwhile"


def test_a_full_queue_refuses_and_says_when_to_come_back(closing):
    gate = threading.Semaphore(0)
    shared = engine(1, gate=gate, log=[], queue=2)
    closing(shared)
    boxes = [submit(shared, [i, 5])[1] for i in range(3)]
    with pytest.raises(BusyError) as refused:
        submit(shared, [9])
    assert refused.value.retry_after >= 1
    with pytest.raises(BusyError):
        shared.submit([(Job([1], GREEDY), Inbox())] * 4)
    for _ in range(100):
        gate.release()
    for i, box in enumerate(boxes):
        assert tokens_of(box.all()) == alone([i, 5])
    assert tokens_of(submit(shared, [9])[1].all()) == alone([9])


def test_a_cancelled_job_frees_its_slot_and_tells_nothing_more(closing):
    gate = threading.Semaphore(0)
    shared = engine(1, gate=gate, log=[])
    closing(shared)
    running, running_box = submit(shared, [1, 2], SamplingParams(0.0))
    waiting, waiting_box = submit(shared, [3])
    _, last_box = submit(shared, [4])
    gate.release()
    running_box.next()
    shared.cancel(running)
    shared.cancel(waiting)
    for _ in range(50):
        gate.release()
    assert tokens_of(last_box.all()) == alone([4])
    assert waiting_box.items.empty()
    assert running_box.items.qsize() <= 2, "at most the turn that was under way"


def test_deadlines_hold_in_the_queue_and_in_a_slot(closing):
    gate = threading.Semaphore(0)
    shared = engine(1, gate=gate, log=[])
    closing(shared)
    _, running = submit(shared, [1, 2], SamplingParams(0.0), timeout=0.01)
    _, waiting = submit(shared, [3], timeout=0.01)
    threading.Event().wait(0.05)
    for _ in range(50):
        gate.release()
    assert isinstance(running.all()[-1], DeadlineError)
    assert isinstance(waiting.all()[-1], DeadlineError)
    assert tokens_of(submit(shared, [4])[1].all()) == alone([4])


def test_a_fault_ends_one_job_alone(closing):
    shared = engine(2)
    closing(shared)

    def broken():
        raise ZeroDivisionError("by us")

    _, bad = submit(shared, [1], constrain=broken)
    assert "ZeroDivisionError" in bad.all()[-1].cause
    shared._slots[0].model.session.fail_after = None
    for slot in shared._slots:
        step = slot.model.session.step

        def fail(tokens, *, logits="last", slot=slot, step=step):
            slot.model.session.step = step
            raise BuildError("the executor failed")

        slot.model.session.step = fail
    for _ in range(2):
        assert isinstance(submit(shared, [1, 2])[1].all()[-1], BuildError)
    assert tokens_of(submit(shared, [1, 2])[1].all()) == alone([1, 2])


def test_draining_finishes_what_runs_and_takes_no_more():
    gate = threading.Semaphore(0)
    shared = engine(1, gate=gate, log=[])
    _, running = submit(shared, [1, 2])
    _, waiting = submit(shared, [3])
    drained = threading.Thread(target=shared.drain, args=(20,))
    drained.start()
    while shared.accepts:
        pass
    with pytest.raises(StoppedError):
        submit(shared, [4])
    for _ in range(50):
        gate.release()
    assert tokens_of(running.all()) == alone([1, 2])
    assert tokens_of(waiting.all()) == alone([3])
    drained.join(20)
    assert shared.model.session.closed


def test_draining_for_too_long_ends_with_an_error():
    gate = threading.Semaphore(0)
    shared = engine(1, gate=gate, log=[])
    _, running = submit(shared, [1, 2], SamplingParams(0.0))
    _, waiting = submit(shared, [3])
    drained = threading.Thread(target=shared.drain, args=(0.01,))
    drained.start()
    while shared._state != "stopped":
        pass
    for _ in range(600):
        gate.release()
    assert isinstance(running.all()[-1], StoppedError)
    assert isinstance(waiting.all()[-1], StoppedError)
    drained.join(20)


def test_a_conversation_finds_its_slot_again(closing):
    shared = engine(2)
    closing(shared)
    first = tokens_of(submit(shared, [1, 2, 3])[1].all())
    submit(shared, [7, 8, 9])[1].all()
    longer = [1, 2, 3, *first[:-1], 4]
    events = submit(shared, longer)[1].all()
    assert tokens_of(events) == alone(longer)
    assert events[-1].stats.cached_tokens == len(longer) - 1
