"""Between HTTP and the engine: what an endpoint needs to run jobs and watch them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any, TypeVar

from edgekit.errors import EdgekitError
from edgekit.runtime.constrain import Grammars
from edgekit.runtime.events import GenerationEvent, GenerationStats
from edgekit.runtime.model import Model
from edgekit.runtime.serve.ask import ChatAsk, Prepared, prepare
from edgekit.runtime.serve.engine import Engine, Job
from edgekit.runtime.serve.errors import ApiError, from_edgekit
from edgekit.runtime.serve.metrics import Metrics

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a service behaves.

    Attributes:
        name: of the model, as clients ask for it.
        api_key: what clients must show; None lets everybody in.
        timeout: seconds a request may take, the waiting included.
        max_body: bytes of a request at most.
        check_host: answer only requests that name this machine as their host, which keeps web pages
            from reaching a server on localhost through a name of their own.
    """

    name: str
    api_key: str | None = None
    timeout: float = 600.0
    max_body: int = 4 << 20
    check_host: bool = False


class Service:
    """The model behind the endpoints."""

    def __init__(self, engine: Engine, options: ServeOptions, metrics: Metrics) -> None:
        self.engine, self.options, self.metrics = engine, options, metrics
        self.model: Model = engine.model
        self.grammars = Grammars(self.model.tokenizer, self.model.session.vocab_size)
        self.started = int(time())

    async def prepare(self, ask: ChatAsk, param: str = "messages") -> Prepared:
        """See `ask.prepare`; off the event loop, since tokenizing takes its time.

        Args:
            param: of the request, that holds the conversation.

        Raises:
            ApiError: the request cannot be done.
        """
        timeout = self.options.timeout

        def work() -> Prepared:
            prepared = prepare(self.model, self.grammars, ask, timeout=timeout)
            self.engine.check(prepared.job)
            return prepared

        return await self.off_loop(work, param)

    async def off_loop(self, work: Callable[[], T], param: str) -> T:
        """Runs something slow in a thread; its errors become the API's.

        Args:
            param: of the request, that a refusal is about.
        """
        try:
            return await asyncio.to_thread(work)
        except EdgekitError as error:
            raise from_edgekit(error, param) from None

    def run(self, jobs: Sequence[Job]) -> Runs:
        """Submits all jobs or none.

        Raises:
            ApiError: the queue is full, or the server is shutting down.
        """
        runs = Runs(self)
        try:
            runs.start(jobs)
        except EdgekitError as error:
            self.metrics.refused()
            raise from_edgekit(error) from None
        return runs

    def check_model(self, name: str) -> None:
        """Raises ApiError for a model that is not the one served."""
        if name != self.options.name:
            raise ApiError(
                404,
                f"the model {name!r} does not exist; this server has {self.options.name!r}",
                param="model",
                code="model_not_found",
            )


class Runs:
    """Jobs under way, as one stream of (which, event)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[tuple[int, GenerationEvent | EdgekitError] | None]
        self._arrived = asyncio.Queue()
        self._tickets: list[Any] = []
        self._open = 0
        self._watch: list[_Watch] = []

    def start(self, jobs: Sequence[Job]) -> None:
        """See `Engine.submit`."""
        sinks = [(job, self._sink(i)) for i, job in enumerate(jobs)]
        self._tickets = self._service.engine.submit(sinks)
        self._open = len(jobs)
        self._watch = [_Watch(self._service.metrics) for _ in jobs]

    def _sink(self, i: int) -> Callable[[GenerationEvent | EdgekitError], None]:
        def sink(item: GenerationEvent | EdgekitError) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, (i, item))

        return sink

    async def events(
        self, *, pulse: float | None = None
    ) -> AsyncGenerator[tuple[int, GenerationEvent] | None, None]:
        """Events as they come; closing the iterator cancels what still runs.

        An answer is never longer than the context, so what a slow reader leaves waiting here is
        bounded.

        Args:
            pulse: yield None as well, every so many seconds.

        Raises:
            ApiError: a job failed. The others are cancelled.
        """
        pulsing: asyncio.TimerHandle | None = None

        def beat() -> None:
            nonlocal pulsing
            assert pulse is not None
            self._arrived.put_nowait(None)
            pulsing = self._loop.call_later(pulse, beat)

        if pulse is not None:
            pulsing = self._loop.call_later(pulse, beat)
        try:
            while self._open:
                arrived = await self._arrived.get()
                if arrived is None:
                    yield None
                    continue
                i, item = arrived
                if isinstance(item, EdgekitError):
                    raise from_edgekit(item)
                self._watch[i].saw(item)
                if item.finish_reason is not None:
                    self._open -= 1
                yield i, item
        finally:
            if pulsing is not None:
                pulsing.cancel()
            self.cancel()

    def cancel(self) -> None:
        """Gives up what still runs."""
        for ticket in self._tickets:
            self._service.engine.cancel(ticket)
        for watch in self._watch:
            watch.ended()


class _Watch:
    """Measures one job."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last = perf_counter()
        self._stats: GenerationStats | None = None

    def saw(self, event: GenerationEvent) -> None:
        if event.tokens:
            now = perf_counter()
            first = self._stats is None or self._stats.completion_tokens == 0
            self._metrics.token(now - self._last, first=first)
            self._last = now
        self._stats = event.stats

    def ended(self) -> None:
        if self._stats is not None:
            self._metrics.job(self._stats)
            self._stats = None
