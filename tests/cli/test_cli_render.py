"""What a generation looks like on the two streams."""

from __future__ import annotations

import io
import os

import pytest

from edgekit.cli import render
from edgekit.cli.render import AnswerView, Thinking, stats_line, stats_record
from edgekit.runtime.events import Channel, FinishReason, GenerationEvent, GenerationStats

STATS = GenerationStats(12, 4, 9, 3, 0.5, 2.0)


def event(
    text: str, channel: Channel = "content", finish: FinishReason | None = None
) -> GenerationEvent:
    return GenerationEvent(text, channel, (1,), STATS, finish)


def show(thinking: Thinking, *events: GenerationEvent) -> AnswerView:
    view = AnswerView(thinking)
    for item in events:
        view.feed(item)
    return view


def test_the_answer_is_stdout_and_ends_with_a_newline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = show("hide", event("Hello "), event("you"), event("", finish="stop"))
    captured = capsys.readouterr()
    assert captured.out == "Hello you\n"
    assert captured.err == ""
    assert view.text == "Hello you"


def test_an_answer_with_a_newline_gets_no_second(capsys: pytest.CaptureFixture[str]) -> None:
    show("hide", event("Hello\n"), event("", finish="stop"))
    assert capsys.readouterr().out == "Hello\n"


def test_no_answer_is_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    show("hide", event("", finish="stop"))
    assert capsys.readouterr().out == ""


def test_thinking_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    show("show", event("hm", "reasoning"), event("yes"), event("", finish="stop"))
    captured = capsys.readouterr()
    assert captured.out == "yes\n"
    assert captured.err.splitlines()[:2] == ["thinking…", "hm"]
    assert captured.err.splitlines()[2].startswith("thought for ")
    assert "(3 tokens)" in captured.err


def test_hidden_thinking_is_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    show("hide", event("hm", "reasoning"), event("yes"), event("", finish="stop"))
    assert capsys.readouterr().err == ""


def test_thinking_that_never_ends_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    show("show", event("hm", "reasoning"), event("", "reasoning", "length"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "thought for" in captured.err


def test_a_model_that_does_not_think_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    prefill = GenerationEvent("", "reasoning", (), STATS)
    show("fold", prefill, event("\n", "reasoning"), event("yes", finish="stop"))
    assert capsys.readouterr().err == ""


def test_what_was_cut_off_is_ended(capsys: pytest.CaptureFixture[str]) -> None:
    show("show", event("part")).stop()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("part\n", "(stopped)\n")


def test_folding_takes_back_the_rows_it_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render.shutil, "get_terminal_size", lambda: os.terminal_size((10, 20)))
    # thinking… / 0123456789 / abc wraps to a third row: two rows above the cursor's.
    show("fold", event("0123456789abc", "reasoning"), event("yes", finish="stop"))
    err = capsys.readouterr().err
    assert "\r\x1b[2A\x1b[J" in err
    assert err.index("\x1b[J") < err.index("thought for")


def test_what_scrolled_away_is_not_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(render.shutil, "get_terminal_size", lambda: os.terminal_size((10, 4)))
    show("fold", event("a\nb\nc\nd", "reasoning"), event("yes", finish="stop"))
    assert "\x1b[" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", 0),
        ("0123456789", 0),
        ("0123456789x", 1),
        ("日本語日本", 0),
        ("日本語日本x", 1),
        ("é" * 10, 0),
    ],
)
def test_rows(monkeypatch: pytest.MonkeyPatch, text: str, rows: int) -> None:
    monkeypatch.setattr(render.shutil, "get_terminal_size", lambda: os.terminal_size((10, 20)))
    counter = render._Rows()
    counter.add(text)
    assert counter.above == rows


def test_a_stopped_answer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show("hide", event("partial", finish="cancelled"))
    captured = capsys.readouterr()
    assert captured.out == "partial\n"
    assert "(stopped)" in captured.err


def test_the_stats_line() -> None:
    line = stats_line(STATS)
    assert line.startswith(
        "prompt 12 tok (4 cached) · 16.0 tok/s | answer 9 tok · 4.0 tok/s | peak "
    )
    fast = GenerationStats(4096, 0, 2, 0, 1.0, 0.001)
    assert "4.1k tok/s" in stats_line(fast)
    assert "tok/s" not in stats_line(GenerationStats(0, 0, 0, 0, 0, 0))


def test_the_stats_record() -> None:
    record = stats_record(STATS)
    assert record["decode_tokens_per_second"] == 4.0
    assert isinstance(record["peak_bytes"], int)
    assert record["peak_bytes"] > 1 << 20


def test_a_terminal_that_goes_away_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    show("show", event("hm", "reasoning"), event("yes", finish="stop"))
