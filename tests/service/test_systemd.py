"""The service under a real systemd, booted in namespaces of its own; skipped where it cannot be."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from edgekit.export.build import BuildRequest, build_bundle
from edgekit.service.unit import NAME
from tests.tools.systemd_box import REPO, Box, CannotBootError, boot

pytestmark = pytest.mark.slow

EDGEKIT = str(Path(sys.executable).with_name("edgekit"))
# The same unit, with less waiting.
QUICK = "[Service]\nWatchdogSec=4\nRestartSec=1\nEnvironment=EDGEKIT_THREADS=1\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    try:
        with boot(tmp_path_factory.mktemp("box")) as box:
            yield box
    except CannotBootError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def nano(box: Box, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model's bundle, as a path inside: /tmp there is another for each service."""
    request = BuildRequest(
        checkpoint=REPO / "recipes" / "nano" / "checkpoint",
        output=tmp_path_factory.mktemp("bundles") / "nano",
        profile="cpu",
        recipe="nano-bf16",
        context=4096,
        prefill_chunk=128,
    )
    shutil.copytree(build_bundle(request), box.root / "srv/nano")
    return Path("/srv/nano")


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_until(done: Callable[[], bool], seconds: float = 90) -> None:
    end = monotonic() + seconds
    while not done():
        assert monotonic() < end
        sleep(0.1)


def drop_in(box: Box, text: str) -> None:
    folder = box.root / "etc/systemd/system" / f"{NAME}.d"
    folder.mkdir(exist_ok=True)
    (folder / "test.conf").write_text(text)
    box.run("systemctl", "daemon-reload")


def journal(box: Box) -> str:
    return box.run("journalctl", "--no-pager", "-u", NAME)


@contextmanager
def installed(box: Box, bundle: Path, port: int, more: str = QUICK) -> Iterator[None]:
    drop_in(box, more)
    try:
        box.run(EDGEKIT, "service", "install", str(bundle), "--port", str(port))
        yield
    finally:
        box.run(EDGEKIT, "service", "uninstall", check=False)
    places = ("etc/systemd/system", "var/lib", "var/cache", "run/systemd/system")
    left = [path for place in places for path in (box.root / place).rglob("edgekit*")]
    assert left == []


def is_active(box: Box) -> bool:
    return box.show(NAME, "ActiveState") == ["active"]


def health(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return int(answer.status)


def answer(port: int, tokens: int = 4, seconds: float = 60) -> str:
    body = {"model": "nano", "prompt": "One two", "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=seconds) as reply:
        return str(json.load(reply)["choices"][0]["text"])


def test_it_is_active_when_it_is_ready_and_not_before(box: Box, nano: Path, port: int) -> None:
    with installed(box, nano, port):
        states = [box.show(NAME, "ActiveState", "StatusText")]
        while states[-1][0] != "active":
            assert states[-1][0] == "activating", journal(box)
            states.append(box.show(NAME, "ActiveState", "StatusText"))
        assert health(port) == 200  # at once: READY was said after the port was open
        first = answer(port)
        pid, user = box.show(NAME, "MainPID", "UID")
        assert int(user) >= 60000  # a dynamic one
        # It is confined and still works: no home, no writing outside its own folders.
        status = Path(f"/proc/{box.outer_pid(int(pid))}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        # SIGKILL: another process, the same answer, and what the first computed is no obstacle.
        box.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", NAME)
        wait_until(lambda: box.show(NAME, "NRestarts") == ["1"] and is_active(box))
        assert box.show(NAME, "MainPID") != [pid]
        assert answer(port) == first
        # SIGTERM is the end that was asked for: no restart.
        box.run("systemctl", "stop", NAME)
        assert box.show(NAME, "ActiveState", "Result", "NRestarts")[:2] == ["inactive", "success"]


class Held:
    """Threads that a debugger holds: they hang, and everything else of their process runs."""

    _SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
    _WALL = 0x40000000

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [
            ctypes.c_long,
            ctypes.c_long,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self.threads: list[int] = []

    def hold(self, threads: list[int]) -> None:
        for thread in threads:
            assert self._libc.ptrace(self._SEIZE, thread, None, None) == 0, ctypes.get_errno()
            self._libc.ptrace(self._INTERRUPT, thread, None, None)
            os.waitpid(thread, self._WALL)
            self.threads.append(thread)

    def release(self) -> None:
        for thread in self.threads:
            self._libc.ptrace(self._DETACH, thread, None, None)
        self.threads.clear()

    def reap(self) -> None:
        """A process ends only when who holds its threads has seen them end."""
        for thread in list(self.threads):
            try:
                pid, status = os.waitpid(thread, self._WALL | os.WNOHANG)
            except ChildProcessError:
                pid, status = thread, 0
            if pid and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
                self.threads.remove(thread)
            elif pid:
                self._libc.ptrace(self._DETACH, thread, None, None)
                self.threads.remove(thread)


def hang_the_decode(box: Box, port: int) -> Held:
    """Holds every thread but the one with the event loop, which still answers."""
    pid = box.outer_pid(int(box.show(NAME, "MainPID")[0]))
    held = Held()
    for _ in range(50):
        held.hold([int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()][1:])
        try:
            health(port)
        except OSError:  # a held thread has Python's lock: that would be another hang
            held.release()
            sleep(0.05)
        else:
            return held
    raise AssertionError("the event loop never answered")


def test_a_hung_decode_is_ended_by_the_watchdog(box: Box, nano: Path, port: int) -> None:
    with installed(box, nano, port):
        wait_until(lambda: is_active(box))
        request = os.fork()
        if request == 0:  # a client whose answer will not come
            try:
                answer(port, tokens=4000, seconds=60)
            finally:
                os._exit(0)
        sleep(0.5)
        held = hang_the_decode(box, port)

        def restarted() -> bool:
            held.reap()
            return box.show(NAME, "NRestarts") == ["1"]

        wait_until(restarted, 60)
        os.kill(request, signal.SIGKILL)
        os.waitpid(request, 0)
        assert "Watchdog timeout" in journal(box)
        wait_until(lambda: is_active(box))
        answer(port)


def test_an_idle_server_feeds_the_watchdog(box: Box, nano: Path, port: int) -> None:
    with installed(box, nano, port):
        wait_until(lambda: is_active(box))
        sleep(9)  # two of its periods
        assert box.show(NAME, "ActiveState", "NRestarts") == ["active", "0"]


def test_a_load_that_fails_is_tried_a_few_times(box: Box, nano: Path, port: int) -> None:
    never = f"ExecStartPre=\nExecStartPre={EDGEKIT} doctor --wait-mib 99999999 --wait-seconds 0\n"
    with installed(box, nano, port, QUICK + never):
        wait_until(lambda: box.show(NAME, "ActiveState") == ["failed"])
        assert box.show(NAME, "NRestarts") == ["5"]
        assert "are needed" in journal(box)


def test_a_bundle_that_is_bad_is_tried_once(box: Box, nano: Path, port: int) -> None:
    with installed(box, nano, port, QUICK + f"ExecStart=\nExecStart={EDGEKIT} serve /no/bundle\n"):
        wait_until(lambda: box.show(NAME, "ActiveState") == ["failed"])
        assert box.show(NAME, "NRestarts", "ExecMainStatus") == ["0", "1"]
