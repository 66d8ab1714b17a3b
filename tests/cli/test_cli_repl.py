"""The chat prompt through a real terminal."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pexpect = pytest.importorskip("pexpect")

CTRL_C, CTRL_D, CTRL_G, ESCAPE = "\x03", "\x04", "\x07", "\x1b"
UP = "\x1b[A"
ROOT = Path(__file__).parents[2]


class Terminal:
    """A chat with the fake model in a pseudo-terminal."""

    def __init__(self, *args: str) -> None:
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "tests.cli.fake_chat", "run", *args],
            # Nobody answers cursor position requests here.
            env={
                **os.environ,
                "TERM": "xterm",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                "PYTHONPATH": str(ROOT),
            },
            encoding="utf-8",
            dimensions=(40, 100),
            timeout=30,
        )

    def sees(self, pattern: str) -> None:
        self.child.expect(pattern)

    def sees_prompt(self) -> None:
        self.child.expect(r">>>")
        self.child.expect(r"\x1b\[\?25h")  # the cursor is back: ready to type

    def types(self, text: str) -> None:
        self.child.send(text)

    def enters(self, text: str) -> None:
        self.child.send(f"{text}\r")

    def ends_within_modes(self, modes: int) -> int:
        """Waits for the end and asserts these local modes of the terminal are on then."""
        self.child.expect(pexpect.EOF)
        self.child.wait()
        assert termios.tcgetattr(self.child.child_fd)[3] & modes == modes
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)

    def ends(self) -> int:
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)


@pytest.fixture
def terminal(nano: Path) -> Iterator[Terminal]:
    chat = Terminal("nano", "--stats")
    yield chat
    chat.child.close(force=True)


def test_a_chat(terminal: Terminal, home: Path) -> None:
    terminal.sees("nano · ")
    terminal.sees("tokens of context")
    terminal.sees("/help")
    terminal.sees_prompt()
    terminal.enters("Hello")
    terminal.sees("thinking…")
    terminal.sees(r"thought for \d+\.\d s \(2 tokens\)")
    terminal.sees("Echo: Hello")
    terminal.sees("prompt 7 tok")
    terminal.sees_prompt()
    terminal.types(CTRL_D)
    assert terminal.ends() == 0
    assert "Hello" in (home / "state/edgekit/history").read_text()


def test_ctrl_c_keeps_the_partial_answer(terminal: Terminal) -> None:
    terminal.sees_prompt()
    terminal.enters("a long story")
    terminal.sees("word5")
    terminal.types(CTRL_C)
    terminal.sees_prompt()
    terminal.enters("/show")
    terminal.sees("2 messages")
    terminal.sees_prompt()
    terminal.enters("/bye")
    assert terminal.ends() == 0


def test_ctrl_c_at_the_prompt_clears_the_line_and_tells_how_to_leave(terminal: Terminal) -> None:
    terminal.sees_prompt()
    terminal.types("half a messa")
    terminal.types(CTRL_C)
    terminal.sees("Ctrl-D or /bye leaves")
    terminal.sees_prompt()
    terminal.enters("/tokens")
    terminal.sees("0 of 4096 tokens")
    terminal.sees_prompt()
    terminal.types(CTRL_D)
    assert terminal.ends() == 0


def test_messages_of_several_lines(terminal: Terminal) -> None:
    terminal.sees_prompt()
    terminal.enters('"""one')
    terminal.sees(r"\.\.\.")
    terminal.enters("two")
    terminal.enters('three"""')
    terminal.sees("Echo: one\r\ntwo\r\nthree")
    terminal.sees_prompt()
    terminal.types(f"four{ESCAPE}\r")
    terminal.enters("five")
    terminal.sees("Echo: four\r\nfive")


def test_pasted_lines_are_one_message(terminal: Terminal) -> None:
    terminal.sees_prompt()
    terminal.types("\x1b[200~first\nsecond\x1b[201~")
    terminal.enters("")
    terminal.sees("Echo: first\r\nsecond")


def test_history_and_completion(terminal: Terminal) -> None:
    terminal.sees_prompt()
    terminal.enters("Hello")
    terminal.sees("Echo: Hello")
    terminal.sees_prompt()
    terminal.types(UP)
    terminal.enters("")
    terminal.sees("Echo: Hello")
    terminal.sees_prompt()
    terminal.types("/tok\t")
    terminal.enters("")
    terminal.sees("tokens of context used")


def test_ctrl_g_opens_the_editor(nano: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = Path("editor.sh").absolute()
    editor.write_text('#!/bin/sh\nprintf "from the editor" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    chat = Terminal("nano")
    try:
        chat.sees_prompt()
        chat.types(CTRL_G)
        chat.sees("from the editor")
        chat.enters("")
        chat.sees("Echo: from the editor")
    finally:
        chat.child.close(force=True)


def test_an_error_does_not_end_the_chat(terminal: Terminal) -> None:
    terminal.sees_prompt()
    terminal.enters("too long")
    terminal.sees("longer than the context")
    terminal.sees_prompt()
    terminal.enters("break")
    terminal.sees("edgekit failed: RuntimeError: nobody foresaw this")
    terminal.sees_prompt()
    terminal.enters("/nonsense")
    terminal.sees("no command named")
    terminal.sees_prompt()
    terminal.enters("Hello")
    terminal.sees("Echo: Hello")


def test_sigterm_gives_the_terminal_back(terminal: Terminal) -> None:
    terminal.sees_prompt()
    descriptor = terminal.child.child_fd
    assert not termios.tcgetattr(descriptor)[3] & termios.ECHO
    terminal.child.kill(signal.SIGTERM)
    assert terminal.ends_within_modes(termios.ECHO) == 128 + signal.SIGTERM


def test_one_answer_in_a_terminal_shows_thinking_and_stats(nano: Path) -> None:
    chat = Terminal("nano", "Hello")
    seen: Any = chat.child.read()
    assert chat.ends() == 0
    assert "thinking…" in seen
    assert "Echo: Hello" in seen
    assert "prompt 7 tok" in seen


def test_ctrl_c_ends_one_answer_with_130(nano: Path) -> None:
    chat = Terminal("nano", "a long story")
    chat.sees("word3")
    chat.types(CTRL_C)
    assert chat.ends() == 130
