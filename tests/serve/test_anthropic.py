"""Anthropic's own client against a live server on the embedded model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import pytest
from anthropic.types import Message

from tests.serve.conftest import Live

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
GREEDY = {"temperature": 0}  # which the client has no parameter for
RESULT = '{"temperature": 21, "sky": "clear"}'
THINK = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=live.address, api_key="any", max_retries=0) as made:
        yield made


def ask(client, messages=HELLO, **options):
    options = {"max_tokens": 200, "extra_body": GREEDY, **options}
    return client.messages.create(model="nano", messages=messages, **options)


def test_a_message(client):
    answer = ask(client)
    Message.model_validate(json.loads(answer.model_dump_json()), strict=False)
    (block,) = answer.content
    assert block.type == "text"
    assert block.text
    assert answer.stop_reason == "end_turn"
    counted = client.messages.count_tokens(model="nano", messages=HELLO).input_tokens
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted
    assert usage.output_tokens > 0


def test_thinking(client):
    answer = ask(client, thinking=THINK)
    thinking, text = answer.content
    assert (thinking.type, text.type) == ("thinking", "text")
    history = [
        *HELLO,
        {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]},
        {"role": "user", "content": "Thanks"},
    ]
    assert ask(client, history, thinking=THINK).content[-1].text
    short = ask(client, thinking={"type": "enabled", "budget_tokens": 2})
    assert len(short.content[0].thinking) < len(thinking.thinking)


def test_a_stream_grows_into_the_same(client):
    whole = ask(client, thinking=THINK)
    with client.messages.stream(
        model="nano", messages=HELLO, max_tokens=200, extra_body=GREEDY, thinking=THINK
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[-1].text
    assert [b.model_dump() for b in final.content] == [b.model_dump() for b in whole.content]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round_trip(client, stream):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [WEATHER]}
    if stream:
        with client.messages.stream(
            model="nano", messages=messages, max_tokens=200, extra_body=GREEDY, **options
        ) as events:
            answer = events.get_final_message()
    else:
        answer = ask(client, messages, **options)
    assert answer.stop_reason == "tool_use"
    call = answer.content[-1]
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    messages += [
        {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]},
        {"role": "user", "content": [result]},
    ]
    answer = ask(client, messages, **options)
    assert "21" in answer.content[-1].text


def test_a_tool_that_must_be_used_a_stop_and_the_limit(client):
    answer = ask(client, tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"})
    assert answer.content[0].name == "get_weather"
    text = ask(client).content[0].text
    word = text.split()[2]
    answer = ask(client, stop_sequences=["never", word])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", word)
    assert answer.content[0].text == text[: text.index(word)]
    assert ask(client, max_tokens=2).stop_reason == "max_tokens"


@pytest.mark.parametrize(
    "change",
    [
        {"extra_body": {"foo": 1}},
        {"extra_body": {"temperature": -1}},
        {"messages": [{"role": "user", "content": "word " * 5000}]},
        {"messages": [*HELLO, {"role": "assistant", "content": "Hi"}]},
        {"tool_choice": {"type": "any"}},
    ],
)
def test_refused_in_the_apis_own_words(client, change):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, **change)
    body = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"


def test_another_model(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="x", messages=HELLO, max_tokens=1)
    assert caught.value.body["error"]["type"] == "not_found_error"
