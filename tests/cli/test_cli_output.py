"""The output object: streams, tables, JSON and colour."""

from __future__ import annotations

import io
import json
import sys

import pytest

from edgekit.cli.output import Output, has_color
from edgekit.errors import EdgekitError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def out() -> Output:
    return Output()


ROWS = [{"name": "nano", "tokens": 4096, "hidden": 1}, {"name": "lightning", "tokens": None}]


def test_a_table(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.table(["name", "tokens"], ROWS)
    lines = ["NAME        TOKENS", "nano          4096", "lightning        -"]
    assert capsys.readouterr().out.splitlines() == lines


def test_numbers_align_right(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.table(["name", "tokens"], [{"name": "a", "tokens": 5}, {"name": "b", "tokens": 4096}])
    assert capsys.readouterr().out.splitlines()[1:] == ["a           5", "b        4096"]


def test_a_table_as_json_has_all_fields(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.json = True
    out.table(["name"], ROWS)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"schema_version": 1, "name": "nano", "tokens": 4096, "hidden": 1}
    assert second["tokens"] is None


def test_quiet_is_the_first_column(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.quiet = True
    out.table(["name", "tokens"], ROWS)
    assert capsys.readouterr().out == "nano\nlightning\n"


def test_an_empty_table_says_so_on_stderr(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.table(["name"], [], empty="nothing yet")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nothing yet\n")


def test_a_record(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.record({"name": "nano", "ok": True, "modes": ("a", "b"), "none": None})
    assert capsys.readouterr().out == "name   nano\nok     yes\nmodes  a, b\nnone   -\n"


def test_messages_go_to_stderr(out: Output, capsys: pytest.CaptureFixture[str]) -> None:
    out.note("done")
    out.warn("careful")
    out.hint("next")
    out.error(EdgekitError("bad"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "done\nwarning: careful\nhint: next\nerror: bad\n"


@pytest.mark.parametrize(
    ("env", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], terminal: bool, expected: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert has_color(Terminal() if terminal else io.StringIO()) == expected


def test_nobody_to_ask_is_a_no(out: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert out.confirm("sure?") is False


@pytest.mark.parametrize(("answer", "expected"), [("y\n", True), ("\n", False), ("", False)])
def test_confirm(out: Output, monkeypatch: pytest.MonkeyPatch, answer: str, expected: bool) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert out.confirm("sure?") is expected
