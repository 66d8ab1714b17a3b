"""sd_notify against a socket of our own."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.runtime.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def sent(manager: socket.socket) -> list[bytes]:
    messages = []
    try:
        while True:
            messages.append(manager.recv(4096))
    except BlockingIOError:
        return messages


def env(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(manager.getsockname()), **more}


def test_each_message(manager: socket.socket) -> None:
    notifier = Notifier.from_environment(env(manager, WATCHDOG_USEC="30000000"))
    notifier.extend(1.5)
    notifier.status("loading\nREADY=1")
    notifier.ready()
    notifier.alive()
    notifier.stopping()
    assert sent(manager) == [
        b"EXTEND_TIMEOUT_USEC=1500000",
        b"STATUS=loading READY=1",  # a line break would have been a message of its own
        b"READY=1",
        b"WATCHDOG=1",
        b"STOPPING=1",
    ]
    assert notifier.heartbeat_seconds == 15


def test_a_heartbeat_each_token_is_not_a_message_each_token(manager: socket.socket) -> None:
    notifier = Notifier.from_environment(env(manager, WATCHDOG_USEC="3600000000"))
    for _ in range(1000):
        notifier.alive()
    assert sent(manager) == [b"WATCHDOG=1"]


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0edgekit-test-{os.getpid()}")
        Notifier.from_environment({"NOTIFY_SOCKET": f"@edgekit-test-{os.getpid()}"}).ready()
        assert listener.recv(64, socket.MSG_DONTWAIT) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_nobody_listens(address: str) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": address})
    assert not notifier.active
    notifier.ready()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "²"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ],
)
def test_no_watchdog(manager: socket.socket, more: dict[str, str]) -> None:
    notifier = Notifier.from_environment(env(manager, **more))
    notifier.alive()
    assert notifier.heartbeat_seconds is None
    assert sent(manager) == []


def test_a_dead_manager_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    assert "READY=1" in caplog.text
