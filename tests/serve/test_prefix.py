"""Prefix reuse behind the API, on the embedded model: same text, only new tokens computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.serve.conftest import running

SYSTEM = "You are a helpful assistant. " + " ".join(
    f"Rule {i}: be kind and brief." for i in range(25)
)
QUESTIONS = [
    "Hello",
    "What is 3 plus 4?",
    "What is the capital of France?",
    "Tell me about water.",
    "Thanks",
]


@contextmanager
def client(bundle: Path, folder: Path, *args: str) -> Iterator[openai.OpenAI]:
    folder.mkdir(exist_ok=True)
    with (
        running(bundle, folder, *args) as server,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", max_retries=0) as made,
    ):
        yield made


def ask(client, messages):
    answer = client.chat.completions.create(
        model="nano", messages=messages, temperature=0, max_tokens=80
    )
    return answer.choices[0].message.content, answer.usage


def talk(client, system=SYSTEM):
    """A few turns: (answer, prompt tokens, cached tokens) of each."""
    messages = [{"role": "system", "content": system}]
    turns = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        text, usage = ask(client, messages)
        messages.append({"role": "assistant", "content": text})
        turns.append((text, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens))
    return turns


@pytest.fixture(scope="module")
def uncached(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is said without a cache."""
    with client(nano, tmp_path_factory.mktemp("off"), "--prefix-cache", "0") as off:
        turns = talk(off)
    # Without a store a prompt still goes on in place where it can, which history forbids here.
    assert [cached for _, _, cached in turns] == [0] * len(turns)
    return [text for text, _, _ in turns]


@pytest.mark.parametrize(
    "args",
    [
        ("--slots", "2"),
        ("--speculate", "ngram", "--draft-tokens", "3"),
        ("--speculate", "dspark", "--draft-tokens", "7"),
        ("--speculate", "mtp", "--draft-tokens", "3"),
    ],
)
def test_each_turn_computes_what_is_new(
    nano: Path, tmp_path: Path, uncached: list[str], args: tuple[str, ...]
) -> None:
    with client(nano, tmp_path, *args) as on:
        turns = talk(on)
    assert [text for text, _, _ in turns] == uncached
    before = 0
    for _, prompt, cached in turns:
        # All of the turn before up to its generation prompt, which is five tokens.
        assert cached >= before - 5
        before = prompt
    new = turns[-1][1] - turns[-1][2]
    assert new < turns[0][1] / 4, "the last turn computes its own tokens and the last answer's"


@pytest.mark.parametrize("drafting", [(), ("--speculate", "dspark", "--draft-tokens", "7")])
def test_a_system_prompt_is_shared_and_outlives_a_restart(
    nano: Path, tmp_path: Path, drafting: tuple[str, ...]
) -> None:
    args = ("--slots", "2", "--prefix-dir", str(tmp_path / "kept"), *drafting)
    system = {"role": "system", "content": SYSTEM}
    with client(nano, tmp_path, *args) as one:
        first, usage = ask(one, [system, {"role": "user", "content": "Hello"}])
        assert usage.prompt_tokens_details.cached_tokens == 0
        second, usage = ask(one, [system, {"role": "user", "content": "Goodbye"}])
        shared = usage.prompt_tokens_details.cached_tokens
        assert shared > 0.9 * usage.prompt_tokens
    with client(nano, tmp_path, *args) as two:
        again, usage = ask(two, [system, {"role": "user", "content": "Goodbye"}])
        assert usage.prompt_tokens_details.cached_tokens >= shared
        assert again == second
        other, usage = ask(two, [system, {"role": "user", "content": "Name a fruit."}])
        assert usage.prompt_tokens_details.cached_tokens == shared
    with client(nano, tmp_path, "--prefix-cache", "0") as cold:
        assert ask(cold, [system, {"role": "user", "content": "Name a fruit."}])[0] == other
        assert ask(cold, [system, {"role": "user", "content": "Hello"}])[0] == first
