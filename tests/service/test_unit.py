"""The systemd unit, judged by systemd itself where it is installed, and how it comes and goes."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.doctor.wait import wait_for
from edgekit.errors import DoesNotFitError, EdgekitError, MissingDependencyError, UsageError
from edgekit.service.manage import install, uninstall
from edgekit.service.unit import NAME, Unit, check_reachable, device_gids

UNIT = Unit(
    command=Path("/bin/true"),
    python=Path("/usr/bin/python3.11"),
    bundle=Path("/opt/models/nano"),
    host="127.0.0.1",
    port=8080,
    need_mib=600,
    gpu=True,
    gids=(44, 104),
)

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


def analyze(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / NAME
    path.write_text(UNIT.text())
    return subprocess.run(
        ["systemd-analyze", *args, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@needs_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    result = analyze(tmp_path, "verify", "--man=no")
    ours = [line for line in result.stderr.splitlines() if NAME in line]
    assert (result.returncode, ours) == (0, [])


@needs_systemd
def test_systemd_refuses_a_broken_unit(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(UNIT.text().replace("Type=notify", "Type=notfy"))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / NAME)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert NAME in result.stderr


@needs_systemd
def test_systemd_finds_little_exposed(tmp_path: Path) -> None:
    result = analyze(tmp_path, "security", "--offline=yes", "--no-pager")
    match = re.search(r"exposure level for .*: ([\d.]+)", result.stdout)
    assert match is not None, result.stdout + result.stderr
    assert float(match[1]) <= 2.0


def test_what_the_unit_says() -> None:
    text = UNIT.text()
    for line in (
        "Type=notify",
        "Restart=on-failure",
        "DynamicUser=yes",
        "SupplementaryGroups=44 104",
        "ProcSubset=all",
        "StateDirectory=edgekit",
        "DeviceAllow=/dev/nvmap rw",
        "DeviceAllow=char-nvidia* rw",
        "ExecStartPre=/bin/true doctor --wait-mib 600 --wait-gpu --wait-seconds 120",
        "ProtectHome=yes",
    ):
        assert f"\n{line}\n" in text
    assert not re.search("^[^#]*(graphical|MemoryMax)", text, re.MULTILINE)
    for at_home in (
        replace(UNIT, bundle=Path("/home/ada/nano")),
        replace(UNIT, python=Path("/root", ".pyenv/versions/3.11.7/bin/python3.11")),
    ):
        assert "\nProtectHome=read-only\n" in at_home.text()


def test_paths_that_a_unit_could_misread(tmp_path: Path) -> None:
    text = replace(UNIT, bundle=Path('/opt/a $b "c" 100%\\x; d')).text()
    assert r'"/opt/a $$b \"c\" 100%%\\x; d" --host' in text
    with pytest.raises(UsageError, match="control characters"):
        replace(UNIT, bundle=Path("/opt/a\nExecStartPost=/bin/sh")).text()


def test_groups_go_by_number(tmp_path: Path) -> None:
    for name in ("nvidia0", "dri/renderD128", "nvgpu/igpu0/ctrl", "tty"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    try:
        for gid, name in enumerate(("nvidia0", "dri/renderD128", "nvgpu/igpu0/ctrl", "tty"), 40):
            shutil.chown(tmp_path / name, group=gid)
    except PermissionError:
        pytest.skip("only root gives files to other groups")
    (tmp_path / "nvmap").symlink_to(tmp_path / "nvmap")
    assert device_gids(tmp_path) == (40, 41, 42)
    assert device_gids(tmp_path / "missing") == ()


def test_a_folder_closed_to_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.service.unit._TEMPORARY", ())
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(EdgekitError, match="could not read"):
        check_reachable(closed / "bundle")


def test_a_folder_that_a_service_has_another_of() -> None:
    with pytest.raises(EdgekitError, match="could not see /tmp/bundles/nano") as caught:
        check_reachable(Path("/tmp/bundles/nano"))
    assert "/tmp of their own" in caught.value.cause


class Systemctl:
    """Stands in for systemctl: notes commands, fails one of them."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self._fails = fails

    def __call__(self, args: Sequence[str]) -> int:
        self.calls.append(" ".join(args))
        return int(bool(self._fails) and self._fails in args)


def test_install_then_uninstall_leaves_nothing(tmp_path: Path) -> None:
    systemctl = Systemctl()
    units, var = tmp_path / "units", tmp_path / "var"
    units.mkdir()
    path = install(UNIT, folder=units, var=var, command=systemctl)
    assert path.read_text() == UNIT.text()
    assert systemctl.calls == [
        "systemctl daemon-reload",
        f"systemctl enable {NAME}",
        f"systemctl restart --no-block {NAME}",
    ]
    (units / f"{NAME}.d").mkdir()
    (units / f"{NAME}.d" / "mine.conf").touch()
    systemctl.calls.clear()
    for base in ("lib", "cache"):  # as systemd makes them for a dynamic user
        (var / base / "private" / "edgekit" / "prefixes").mkdir(parents=True)
        (var / base / "edgekit").symlink_to("private/edgekit")
    (var / "lib" / "another").mkdir()
    assert uninstall(folder=units, var=var, command=systemctl)
    assert list(units.iterdir()) == []
    assert [
        path.name for path in var.rglob("*") if path.name not in ("lib", "cache", "private")
    ] == ["another"]
    assert systemctl.calls[0] == f"systemctl disable --now {NAME}"
    assert not uninstall(folder=units, var=var, command=systemctl)


@pytest.mark.parametrize("step", ["daemon-reload", "enable", "restart"])
def test_an_install_that_fails_leaves_nothing(tmp_path: Path, step: str) -> None:
    with pytest.raises(EdgekitError, match=f"systemctl {step}"):
        install(UNIT, folder=tmp_path, var=tmp_path, command=Systemctl(step))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(EdgekitError) as caught:
        install(UNIT, folder=tmp_path / "missing", var=tmp_path, command=Systemctl())
    assert "sudo" in caught.value.hint


class Clock:
    """Time that passes only by waiting; `change` is called with each second."""

    def __init__(self, root: Path, available: Sequence[int], node_at: int = 0) -> None:
        self.now, self._root, self._available, self._node_at = 0, root, available, node_at
        (root / "proc").mkdir(parents=True)
        (root / "dev").mkdir()
        self._write()

    def _write(self) -> None:
        mib = self._available[min(self.now, len(self._available) - 1)]
        text = f"MemTotal: 9000000 kB\nMemAvailable: {mib * 1024} kB\n"
        (self._root / "proc/meminfo").write_text(text)
        if self.now >= self._node_at:
            (self._root / "dev/nvmap").touch()

    def __call__(self) -> float:
        return float(self.now)

    def pause(self, seconds: float) -> None:
        self.now += 1
        self._write()


def wait(root: Path, clock: Clock, seconds: float = 10) -> None:
    wait_for(500 << 20, gpu=True, seconds=seconds, root=root, clock=clock, pause=clock.pause)


def test_waits_for_memory_and_the_gpu(tmp_path: Path) -> None:
    memory = Clock(tmp_path / "a", [100, 200, 499, 500])
    wait(tmp_path / "a", memory)
    assert memory.now == 3
    node = Clock(tmp_path / "b", [900], node_at=7)
    wait(tmp_path / "b", node)
    assert node.now == 7


def test_gives_up_waiting(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFitError, match=r"100\.0 MiB of memory are available after 10 s"):
        wait(tmp_path / "a", Clock(tmp_path / "a", [100]))
    with pytest.raises(MissingDependencyError, match="no GPU device node"):
        wait(tmp_path / "b", Clock(tmp_path / "b", [900], node_at=99))
