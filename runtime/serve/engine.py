"""A few sequences that take turns on one executor.

One worker thread owns the models, one model a slot. Requests wait in a bounded queue until a slot
is free. In its turn a slot does one step: a chunk of prefill, a token, or a round of speculation.
So with S slots nobody waits for more than S - 1 steps between two of their own, however long the
others' prompts are.

Without work the thread sleeps: nothing is polled.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from time import monotonic

from edgekit.errors import EdgekitError
from edgekit.runtime.events import Events, GenerationEvent, SamplingParams
from edgekit.runtime.generate import check_request
from edgekit.runtime.guard import Pressure
from edgekit.runtime.model import Model
from edgekit.runtime.sampling import Constraint

HELD_SECONDS = 0.25
"""How often prompts that wait for memory look at their deadlines."""


class BusyError(EdgekitError):
    """The queue is full.

    Attributes:
        retry_after: seconds after which a slot is likely to be free.
    """

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(
            f"the server is busy: {waiting} requests are waiting",
            hint=f"try again in {retry_after} s",
        )
        self.retry_after = retry_after


class PressureError(EdgekitError):
    """The machine is short of memory, so nothing new is begun."""


class StoppedError(EdgekitError):
    """The engine is shutting down, or was told to stop before this request was done."""


class DeadlineError(EdgekitError):
    """A request took longer than it may."""


@dataclass(frozen=True, slots=True)
class Job:
    """One generation to do.

    Attributes:
        prompt: token ids. start_in_reasoning, snapshot_at, pin: see `Model.generate`.
        constrain: makes a fresh constraint, on the worker's thread.
        timeout: seconds from being submitted to the last token; None is no limit.
    """

    prompt: list[int]
    params: SamplingParams
    start_in_reasoning: bool | None = None
    snapshot_at: tuple[int, ...] = ()
    pin: int = 0
    constrain: Callable[[], Constraint | None] | None = None
    timeout: float | None = None


Sink = Callable[[GenerationEvent | EdgekitError], None]
"""Takes what becomes of a job, on the worker's thread: events, the last with a finish_reason, or an
error, after which nothing comes. After a cancel nothing comes either."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A submitted job."""

    job: Job
    sink: Sink
    deadline: float | None
    cancelled: bool = False
    submitted: float = field(default_factory=monotonic)


@dataclass(eq=False, slots=True)
class _Slot:
    model: Model
    used: int = 0  # when it was last given a job, for choosing the one used least recently
    ticket: Ticket | None = None
    events: Events | None = None
    decoding: bool = False  # the prompt is done


@dataclass(frozen=True, slots=True)
class EngineStats:
    """How full the engine is now."""

    slots: int
    busy: int
    waiting: int


class Engine:
    """Runs jobs on its slots.

    Args:
        models: one a slot, over one bundle; the engine owns them.
        queue: jobs that may wait.
        at_end: called on the worker's thread when it ends, before the models are closed.
    """

    def __init__(
        self,
        models: Sequence[Model],
        *,
        queue: int = 32,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.model = models[0]
        self.queue = queue
        self._at_end = at_end
        self._slots = [_Slot(model) for model in models]
        self._waiting: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._state = "running"  # then "draining", then "stopped"
        self._clock = count(1)
        self._seconds_per_job = 1.0  # a moving average, for Retry-After
        self._last_turn = monotonic()
        self._pressure = Pressure.NONE
        self._thread = threading.Thread(target=self._work, name="edgekit-engine", daemon=True)
        self._thread.start()

    # -- from any thread

    @property
    def accepts(self) -> bool:
        """Whether it takes jobs."""
        return self._state == "running" and self._thread.is_alive()

    def stats(self) -> EngineStats:
        with self._changed:
            busy = sum(slot.ticket is not None for slot in self._slots)
            return EngineStats(len(self._slots), busy, len(self._waiting))

    def press(self, level: Pressure) -> None:
        """Sets what to give up while memory is short; see `guard.Pressure`."""
        with self._changed:
            if level is not self._pressure:
                self._pressure = level
                self._changed.notify()

    def stalled_for(self) -> float:
        """Seconds since work last went on; 0 without work, endless when the worker is dead."""
        if not self._thread.is_alive():
            return float("inf")
        with self._changed:
            busy = any(slot.ticket for slot in self._slots)
        return monotonic() - self._last_turn if busy else 0.0

    def check(self, job: Job) -> None:
        """Raises what `submit` would raise for the job itself; see `generate.check_request`."""
        check_request(self.model.session, job.prompt, job.params)

    def submit(self, jobs: Sequence[tuple[Job, Sink]]) -> list[Ticket]:
        """Takes all jobs or none.

        Raises:
            BusyError: there is no room for them.
            StoppedError: it takes no more jobs.
        """
        now = monotonic()
        tickets = [
            Ticket(job, sink, None if job.timeout is None else now + job.timeout)
            for job, sink in jobs
        ]
        with self._changed:
            if not self.accepts:
                raise StoppedError("the server is shutting down", hint="try again later")
            if self._pressure >= Pressure.REFUSE_REQUESTS:
                raise PressureError("this machine is short of memory", hint="try again in 10 s")
            free = sum(slot.ticket is None for slot in self._slots)
            if len(self._waiting) + len(tickets) > self.queue + free:
                turns = (len(self._waiting) + len(self._slots)) / len(self._slots)
                seconds = min(600, max(1, round(turns * self._seconds_per_job)))
                raise BusyError(len(self._waiting), seconds)
            self._waiting.extend(tickets)
            self._changed.notify()
        return tickets

    def warm_up(self) -> None:
        """Generates one token, so that the first request finds all code and memory in place.

        Raises:
            EdgekitError: the model does not run.
        """
        answers: SimpleQueue[GenerationEvent | EdgekitError] = SimpleQueue()
        self.submit([(Job([0], SamplingParams(temperature=0.0, max_tokens=1)), answers.put)])
        while True:
            answer = answers.get()
            if isinstance(answer, EdgekitError):
                raise answer
            if answer.finish_reason is not None:
                return

    def cancel(self, ticket: Ticket) -> None:
        """Gives a job up; its sink is not called again, but for a call that is under way."""
        with self._changed:
            ticket.cancelled = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)

    def drain(self, seconds: float) -> None:
        """Takes no more jobs, waits for those it has, and after so many seconds ends them."""
        with self._changed:
            if self._state == "running":
                self._state = "draining"
            self._changed.notify()
        self._thread.join(seconds)
        with self._changed:
            self._state = "stopped"
            self._changed.notify()
        self._thread.join()

    # -- the worker

    def _work(self) -> None:
        try:
            while self._wait():
                self._relieve()
                for slot in self._slots:
                    if slot.ticket is not None:
                        self._last_turn = monotonic()
                        self._turn(slot, slot.ticket)
        finally:
            self._state = "stopped"
            with self._changed:
                left = [*self._waiting, *(slot.ticket for slot in self._slots if slot.ticket)]
                self._waiting.clear()
            for ticket in left:
                self._tell(ticket, StoppedError("the server is shutting down"))
            for slot in self._slots:
                if slot.events is not None:
                    slot.events.close()
                slot.ticket = slot.events = None
            try:
                self._at_end()
            finally:
                for slot in reversed(self._slots):
                    slot.model.close()

    def _relieve(self) -> None:
        """Drops what can be computed again, while memory is short."""
        if self._pressure >= Pressure.DROP_SNAPSHOTS:
            for slot in self._slots:
                if len(slot.model.prefixes):
                    slot.model.prefixes.clear()

    def _held(self, slot: _Slot) -> bool:
        """Whether its prompt must wait until there is memory again."""
        return self._pressure >= Pressure.STOP_PREFILL and not slot.decoding

    def _wait(self) -> bool:
        """Waits for work and gives waiting jobs to free slots; false when there will be none."""
        with self._changed:
            while not (self._waiting or any(slot.ticket for slot in self._slots)):
                if self._pressure and len(self.model.prefixes):
                    return True  # there is something to drop
                if self._state != "running":
                    return False
                self._changed.wait()
            if all(self._held(slot) for slot in self._slots if slot.ticket is not None) and (
                self._pressure >= Pressure.STOP_PREFILL
            ):
                # Nothing may run. Deadlines and cancellations are looked at meanwhile.
                self._changed.wait(HELD_SECONDS)
            if self._state == "stopped":
                return False
            late = [ticket for ticket in self._waiting if self._is_late(ticket)]
            for ticket in late:
                self._waiting.remove(ticket)
            taken = []
            for _ in range(sum(slot.ticket is None for slot in self._slots)):
                if not self._waiting:
                    break
                ticket = self._waiting.popleft()
                slot = self._choose(ticket)
                self._last_turn = monotonic()
                slot.ticket = ticket
                taken.append(slot)
        for ticket in late:
            self._tell(ticket, _deadline(ticket))
        for slot in taken:
            self._begin(slot)
        return True

    def _choose(self, ticket: Ticket) -> _Slot:
        """The free slot that has most of the prompt, of equal ones the least recently used."""
        free = [slot for slot in self._slots if slot.ticket is None]
        return max(free, key=lambda slot: (slot.model.reusable(ticket.job.prompt), -slot.used))

    def _begin(self, slot: _Slot) -> None:
        ticket = slot.ticket
        assert ticket is not None
        slot.used, slot.decoding = next(self._clock), False
        job = ticket.job
        try:
            slot.events = slot.model.generate(
                job.prompt,
                job.params,
                start_in_reasoning=job.start_in_reasoning,
                snapshot_at=job.snapshot_at,
                pin=job.pin,
                constraint=job.constrain() if job.constrain is not None else None,
            )
        except Exception as error:
            self._end(slot, error)

    def _turn(self, slot: _Slot, ticket: Ticket) -> None:
        if slot.events is None:
            return
        if ticket.cancelled:
            self._end(slot)
            return
        if self._is_late(ticket):
            self._end(slot, _deadline(ticket))
            return
        if self._held(slot):
            return
        session = slot.model.session
        try:
            # Tokens that a verify step already paid for change nothing in the session: they are
            # free, and the turn ends with the next one that is not.
            before = session.length
            while session.length == before:
                event = next(slot.events)
                self._tell(ticket, event)
                if event.finish_reason is not None:
                    self._end(slot)
                    return
                slot.decoding |= bool(event.tokens)
        except Exception as error:
            self._end(slot, error)

    def _end(self, slot: _Slot, error: Exception | None = None) -> None:
        ticket, events = slot.ticket, slot.events
        assert ticket is not None
        if events is not None:
            events.close()
        with self._changed:
            slot.ticket = slot.events = None
        seconds = monotonic() - ticket.submitted
        self._seconds_per_job += 0.1 * (seconds - self._seconds_per_job)
        if error is not None:
            if not isinstance(error, EdgekitError):
                fault = EdgekitError(
                    "a fault in edgekit ended this request",
                    cause=f"{type(error).__name__}: {error}",
                )
                fault.__cause__ = error
                error = fault
            self._tell(ticket, error)

    def _tell(self, ticket: Ticket, what: GenerationEvent | EdgekitError) -> None:
        if not ticket.cancelled:
            ticket.sink(what)

    def _is_late(self, ticket: Ticket) -> bool:
        return ticket.deadline is not None and monotonic() > ticket.deadline


def _deadline(ticket: Ticket) -> DeadlineError:
    return DeadlineError(
        f"the request was not done after {ticket.job.timeout:g} s",
        hint="ask for fewer tokens, or start the server with a larger --timeout",
    )
