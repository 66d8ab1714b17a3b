"""Shell completion through Typer's own protocol, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.cli.options import complete_bundle, complete_model


def complete(line: str) -> list[str]:
    """What bash would offer at the end of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from edgekit.cli import main; sys.exit(main())"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "_EDGEKIT_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("edgekit bu", ["build"]),
        ("edgekit plan nano --device thor", ["thor-t4000", "thor-t5000"]),
        ("edgekit build nano --recipe nano-b", ["nano-bf16"]),
        ("edgekit plan li", ["lightning"]),
        ("edgekit profiles dgx", ["dgx-spark"]),
        ("edgekit recipes pub", ["published"]),
        ("edgekit config temp", ["temperature"]),
        ("edgekit show na", ["nano"]),
        ("edgekit run na", ["nano"]),
        ("edgekit plan nano --conte", ["--context"]),
    ],
)
def test_words(line: str, expected: list[str]) -> None:
    assert complete(line) == expected


def test_commands_without_the_hidden_ones() -> None:
    offered = complete("edgekit ")
    assert "build" in offered
    assert "ls" not in offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from edgekit.cli import main; sys.exit(main())"],
        capture_output=True,
        text=True,
        env={**os.environ, "_EDGEKIT_COMPLETE": f"source_{shell}"},
        check=False,
    )
    assert done.returncode == 0
    assert "edgekit" in done.stdout


def test_a_broken_configuration_does_not_break_the_shell() -> None:
    Path("edgekit.toml").write_text("nonsense = 1\n")
    assert list(complete_bundle("na")) == []


def test_folders_are_models(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    offered = dict(complete_model(f"{tmp_path}/che"))
    assert offered == {f"{tmp_path}/checkpoint/": "checkpoint"}
    assert list(complete_model("/no/such/place/x")) == []
