"""Slash commands: the table, what each does, and what completion offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.cli import slash
from edgekit.cli.repl import Repl, is_open, unfence
from edgekit.errors import EdgekitError, UsageError
from edgekit.settings import load_settings
from tests.cli.fake_chat import FakeConversation


@pytest.fixture
def repl(nano: Path) -> Repl:
    return Repl(FakeConversation(), load_settings(), nano)  # type: ignore[arg-type]


def err(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def test_help_lists_every_command(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    repl.handle("/help")
    shown = err(capsys)
    for command in slash.COMMANDS.values():
        assert f"/{command.name}" in shown
        assert command.summary in shown
    repl.handle("/?")
    assert err(capsys) == shown


def test_the_commands_that_were_promised() -> None:
    promised = "help bye clear regen undo system set think stats show save load read tokens edit"
    assert list(slash.COMMANDS) == promised.split()


def test_a_misspelt_command_names_the_right_one(repl: Repl) -> None:
    with pytest.raises(UsageError) as caught:
        repl.handle("/claer")
    assert "'/clear'" in caught.value.hint


def test_bye(repl: Repl) -> None:
    with pytest.raises(EOFError):
        repl.handle("/bye")


def test_a_conversation(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    repl.handle("Hello")
    assert capsys.readouterr().out == "Echo: Hello\n"
    repl.handle("/regen")
    assert capsys.readouterr().out == "Echo: Hello again\n"
    assert len(repl.conversation.messages) == 2
    repl.handle("/undo")
    assert repl.conversation.messages == []
    repl.handle("/undo")
    assert "nothing to take back" in err(capsys)
    repl.handle("Hello")
    repl.handle("/tokens")
    assert "3 of 4096 tokens of context used" in err(capsys)
    repl.handle("/clear")
    assert repl.conversation.messages == []


def test_an_empty_message_is_none(repl: Repl) -> None:
    for text in ("", "  ", '""""""', '"""\n\n"""'):
        repl.handle(text)
    assert repl.conversation.messages == []


def test_set(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    repl.handle("/set temperature 0.2")
    assert repl.conversation.params.temperature == 0.2
    repl.handle("/set max-tokens 5")
    assert repl.conversation.params.max_tokens == 5
    assert repl.conversation.params.temperature == 0.2
    repl.handle("/set")
    shown = err(capsys)
    for name in slash.SETTABLE:
        assert name in shown
    repl.handle("/set seed")
    assert err(capsys) == "seed is not set\n"
    for wrong in ("/set temperature hot", "/set temperature -1", "/set colour red"):
        with pytest.raises(UsageError):
            repl.handle(wrong)
    assert repl.conversation.params.temperature == 0.2


def test_switches(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    repl.handle("/think off")
    assert repl.conversation.thinking is False
    repl.handle("/set think on")
    assert repl.conversation.thinking is True
    with pytest.raises(UsageError):
        repl.handle("/think perhaps")
    err(capsys)
    repl.handle("/stats")
    assert "nothing was generated" in err(capsys)
    repl.handle("/stats on")
    repl.handle("Hello")
    assert "prompt 7 tok" in err(capsys)
    repl.handle("/stats off")
    err(capsys)
    repl.handle("Hello")
    assert "prompt" not in err(capsys)
    repl.handle("/stats")
    assert "prompt 7 tok" in err(capsys)


def test_system(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    repl.handle("/system")
    assert "no system prompt" in err(capsys)
    repl.handle("/system You are brief.")
    assert repl.conversation.system == "You are brief."
    repl.handle("/system none")
    assert repl.conversation.system == ""


def test_save_and_load(repl: Repl, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repl.handle("Hello")
    repl.handle("/save monday")
    path = home / "state/edgekit/conversations/monday.json"
    assert len(json.loads(path.read_text())) == 2
    repl.handle("/clear")
    repl.handle("/load monday")
    assert len(repl.conversation.messages) == 2
    repl.handle(f"/save {home}/elsewhere.json")
    assert (home / "elsewhere.json").exists()
    assert "monday" in slash.completions("/load mon")
    with pytest.raises(EdgekitError, match="no conversation at") as caught:
        repl.handle("/load tuesday")
    assert "monday" in caught.value.cause


def test_read(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("the notes\n")
    repl.handle("/read notes.txt")
    assert "notes.txt (10 characters)" in err(capsys)
    repl.handle("sum up")
    assert repl.conversation.messages[0]["content"] == "the notes\n\nsum up"
    repl.handle("next")
    assert repl.conversation.messages[2]["content"] == "next"
    Path("binary").write_bytes(b"\xff\xfe")
    for wrong in ("/read", "/read missing.txt", "/read binary", "/read .", "/read /dev/zero"):
        with pytest.raises(EdgekitError):
            repl.handle(wrong)


def test_edit(
    repl: Repl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor = Path("editor.sh")
    editor.write_text('#!/bin/sh\nprintf " and\\nmore\\n" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor.absolute()))
    repl.handle("/edit first")
    assert repl.conversation.messages[0]["content"] == "first and\nmore"
    monkeypatch.setenv("VISUAL", "/no/such/editor")
    with pytest.raises(EdgekitError, match="no editor"):
        repl.handle("/edit")
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(EdgekitError, match="status 1"):
        repl.handle("/edit")


def test_the_banner_has_three_lines(repl: Repl, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = repl.banner()
    assert first.startswith("nano · ")
    assert "4096 tokens of context" in second
    assert "free" in second
    assert "/help" in third
    repl.handle("/show")
    assert first in err(capsys)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/he", ["/help"]),
        ("/s", ["/system", "/set", "/stats", "/show", "/save"]),
        ("/set temp", ["temperature"]),
        ("/set think t", ["true"]),
        ("/think ", ["on", "off"]),
        ("/nothing x", []),
        ("/read note", ["notes.txt"]),
        ("/read sub/", ["sub/inside.txt"]),
    ],
)
def test_completion(line: str, expected: list[str]) -> None:
    Path("notes.txt").touch()
    Path("sub").mkdir()
    Path("sub/inside.txt").touch()
    assert slash.completions(line) == expected


@pytest.mark.parametrize(
    ("text", "open_", "message"),
    [
        ("hello", False, "hello"),
        ('"""one', True, "one"),
        ('"""one\ntwo"""', False, "one\ntwo"),
        ('"""\none\n"""', False, "one"),
        ('say """ twice', False, 'say """ twice'),
    ],
)
def test_fences(text: str, open_: bool, message: str) -> None:
    assert is_open(text) is open_
    assert unfence(text) == message
