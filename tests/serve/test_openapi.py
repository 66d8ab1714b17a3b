"""schemathesis, from our own description, finds nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import Live, running

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)


def fuzz(address: str, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "schemathesis"
    checks = ",".join(CHECKS)
    return subprocess.run(
        [str(program), "run", f"{address}/openapi.json", "--checks", checks, "--seed", "1", *args],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


def test_schemathesis_finds_nothing_where_nothing_is_generated(live: Live, tmp_path: Path) -> None:
    quick = [f"--exclude-path=/v1/{name}" for name in ("chat/completions", "completions")]
    quick += [f"--exclude-path=/v1/{name}" for name in ("responses", "messages")]
    done = fuzz(live.address, tmp_path, "--phases", "fuzzing", "--max-examples=25", *quick)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.slow
def test_schemathesis_finds_nothing(nano: Path, tmp_path: Path) -> None:
    with running(nano, tmp_path, "--slots", "2", "--timeout", "2") as server:
        done = fuzz(server.address, tmp_path, "--max-examples", "20")
    assert done.returncode == 0, done.stdout[-6000:]
