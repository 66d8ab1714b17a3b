"""`edgekit doctor` on this machine: rows for people and programs, and the exit code."""

from __future__ import annotations

import socket

from tests.cli.conftest import Run


def test_rows_and_exit_code(edgekit: Run) -> None:
    result = edgekit("doctor", "--json", "--device", "cpu")
    checks = {row["name"]: row for row in result.records}
    assert {"memory", "swap", "disk", "port", "bundles"} <= set(checks)
    assert all(row["status"] in ("ok", "warn", "fail", "unknown") for row in checks.values())
    assert result.code == any(row["status"] == "fail" for row in checks.values())
    shown = edgekit("doctor", "--device", "cpu")
    assert len(shown.out.splitlines()) >= len(checks)


def test_a_board_that_this_is_not_fails(edgekit: Run) -> None:
    result = edgekit("doctor", "--device", "orin-nano-8gb")
    assert result.code == 1
    assert "fail     driver" in result.out


def test_a_taken_port_is_seen(edgekit: Run) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        result = edgekit("doctor", "--json", "--device", "cpu", "--port", str(port))
        row = next(row for row in result.records if row["name"] == "port")
    assert row["status"] == "warn"
