"""OpenAI's responses API by its own client, against a live server on the embedded model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.responses import Response

from tests.serve.conftest import Live

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
    "strict": False,
}

BAD_CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.address}/v1", api_key="any", max_retries=0) as made:
        yield made


def ask(client, given="Hello", **options):
    options = {"temperature": 0, "max_output_tokens": 200, **options}
    return client.responses.create(model="nano", input=given, **options)


def test_text_is_that_of_chat(client):
    answer = ask(client)
    Response.model_validate(json.loads(answer.model_dump_json()), strict=False)
    assert answer.status == "completed"
    chat = client.chat.completions.create(
        model="nano", messages=[{"role": "user", "content": "Hello"}], temperature=0
    )
    assert answer.output_text == chat.choices[0].message.content
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text == chat.choices[0].message.reasoning_content
    assert answer.usage.output_tokens == chat.usage.completion_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens > 0


def test_a_stream_grows_into_the_same(client):
    whole = ask(client)
    with client.responses.stream(
        model="nano", input="Hello", temperature=0, max_output_tokens=200
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text
    raw = ask(client, stream=True)
    assert [event.sequence_number for event in raw] == list(range(len(kinds)))


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round_trip(client, stream):
    given = [{"role": "user", "content": "What is the weather in Paris?"}]
    if stream:
        with client.responses.stream(
            model="nano", input=given, tools=[WEATHER], temperature=0
        ) as events:
            answer = events.get_final_response()
    else:
        answer = ask(client, given, tools=[WEATHER])
    (call,) = (item for item in answer.output if item.type == "function_call")
    assert call.name == "get_weather"
    assert json.loads(call.arguments) == {"city": "Paris"}
    drop = {"parsed_arguments", "parsed"}
    given += [
        {k: v for k, v in item.model_dump(exclude_none=True).items() if k not in drop}
        for item in answer.output
    ]
    result = {"type": "function_call_output", "call_id": call.call_id}
    given.append({**result, "output": '{"temperature": 21, "sky": "clear"}'})
    answer = ask(client, given, tools=[WEATHER])
    assert "21" in answer.output_text


def test_json_instructions_and_the_limit(client):
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer"}},
        "required": ["age"],
        "additionalProperties": False,
    }
    answer = ask(
        client,
        instructions="Be brief.",
        reasoning={"effort": "none"},
        text={"format": {"type": "json_schema", "name": "x", "schema": schema}},
    )
    assert isinstance(json.loads(answer.output_text)["age"], int)
    assert answer.instructions == "Be brief."
    short = ask(client, max_output_tokens=2)
    assert short.status == "incomplete"
    assert short.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"tools": [{"type": "web_search"}]}, None),
        (
            {"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}]},
            None,
        ),
        ({"input": "word " * 5000}, "input"),
    ],
)
def test_refused(client, change, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": "nano", "input": "x", **change})
    assert caught.value.body["type"] == "invalid_request_error"
    if param is not None:
        assert caught.value.param == param
