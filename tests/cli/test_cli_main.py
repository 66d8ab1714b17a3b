"""The frame of the command line: help, its cost, exit codes, errors on the right stream."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit import errors
from edgekit.cli import app as app_module
from edgekit.cli import main
from edgekit.cli.app import COMMANDS
from tests.cli.conftest import Run

HEAVY = (
    "torch",
    "onnxruntime",
    "onnx",
    "onnx_ir",
    "tensorrt",
    "prompt_toolkit",
    "numpy",
    "pydantic",
    "rich",
)


def python(code: str, *, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
        check=False,
    )


def test_help_is_cheap_and_imports_nothing_heavy() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = python(
        "import sys; from edgekit.cli import main; code = main(['--help']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu < 1.0


@pytest.mark.parametrize(
    "args", [["plan", "nano"], ["list"], ["profiles"], ["config"], ["run", "--help"]]
)
def test_light_commands_load_no_executor(args: list[str]) -> None:
    heavy = [name for name in HEAVY if name not in ("pydantic", "numpy")]
    done = python(
        f"import sys; from edgekit.cli import main; code = main({args!r});"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_names_every_command_and_exit_code(edgekit: Run) -> None:
    shown = edgekit("--help")
    assert shown.code == 0
    for command in COMMANDS:
        listed = f"\n  {command.name} " in shown.out
        assert listed != command.hidden, command.name
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert f"\n    {code} " in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_each_command_has_help(edgekit: Run, command: str) -> None:
    shown = edgekit(command, "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"Usage: edgekit {command}")
    assert max(map(len, shown.out.splitlines())) <= 100


def test_no_arguments_show_the_help_on_stdout_and_exit_2(edgekit: Run) -> None:
    shown = edgekit()
    assert shown.code == 2
    assert shown.out == edgekit("--help").out
    assert shown.err == ""


def test_version(edgekit: Run) -> None:
    assert edgekit("--version").out.startswith("edgekit ")


def test_a_misspelt_command_names_the_right_one(edgekit: Run) -> None:
    result = edgekit("biuld")
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: no such command 'biuld'")
    assert "'build'" in result.err


def test_a_wrong_flag_points_to_the_help_of_its_command(edgekit: Run) -> None:
    result = edgekit("plan", "nano", "--contxt", "3")
    assert result.code == 2
    assert "--context" in result.err
    assert result.err.endswith("\nhint: edgekit plan --help\n")


def test_a_wrong_flag_with_json(edgekit: Run) -> None:
    result = edgekit("plan", "nano", "--json", "--context", "many")
    (record,) = result.records
    assert result.code == record["exit_code"] == 2
    assert record["type"] == "error"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.EdgekitError, 1),
        (errors.CheckpointError, 1),
        (errors.BundleError, 1),
        (errors.DoesNotFitError, 1),
        (errors.UsageError, 2),
        (errors.MissingDependencyError, 3),
        (errors.BuildError, 4),
    ],
)
def test_each_error_has_its_exit_code(
    edgekit: Run, monkeypatch: pytest.MonkeyPatch, error: type[errors.EdgekitError], code: int
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error("it broke", cause="first line\nsecond line", hint="mend it")

    monkeypatch.setattr(app_module, "Globals", fail)
    result = edgekit("list")
    assert result.code == code
    assert result.out == ""
    assert result.err == (
        "error: it broke\n  cause: first line\n         second line\n\nhint: mend it\n"
    )


def test_an_error_with_json_is_on_both_streams(edgekit: Run) -> None:
    result = edgekit("show", "nothing", "--json")
    (record,) = result.records
    assert record["schema_version"] == 1
    assert record["type"] == "error"
    assert record["error"] == "no bundle 'nothing'"
    assert record["exit_code"] == result.code == 1
    assert result.err.startswith("error: no bundle 'nothing'")


def test_a_fault_is_short_and_has_a_traceback_on_demand(
    edgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(app_module, "Globals", fail)
    result = edgekit("list")
    assert result.code == 5
    assert "Traceback" not in result.err
    assert "RuntimeError: a bug" in result.err
    assert "EDGEKIT_DEBUG=1" in result.err
    monkeypatch.setenv("EDGEKIT_DEBUG", "1")
    assert "Traceback" in edgekit("list").err


def test_ctrl_c_is_130(edgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app_module, "Globals", interrupt)
    result = edgekit("list")
    assert result.code == 130
    assert "Traceback" not in result.err


def test_a_closed_pipe_is_no_fault() -> None:
    done = subprocess.run(
        f"{sys.executable} -c 'from edgekit.cli import main; raise SystemExit(main())' profiles"
        " | head -n 0; exit ${PIPESTATUS[0]}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_broken_configuration_stops_and_no_config_goes_on(edgekit: Run) -> None:
    Path("edgekit.toml").write_text("contxt = 3\n")
    result = edgekit("list")
    assert result.code == 2
    assert "'context'" in result.err
    assert edgekit("--no-config", "list").code == 0


def test_an_unknown_variable_is_a_warning(edgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CONTXT", "3")
    result = edgekit("list", "--json")
    assert result.code == 0
    assert "warning: EDGEKIT_CONTXT" in result.err


def test_main_returns_and_does_not_exit() -> None:
    assert main(["--version"]) == 0


def test_the_package_runs_as_a_module():
    asked = [sys.executable, "-m", "edgekit", "--version"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    command = python("from edgekit.cli import main; raise SystemExit(main(['--version']))")
    assert found.stdout.startswith("edgekit ")
    assert (found.returncode, found.stdout) == (0, command.stdout)
    wrong = subprocess.run([*asked[:3], "nonsense"], capture_output=True, check=False)
    assert wrong.returncode == 2
