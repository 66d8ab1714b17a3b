"""The systemd unit, judged by systemd-analyze where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.unit import Service, unit_text

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze on this machine")


def analyze(tmp_path: Path, *arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "edgekit.service"
    path.write_text(text)
    assert ANALYZE is not None
    command = [ANALYZE, *arguments, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def service(bundle: str = "/opt/bundles/lightning") -> Service:
    return Service(Path("/bin/sh"), Path(bundle), groups=(44, 104, 44))


@needs_systemd
@pytest.mark.parametrize("bundle", ["/opt/b", '/opt/a "b" $HOME %n', "/opt/ü\\x20"])
def test_verify_has_nothing_to_say(tmp_path: Path, bundle: str) -> None:
    result = analyze(tmp_path, "verify", "--man=no", text=unit_text(service(bundle)))
    assert (result.returncode, result.stderr) == (0, "")


@needs_systemd
def test_verify_notices_faults(tmp_path: Path) -> None:
    broken = unit_text(service()).replace("WatchdogSec=60", "WatchdogSec=often")
    assert "often" in analyze(tmp_path, "verify", "--man=no", text=broken).stderr


@needs_systemd
def test_exposure_is_low(tmp_path: Path) -> None:
    arguments = ("security", "--offline=yes", "--threshold=45")
    result = analyze(tmp_path, *arguments, text=unit_text(service()))
    assert result.returncode == 0, result.stdout[-300:] + result.stderr


def test_what_a_gpu_server_needs() -> None:
    lines = unit_text(service()).splitlines()
    for line in (
        "Type=notify",
        "PrivateDevices=no",
        "ProcSubset=all",
        "SupplementaryGroups=44 104",
    ):
        assert line in lines
    settings = [line for line in lines if not line.startswith("#")]
    assert not any("graphical.target" in line or "MemoryMax" in line for line in settings)


def test_no_groups_is_no_line() -> None:
    text = unit_text(Service(Path("/bin/sh"), Path("/opt/b")))
    assert "SupplementaryGroups" not in text


@pytest.mark.parametrize("bundle", ["relative", "/opt/a\nExecStartPre=/bin/evil", "/opt/\0"])
def test_paths_that_are_refused(bundle: str) -> None:
    with pytest.raises(UsageError):
        unit_text(service(bundle))
