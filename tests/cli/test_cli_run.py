"""`edgekit run` without a terminal: streams, stdin, JSON and flags, on a fake conversation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli import chat
from tests.cli.conftest import Run
from tests.cli.fake_chat import FakeConversation, fake_open


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, nano: Path) -> list[FakeConversation]:
    """Conversations that `run` opened."""
    found: list[FakeConversation] = []

    def open_fake(bundle: Path, settings: Any, stop: tuple[str, ...]) -> FakeConversation:
        assert bundle == nano
        found.append(fake_open(bundle, settings, stop))
        return found[-1]

    monkeypatch.setattr(chat, "open_conversation", open_fake)
    return found


def test_only_the_answer_is_printed(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "nano", "Hello")
    assert (result.code, result.out, result.err) == (0, "Echo: Hello\n", "")


def test_no_bundle_is_the_embedded_one(edgekit: Run, opened: list[FakeConversation]) -> None:
    assert edgekit("run", stdin="Hi\n").out == "Echo: Hi\n"


def test_stdin_goes_before_the_prompt(edgekit: Run, opened: list[FakeConversation]) -> None:
    assert edgekit("run", "nano", "sum up", stdin="a text\n").out == "Echo: a text\n\nsum up\n"


def test_nothing_to_answer(edgekit: Run, opened: list[FakeConversation]) -> None:
    for args in (["nano"], ["nano", ""], ["--json"]):
        result = edgekit("run", *args)
        assert result.code == 2
        assert "PROMPT" in result.err
    assert opened == []


def test_json(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "nano", "Hello", "--json")
    *events, last = result.records
    assert result.code == 0
    content = [event["text"] for event in events if event["channel"] == "content"]
    assert "".join(content) == last["text"] == "Echo: Hello"
    assert last["reasoning"] == "hm hm"
    assert last["finish_reason"] == "stop"
    assert last["bundle"] == "nano"
    assert last["stats"]["prompt_tokens"] == 7
    assert all(record["schema_version"] == 1 for record in result.records)


def test_stats_on_demand(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "nano", "Hello", "--stats")
    assert result.out == "Echo: Hello\n"
    assert result.err.startswith("prompt 7 tok")


def test_flags_reach_the_model(edgekit: Run, opened: list[FakeConversation]) -> None:
    Path("edgekit.toml").write_text("top_k = 5\nseed = 1\n")
    edgekit(
        "run", "nano", "x", "--system", "be brief", "--no-think", "--max-tokens", "9",
        "--top-p", "0.5", "--min-p", "0.1", "--seed", "2", "--repetition-penalty", "1.1",
        "--presence-penalty", "0.2", "--frequency-penalty", "0.3",
    )  # fmt: skip
    (conversation,) = opened
    params = conversation.params
    assert conversation.system == "be brief"
    assert conversation.thinking is False
    assert (params.max_tokens, params.top_p, params.min_p) == (9, 0.5, 0.1)
    assert (params.top_k, params.seed) == (5, 2)  # the flag beats the file
    assert (params.repetition_penalty, params.presence_penalty) == (1.1, 0.2)
    assert params.frequency_penalty == 0.3
    assert params.temperature == 0.6  # the model's own


def test_wrong_flags(edgekit: Run, opened: list[FakeConversation]) -> None:
    for flag, value in (("--temperature", "hot"), ("--top-p", "2"), ("--max-tokens", "0")):
        assert edgekit("run", "nano", "x", flag, value).code == 2
    assert opened == []


def test_reasoning_that_used_up_the_tokens(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "nano", "only think")
    assert (result.code, result.out) == (0, "")
    assert "no answer: all 1 tokens were reasoning" in result.err
    assert "--no-think" in result.err


def test_context(edgekit: Run, opened: list[FakeConversation], nano: Path) -> None:
    elsewhere = nano.with_name("other")
    elsewhere.symlink_to(nano.resolve(), target_is_directory=True)
    result = edgekit("run", "other", "x", "--context", "8192")
    assert result.code == 2
    assert "4096 tokens, not 8192" in result.err
    assert "--force --context 8192" in result.err
    smaller = edgekit("run", "other", "x", "--context", "1024")
    assert (smaller.code, "4096 tokens, not 1024" in smaller.err) == (2, True)
    too_much = edgekit("run", "nano", "x", "--context", "8192")
    assert too_much.code == 2
    assert "longer than the model's 4096" in too_much.err


def test_a_setting_for_larger_models_does_not_stop_a_small_one(
    edgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CONTEXT", "32768")
    monkeypatch.setattr(chat, "open_conversation", fake_open)
    assert edgekit("run", "nano", "x").code == 0
    assert edgekit("show", "nano", "--json").records[0]["context"] == 4096


def test_an_error_of_the_model_is_reported(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "nano", "too long", "--json")
    assert result.code == 1
    assert result.records[-1]["type"] == "error"
    assert "longer than the context" in result.err


def test_an_unknown_bundle(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "lightning", "x")
    assert result.code == 1
    assert "no bundle 'lightning'" in result.err
    assert "did you mean 'nano'?" in edgekit("run", "nanp", "x").err


def test_a_prompt_without_a_bundle(edgekit: Run, opened: list[FakeConversation]) -> None:
    result = edgekit("run", "What is a state space?")
    assert result.code == 2
    assert "edgekit run nano 'What is a state space?'" in result.err


def test_the_embedded_model_is_built_when_it_is_missing(
    edgekit: Run, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(chat, "open_conversation", fake_open)
    result = edgekit("run", "nano", "Hello")
    assert result.out == "Echo: Hello\n"
    assert "building nano" in result.err
    assert (home / "data/edgekit/bundles/nano/manifest.json").is_file()
    assert edgekit("run", "nano", "Hello").err == ""


def test_the_embedded_model_is_built_again_when_it_is_damaged(
    edgekit: Run, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(chat, "open_conversation", fake_open)
    path = home / "data/edgekit/bundles/nano/manifest.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"schema_version": 0}')
    result = edgekit("run", "nano", "Hello")
    assert result.out == "Echo: Hello\n"
    assert "building nano again" in result.err


def test_the_embedded_model_is_built_again_when_its_checkpoint_is_newer(
    edgekit: Run, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(chat, "open_conversation", fake_open)
    assert edgekit("run", "nano", "x").code == 0
    os.utime(home / "data/edgekit/bundles/nano/manifest.json", (0, 0))
    assert "checkpoint is newer" in edgekit("run", "nano", "x").err
