"""`edgekit serve` below the command line: opens the model and runs until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle import Bundle
from edgekit.detect import detect_profile, read_meminfo
from edgekit.errors import EdgekitError, MissingDependencyError, UsageError
from edgekit.profile import load_profile
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.guard import GuardLimits, MemoryGuard, Pressure
from edgekit.runtime.model import Model, load_model
from edgekit.runtime.notify import Notifier

if TYPE_CHECKING:
    from edgekit.runtime.serve.service import Service
    from edgekit.runtime.speculate.choose import Speculate

_log = logging.getLogger(__name__)

MAX_SLOTS = 4
WATCH_SECONDS = 0.5
"""Between two looks at the memory that is available."""
GRACE_SECONDS = 30.0
"""How long SIGTERM lets running answers go on."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where and how to serve.

    Attributes:
        port: 0 takes any free one.
        slots: sequences that run at once, 1..MAX_SLOTS.
        queue: requests that may wait.
        prefix_bytes: see `load_model`. prefix_dir: a folder where computed beginnings outlive this
            server; None keeps them in memory alone.
        change_sampling: from the model's own sampling to the server's.
    """

    bundle: Path
    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str | None = None
    name: str | None = None
    slots: int = 1
    queue: int = 32
    timeout: float = 600.0
    grace: float = GRACE_SECONDS
    threads: int | None = None
    speculate: Speculate = "off"
    draft_tokens: int | None = None
    prefix_bytes: int | None = None
    prefix_dir: Path | None = None
    change_sampling: Callable[[SamplingParams], SamplingParams] = lambda params: params

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("127.0.0.1", "::1", "localhost")


def require_packages() -> None:
    """Raises MissingDependencyError unless the extra `serve` is installed."""
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "edgekit serve needs packages that are not installed",
            cause=str(error),
            hint="pip install 'edgekit-nemotron[serve]'",
        ) from None


def listen(config: ServerConfig) -> socket.socket:
    """A socket on the configured address.

    Raises:
        UsageError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((config.host, config.port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise UsageError(
            f"cannot listen on {config.host}:{config.port}",
            cause=getattr(error, "strerror", None) or str(error),
            hint="another server may be running; choose with --host and --port",
        ) from None
    return sock


def open_models(config: ServerConfig) -> list[Model]:
    """One model a slot; they share the weights."""
    if not 1 <= config.slots <= MAX_SLOTS:
        raise UsageError(f"a server has 1 to {MAX_SLOTS} slots, not {config.slots}")
    models: list[Model] = []
    try:
        for _ in range(config.slots):
            models.append(
                load_model(
                    config.bundle,
                    threads=config.threads,
                    speculate=config.speculate,
                    draft_tokens=config.draft_tokens,
                    prefix_bytes=config.prefix_bytes,
                    beside=models[0] if models else None,
                )
            )
    except EdgekitError:
        for model in reversed(models):
            model.close()
        raise
    for model in models:
        model.sampling = config.change_sampling(model.sampling)
    return models


def open_service(config: ServerConfig) -> Service:
    """The model loaded and ready to answer."""
    require_packages()
    from edgekit.runtime.serve.engine import Engine
    from edgekit.runtime.serve.metrics import Metrics
    from edgekit.runtime.serve.service import ServeOptions, Service

    bundle = Bundle.open(config.bundle)
    name = config.name or bundle.manifest.name
    models = open_models(config)
    engine = Engine(models, queue=config.queue, at_end=_keep_prefixes(config, bundle, models[0]))
    options = ServeOptions(
        name=name,
        api_key=config.api_key,
        timeout=config.timeout,
        check_host=config.is_local and config.api_key is None,
    )
    return Service(engine, options, Metrics(engine))


def _keep_prefixes(config: ServerConfig, bundle: Bundle, model: Model) -> Callable[[], None]:
    """Reads what an earlier server left; returns what leaves it to the next."""
    if config.prefix_dir is None:
        return lambda: None
    from edgekit.runtime.prefix_files import folder_for, load, save

    drafter = model.speculator.name if model.speculator is not None else ""
    folder = folder_for(config.prefix_dir, bundle, drafter)
    load(model.prefixes, model.session, folder)

    def at_end() -> None:
        try:
            save(model.prefixes, model.session, folder)
        except OSError as error:
            _log.warning("computed beginnings were not saved in %s: %s", folder, error.strerror)

    return at_end


def serve(config: ServerConfig, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, then lets running answers end for a while.

    Args:
        ready: called with the server's address once it listens.
    """
    require_packages()
    from edgekit.runtime.serve.app import create_app
    from edgekit.runtime.serve.http_server import run_app

    notifier = Notifier.from_environment()
    sock = listen(config)
    notifier.status(f"loading {config.bundle.name}")
    service = open_service(config)
    guard = memory_guard()
    if notifier.active:
        service.engine.warm_up()
    shown = f"[{config.host}]" if ":" in config.host else config.host
    address = f"http://{shown}:{sock.getsockname()[1]}"
    feeding: list[asyncio.Task[None]] = []

    def listening() -> None:
        notifier.ready()
        notifier.status(f"serving on {address}")
        feeding.append(asyncio.create_task(feed_watchdog(notifier, service.engine.stalled_for)))
        feeding.append(asyncio.create_task(watch_memory(guard, service.engine.press)))
        ready(address)

    def stopping() -> None:
        notifier.stopping()
        service.engine.drain(config.grace)

    try:
        asyncio.run(
            run_app(
                create_app(service),
                sock,
                grace=config.grace,
                ready=listening,
                stopping=stopping,
            )
        )
    finally:
        service.engine.drain(0)


def memory_guard() -> MemoryGuard:
    """A guard of the reserve that this machine's profile keeps free."""
    reserve = load_profile(detect_profile().value).memory.reserve_mib
    return MemoryGuard(GuardLimits.for_reserve(int(reserve.value) << 20))


async def watch_memory(
    guard: MemoryGuard,
    press: Callable[[Pressure], None],
    available: Callable[[], int] = lambda: read_meminfo()["MemAvailable"],
    seconds: float = WATCH_SECONDS,
) -> None:
    """Tells the engine what to give up, for as long as it is not cancelled."""
    while True:
        before = guard.level
        try:
            now = available()
        except EdgekitError as error:  # not Linux, or a container that hides it
            _log.warning("memory is not watched: %s", error.message)
            return
        if guard.observe(now) is not before:
            press(guard.level)
            _log.warning("memory pressure: %s", guard.level.name.lower().replace("_", " "))
        await asyncio.sleep(seconds)


async def feed_watchdog(notifier: Notifier, stalled_for: Callable[[], float]) -> None:
    """Feeds the service manager's watchdog for as long as work goes on.

    It runs on the event loop and asks the engine, so that a hang of either is silence.

    Args:
        stalled_for: see `Engine.stalled_for`.
    """
    seconds = notifier.heartbeat_seconds
    while seconds is not None:
        if stalled_for() < seconds:
            notifier.alive()
        await asyncio.sleep(seconds / 2)
