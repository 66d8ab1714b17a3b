"""A real systemd as PID 1 of namespaces of its own, for tests; see systemd_box.sh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

SCRIPT = Path(__file__).with_suffix(".sh")
REPO = Path(__file__).parents[2]


class CannotBootError(Exception):
    """This machine does not let systemd boot in a namespace."""


@dataclass(frozen=True)
class Box:
    """A running systemd.

    Attributes:
        pid: of its PID 1, as this side sees it.
    """

    pid: int

    @property
    def root(self) -> Path:
        """Its root folder, as this side sees it."""
        return Path(f"/proc/{self.pid}/root")

    def run(self, *args: str, check: bool = True) -> str:
        """What a program inside prints, as root."""
        enter = ["nsenter", "-t", str(self.pid), "-a", "-r", "-w"]
        result = subprocess.run(
            [*enter, *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PATH": "/usr/sbin:/usr/bin", "HOME": "/", "LANG": "C.UTF-8"},
        )
        assert not check or result.returncode == 0, f"{args}: {result.stdout}{result.stderr}"
        return result.stdout

    def show(self, unit: str, *names: str) -> list[str]:
        """Properties of a unit, in the order asked for."""
        text = self.run("systemctl", "show", unit, *(f"-p{name}" for name in names))
        found = dict(line.split("=", 1) for line in text.splitlines())
        return [found[name] for name in names]

    def outer_pid(self, inner: int) -> int:
        """This side's number of a process inside."""
        ours = Path(f"/proc/{self.pid}/ns/pid").stat()
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                text = path.read_text()
            except OSError:
                continue
            numbers = next(line for line in text.splitlines() if line.startswith("NSpid:")).split()
            same = path.parent / "ns/pid"
            if numbers[-1] == str(inner) and same.stat() == ours:
                return int(path.parent.name)
        raise ProcessLookupError(inner)


@contextmanager
def boot(folder: Path) -> Iterator[Box]:
    """A systemd that sees this repository and this Python, both read-only.

    Args:
        folder: for its mount points.

    Raises:
        CannotBootError: with the reason.
    """
    if os.geteuid() != 0:
        raise CannotBootError("only root can make the namespaces")
    missing = [name for name in ("unshare", "nsenter", "chroot") if shutil.which(name) is None]
    if missing or not Path("/lib/systemd/systemd").is_file():
        raise CannotBootError(f"{missing[0] if missing else 'systemd'} is not installed")
    packages = {Path(path) for path in sys.path if Path(path).is_dir()}
    seen = {REPO, Path(sys.prefix), Path(sys.executable).resolve().parents[1], *packages}
    # /usr is there already.
    binds = sorted(str(path) for path in seen if not path.is_relative_to("/usr"))
    command = ["unshare", "--mount", "--propagation", "private", "sh", str(SCRIPT), str(folder)]
    errors = folder / "errors.txt"
    folder.mkdir(parents=True, exist_ok=True)
    with errors.open("w") as stderr:
        outer = subprocess.Popen(
            [*command, *binds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert outer.stdin is not None
    assert outer.stdout is not None
    try:
        yield _booted(outer.stdout.readline().strip(), errors)
    finally:
        outer.stdin.close()
        outer.wait(30)
        outer.stdout.close()


def _booted(unshare: str, errors: Path) -> Box:
    end = monotonic() + 30
    while monotonic() < end and unshare:
        try:
            children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        except OSError:
            break
        if children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
            box = Box(int(children[0]))
            state = box.run("systemctl", "is-system-running", check=False).strip()
            if state in ("running", "degraded"):
                return box
        sleep(0.1)
    raise CannotBootError(f"systemd did not boot: {errors.read_text()[-300:]}")
