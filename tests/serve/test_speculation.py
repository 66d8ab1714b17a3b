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


@pytest.fixture(scope="module", params=["ngram", "dspark", "mtp"])
def drafting(
    request: pytest.FixtureRequest, nano: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    args = ("--slots", "2", "--speculate", request.param, "--draft-tokens", "4")
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
    values = {
        line.split(" ")[0]: float(line.split(" ")[1])
        for line in text.splitlines()
        if line.startswith("edgekit_d")
    }

    def total(name: str, label: str) -> float:
        return sum(v for key, v in values.items() if key.startswith(name) and label in key)

    offered = [total("edgekit_drafted_tokens_total", f'"offered",position="{i}"') for i in (1, 4)]
    accepted = [total("edgekit_drafted_tokens_total", f'"accepted",position="{i}"') for i in (1, 4)]
    # The last round of an answer is not settled when its counts are taken.
    assert total("edgekit_decode_steps_total", "verify") >= offered[0] >= offered[1] > 0
    assert offered[0] > accepted[0] >= accepted[1] > 0
    assert total("edgekit_decode_seconds_total", '"verify"') > 0
