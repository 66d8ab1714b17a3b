"""uvicorn, without what an idle board would pay for: it waits for a signal instead of ticking."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

KEEP_ALIVE_SECONDS = 15


async def run_app(
    app: ASGIApp,
    sock: socket.socket,
    *,
    grace: float,
    ready: Callable[[], None],
    stopping: Callable[[], None],
) -> None:
    """Serves on a bound socket until SIGTERM or SIGINT.

    Args:
        grace: seconds that open connections get to end after the signal.
        ready: called once the socket listens.
        stopping: called in a thread when the signal comes; may take as long as `grace`.
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="off",
        http="h11",
        loop="asyncio",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    server = _Server(config, ready)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if server.stop.is_set():
            server.force_exit = True  # asked twice
            return
        server.stop.set()
        loop.run_in_executor(None, stopping)

    signals = (signal.SIGTERM, signal.SIGINT)
    for signum in signals:
        loop.add_signal_handler(signum, stop)
    try:
        await server.serve([sock])
    finally:
        for signum in signals:
            loop.remove_signal_handler(signum)


class _Server(uvicorn.Server):
    """A server that says when it listens and leaves signals to us."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.stop = asyncio.Event()
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def main_loop(self) -> None:
        await self.stop.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
