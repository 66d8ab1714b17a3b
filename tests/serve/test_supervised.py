"""What the server tells systemd, heard on a socket in systemd's place."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.errors import BuildError
from edgekit.runtime.notify import Notifier
from edgekit.runtime.serve.engine import Engine
from edgekit.runtime.serve.server import feed_watchdog
from tests.runtime.fake_model import make_model
from tests.serve.conftest import CODE


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


def hear(sock: socket.socket) -> list[str]:
    return sock.recv(4096).decode().split("\n")


def test_a_server_says_how_it_is(nano: Path, manager: socket.socket, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "NOTIFY_SOCKET": manager.getsockname(),
        "WATCHDOG_USEC": "300000",
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    process = subprocess.Popen([sys.executable, "-c", CODE, str(nano), "--port", "0"], env=env)
    try:
        assert hear(manager) == ["STATUS=loading nano"]
        assert hear(manager) == ["READY=1"]
        assert hear(manager)[0].startswith("STATUS=serving on http://127.0.0.1:")
        for _ in range(3):
            assert hear(manager) == ["WATCHDOG=1"]
        process.send_signal(signal.SIGTERM)
        said = [hear(manager)]
        while said[-1][0] == "WATCHDOG=1":
            said.append(hear(manager))
        assert said[-1][0] == "STOPPING=1"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_bundle_that_is_bad_is_never_ready(manager: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "manifest.json").write_text("{")
    env = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-c", CODE, str(tmp_path / "bad"), "--port", "0"]
    # The unit's RestartPreventExitStatus names 1.
    assert subprocess.run(command, env=env, check=False, stderr=subprocess.DEVNULL).returncode == 1
    manager.setblocking(False)
    said = []
    try:
        while True:
            said += hear(manager)
    except BlockingIOError:
        pass
    assert "READY=1" not in said


def test_a_hang_is_silence(manager: socket.socket) -> None:
    stalled = [0.0, 0.0, 9.0, 9.0, 0.0]

    class EndedError(Exception):
        pass

    def stalled_for() -> float:
        if not stalled:
            raise EndedError
        return stalled.pop(0)

    notifier = Notifier(manager.getsockname(), 0.1)
    with pytest.raises(EndedError):
        asyncio.run(feed_watchdog(notifier, stalled_for))
    manager.setblocking(False)
    heard = 0
    try:
        while hear(manager) == ["WATCHDOG=1"]:
            heard += 1
    except BlockingIOError:
        pass
    assert heard == 3


def test_an_engine_knows_that_it_hangs() -> None:
    model = make_model()
    stuck, go = threading.Event(), threading.Event()
    real = model.session.step

    def hang(*args: object, **named: object) -> object:
        stuck.set()
        assert go.wait(20)
        return real(*args, **named)

    model.session.step = hang
    engine = Engine([model])
    assert engine.stalled_for() == 0.0
    warm = threading.Thread(target=engine.warm_up)
    warm.start()
    assert stuck.wait(20)
    first = engine.stalled_for()
    while engine.stalled_for() <= first:
        pass
    go.set()
    warm.join(20)
    assert engine.stalled_for() == 0.0
    engine.drain(1)
    assert engine.stalled_for() == float("inf")


def test_a_model_that_does_not_run_is_not_warm() -> None:
    model = make_model()

    def broken(*args: object, **named: object) -> object:
        raise BuildError("the engine failed")

    model.session.step = broken
    engine = Engine([model])
    with pytest.raises(BuildError, match="the engine failed"):
        engine.warm_up()
    engine.drain(1)
