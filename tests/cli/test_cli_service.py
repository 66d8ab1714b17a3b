"""`edgekit service` without systemd: what it would write and run."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run


def test_install_prints_the_unit_and_changes_nothing(edgekit: Run, nano: Path) -> None:
    result = edgekit("service", "install", str(nano), "--port", "9000", "--dry-run")
    assert result.code == 0, result.err
    assert f"serve {nano} --host 127.0.0.1 --port 9000" in result.out
    assert "doctor --wait-mib " in result.out
    assert "--wait-gpu" not in result.out  # it is a bundle for a CPU


def test_a_bundle_that_is_not_there(edgekit: Run) -> None:
    result = edgekit("service", "install", "--dry-run")
    assert result.code == 1
    assert "edgekit build nano" in result.err


def test_commands(edgekit: Run) -> None:
    assert edgekit("service", "logs", "-f", "--dry-run").out == "journalctl -u edgekit.service -f\n"
    assert "restart edgekit.service" in edgekit("service", "restart", "--dry-run").out
    assert edgekit("service", "start").code == 2


def test_waiting_for_memory(edgekit: Run) -> None:
    assert edgekit("doctor", "--wait-mib", "1").code == 0
    result = edgekit("doctor", "--wait-mib", "99999999", "--wait-seconds", "0")
    assert result.code == 1
    assert "are needed" in result.err
