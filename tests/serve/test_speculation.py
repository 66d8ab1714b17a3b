"""Everything that shapes an answer, with a drafter: the same text as without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.serve.conftest import Live, running
from tests.serve.test_openai import SCHEMA, WEATHER

ASKED = [{"role": "user", "content": "Repeat: one two three one two three one two three"}]
REQUESTS = {
    "free": {},
    "json": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    },
    "json without thinking": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        "reasoning_effort": "none",
    },
    "regex": {
        "extra_body": {"response_format": {"type": "regex", "pattern": "(ab, ){6}[0-9]{4}"}},
        "reasoning_effort": "none",
    },
    "tool": {"tools": [WEATHER], "tool_choice": "required"},
    "budget": {"extra_body": {"thinking_budget": 5}},
    "bias and penalties": {
        "logit_bias": {"300": 2, "301": -5},
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
    },
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "a seed": {"temperature": 1, "seed": 5},
    "a stop": {"stop": ["two"]},
}


@pytest.fixture(scope="module")
def plain(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.address}/v1", api_key="x", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def drafting(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    args = ("--slots", "2", "--speculate", "ngram", "--draft-tokens", "4")
    with (
        running(nano, tmp_path_factory.mktemp("drafting"), *args) as server,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", max_retries=0) as made,
    ):
        yield made


def ask(client: openai.OpenAI, options: dict[str, object]) -> dict[str, object]:
    given = {"temperature": 0, "max_tokens": 160, **options}
    answer = client.chat.completions.create(model="nano", messages=ASKED, **given)
    choice = json.loads(answer.choices[0].model_dump_json())
    for call in choice["message"].get("tool_calls") or ():
        del call["id"]
    for entry in (choice["logprobs"] or {}).get("content") or ():
        # A step of several tokens sums in another order.
        entry["logprob"] = round(entry["logprob"], 2)
        del entry["top_logprobs"]
    return {**choice, "tokens": answer.usage.completion_tokens}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_that_without_a_drafter(
    plain: openai.OpenAI, drafting: openai.OpenAI, name: str
) -> None:
    expected = ask(plain, REQUESTS[name])
    assert ask(drafting, REQUESTS[name]) == expected
    assert ask(drafting, REQUESTS[name]) == expected, "from the cache as well"


def test_it_did_draft(drafting: openai.OpenAI) -> None:
    import httpx2

    text = httpx2.get(str(drafting.base_url).replace("/v1/", "/metrics")).text
    offered = next(line for line in text.splitlines() if 'kind="offered"' in line)
    accepted = next(line for line in text.splitlines() if 'kind="accepted"' in line)
    assert float(offered.split()[-1]) > float(accepted.split()[-1]) > 0
