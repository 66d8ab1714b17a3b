"""Every command here runs in its own XDG folders, with no terminal and no configuration."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli import main
from edgekit.export.build import BuildRequest, build_bundle

NANO = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"


@dataclass(frozen=True)
class Result:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for name in list(os.environ):
        if name.startswith(("EDGEKIT_", "_EDGEKIT")) or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture
def edgekit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, with `stdin` as its input."""

    def run(*args: str, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        code = main(list(args))
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def built_nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model as a bundle, built once."""
    request = BuildRequest(
        checkpoint=NANO,
        output=tmp_path_factory.mktemp("bundles") / "nano",
        profile="cpu",
        recipe="nano-bf16",
        context=4096,
        prefill_chunk=128,
    )
    return build_bundle(request)


@pytest.fixture
def nano(built_nano: Path, home: Path) -> Path:
    """The embedded model's bundle among this test's bundles. Remove it by its link only."""
    folder = home / "data" / "edgekit" / "bundles"
    folder.mkdir(parents=True)
    path = folder / "nano"
    path.symlink_to(built_nano, target_is_directory=True)
    return path
