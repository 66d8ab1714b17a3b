"""The embedded model behind a server in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.draft import DraftRequest
from edgekit.export.build import BuildRequest, build_bundle

NANO = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"


CODE = """
import sys
from edgekit.cli import main
sys.exit(main(["serve", *sys.argv[1:], "--threads", "1"]))
"""


@dataclass(frozen=True)
class Live:
    """A running server."""

    address: str
    process: subprocess.Popen[str]
    errors: Path


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model as a bundle."""
    request = BuildRequest(
        checkpoint=NANO,
        output=tmp_path_factory.mktemp("bundles") / "nano",
        profile="cpu",
        recipe="nano-bf16",
        context=4096,
        prefill_chunk=128,
        drafts=DraftRequest(NANO / "draft", mtp=True),
    )
    return build_bundle(request)


@contextmanager
def running(bundle: Path, folder: Path, *args: str) -> Iterator[Live]:
    """A server on any free port, ended by SIGTERM; it must end well."""
    names = ("DATA", "CACHE", "STATE", "CONFIG")
    env = {key: value for key, value in os.environ.items() if not key.startswith("EDGEKIT_")}
    env |= {f"XDG_{name}_HOME": str(folder / name.lower()) for name in names}
    errors = folder / "errors.txt"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(bundle), "--port", "0", "--json", *args],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=env,
            cwd=folder,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, errors.read_text()
            yield Live(json.loads(line)["address"], process, errors)
        finally:
            process.terminate()
            code = process.wait(60)
            process.stdout.close()
    assert code == 0, errors.read_text()


@pytest.fixture(scope="session")
def live(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with two slots, shared by tests that leave nothing behind."""
    with running(nano, tmp_path_factory.mktemp("server"), "--slots", "2") as server:
        yield server
        assert "fault" not in server.errors.read_text()
