"""OpenAI's own client against a live server on the embedded model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.serve.conftest import Live

QUESTION = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live.address}/v1", api_key="any", max_retries=0) as made:
        yield made


def ask(client, messages=QUESTION, **options):
    options = {"temperature": 0, "max_tokens": 64, **options}
    return client.chat.completions.create(model="nano", messages=messages, **options)


def strictly(answer):
    """The answer is what the client's types say, without the leniency of its parsing."""
    type(answer).model_validate_json(answer.model_dump_json(exclude_unset=True), strict=None)
    return answer


def test_chat(client):
    answer = strictly(ask(client))
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    assert choice.message.content
    assert choice.message.reasoning_content
    assert "<" not in choice.message.content
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens
    assert answer.model == "nano"


def test_a_stream_says_the_same(client):
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(d.content or "" for d in deltas) == whole.choices[0].message.content
    reasoning = "".join(getattr(d, "reasoning_content", None) or "" for d in deltas)
    assert reasoning == whole.choices[0].message.reasoning_content
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert finishes[-1] == "stop"
    assert set(finishes[:-1]) == {None}
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_clients_own_stream_helper(client):
    options = {"model": "nano", "messages": QUESTION, "temperature": 0, "max_tokens": 64}
    with client.chat.completions.stream(**options) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == ask(client).choices[0].message.content


def test_thinking_off(client):
    answer = ask(client, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    message = answer.choices[0].message
    assert message.content
    assert getattr(message, "reasoning_content", None) is None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0
    same = ask(client, reasoning_effort="none")
    assert same.choices[0].message.content == message.content


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round_trip(client, stream):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    options = {"tools": [WEATHER], "max_tokens": 200}
    if stream:
        with client.chat.completions.stream(
            model="nano", messages=messages, temperature=0, **options
        ) as events:
            answer = events.get_final_completion()
    else:
        answer = strictly(ask(client, messages, **options))
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    messages += [
        choice.message.model_dump(exclude_none=True, exclude={"parsed"}),
        {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21, "sky": "clear"}'},
    ]
    for made in messages[1]["tool_calls"]:
        made["function"].pop("parsed_arguments", None)
        made.pop("index", None)
    answer = ask(client, messages, **options)
    assert answer.choices[0].finish_reason == "stop"
    assert "21" in answer.choices[0].message.content


def test_tools_not_to_be_used(client):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = ask(client, messages, tools=[WEATHER], tool_choice="none", max_tokens=200)
    assert not answer.choices[0].message.tool_calls


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_tools_that_must_be_used(client, choice, thinking):
    extra = {"chat_template_kwargs": {"enable_thinking": thinking}, "thinking_budget": 40}
    answer = ask(
        client, tools=[WEATHER], tool_choice=choice, max_tokens=300, extra_body=extra, stop=None
    )
    calls = answer.choices[0].message.tool_calls
    assert {call.function.name for call in calls} == {"get_weather"}
    assert "city" in json.loads(calls[0].function.arguments)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_json_by_a_schema(client, thinking, seed):
    answer = ask(
        client,
        temperature=1.5,
        seed=seed,
        max_tokens=400,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        extra_body={
            "chat_template_kwargs": {"enable_thinking": thinking},
            "thinking_budget": 30,
            "logit_bias": {},
        },
    )
    assert answer.choices[0].finish_reason == "stop"
    value = json.loads(answer.choices[0].message.content)
    assert set(value) == {"name", "age"}
    assert isinstance(value["age"], int)


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"type": "regex", "pattern": "(yes|no), [0-9]{3}"}, r"(yes|no), \d{3}"),
        ({"type": "grammar", "grammar": 'start: "a" "b"+ "!"'}, r"ab+!"),
    ],
)
def test_a_regex_and_a_grammar(client, wanted, pattern):
    answer = ask(client, extra_body={"response_format": wanted}, reasoning_effort="none")
    text = answer.choices[0].message.content
    import re

    assert re.fullmatch(pattern, text) or answer.choices[0].finish_reason == "length"


def test_a_thinking_budget(client):
    free = ask(client).usage.completion_tokens_details.reasoning_tokens
    assert free > 5
    for extra in ({"thinking_budget": 3}, {"custom_params": {"thinking_budget": 3}}):
        answer = ask(client, extra_body=extra)
        # The closing tag is the last token of the reasoning.
        assert answer.usage.completion_tokens_details.reasoning_tokens == 4
        assert answer.choices[0].message.content
    none = ask(client, extra_body={"thinking_budget": 0})
    assert getattr(none.choices[0].message, "reasoning_content", None) is None


def test_logprobs(client):
    answer = strictly(ask(client, logprobs=True, top_logprobs=3, reasoning_effort="none"))
    entries = answer.choices[0].logprobs.content
    text = b"".join(bytes(entry.bytes) for entry in entries).decode()
    assert text.removesuffix("<|im_end|>") == answer.choices[0].message.content
    for entry in entries:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy: the chosen one is the best"
    chunks = ask(client, logprobs=True, top_logprobs=3, reasoning_effort="none", stream=True)
    streamed = [e for c in chunks if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert [entry.token for entry in streamed] == [entry.token for entry in entries]


def test_a_bias_bans_a_token(client):
    first = ask(client, logprobs=True, reasoning_effort="none").choices[0].logprobs.content[0]
    ids = {}
    for token in range(0, 4096, 256):  # a batch at a time, to find which id it was
        bias = {str(i): -100 for i in range(token, token + 256)}
        answer = ask(client, logprobs=True, reasoning_effort="none", logit_bias=bias, max_tokens=1)
        ids[token] = answer.choices[0].logprobs.content[0].token != first.token
    assert sum(ids.values()) == 1


def test_several_answers(client):
    answer = ask(client, n=3, temperature=1, seed=7)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    again = ask(client, n=3, temperature=1, seed=7)
    assert [choice.message.content for choice in again.choices] == texts
    one = ask(client, temperature=1, seed=8)
    assert one.choices[0].message.content == texts[1]
    chunks = list(ask(client, n=3, temperature=1, seed=7, stream=True))
    streamed = ["", "", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_a_stop_string_and_the_limit(client):
    text = ask(client, reasoning_effort="none").choices[0].message.content
    word = text.split()[2]
    answer = ask(client, reasoning_effort="none", stop=[word])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == text[: text.index(word)]
    answer = ask(client, max_tokens=openai.NOT_GIVEN, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2


def test_parts_and_earlier_reasoning(client):
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    answer = ask(client, [{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == ask(client).choices[0].message.content
    history = [
        *QUESTION,
        {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."},
        {"role": "user", "content": "Thanks"},
    ]
    assert ask(client, history).choices[0].message.content
    kept = ask(
        client, history, extra_body={"chat_template_kwargs": {"truncate_history_thinking": False}}
    )
    assert kept.usage.prompt_tokens > ask(client, history).usage.prompt_tokens


def test_completions(client):
    options = {"model": "nano", "prompt": "Once upon", "temperature": 0, "max_tokens": 8}
    answer = strictly(client.completions.create(**options, logprobs=2))
    choice = answer.choices[0]
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 8
    assert "".join(choice.logprobs.tokens) == choice.text
    assert len(choice.logprobs.top_logprobs[0]) == 2
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    two = client.completions.create(**{**options, "prompt": ["Once upon", "The sun"]}, n=2)
    assert [c.index for c in two.choices] == [0, 1, 2, 3]
    assert two.choices[0].text == two.choices[1].text == choice.text
    ids = client.completions.create(**{**options, "prompt": [5, 6, 7]})
    assert ids.usage.prompt_tokens == 3


def test_models(client):
    (model,) = client.models.list().data
    assert (model.id, model.object) == ("nano", "model")
    assert client.models.retrieve("nano").id == "nano"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


REFUSED = {
    "an unknown parameter": ({"extra_body": {"foo": 1}}, "foo", "unknown_parameter"),
    "an unsupported one": ({"extra_body": {"audio": {}}}, "audio", "unknown_parameter"),
    "a temperature out of range": ({"temperature": -1}, "temperature", "invalid_value"),
    "a number as text": ({"extra_body": {"seed": "1"}}, "seed", "invalid_value"),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        None,
        None,
    ),
    "another model": ({"model": "gpt"}, "model", "model_not_found"),
    "no messages": ({"messages": []}, "messages", "invalid_value"),
    "a role nobody has": ({"messages": [{"role": "x", "content": ""}]}, "messages.0", None),
    "top_logprobs alone": ({"top_logprobs": 2}, "top_logprobs", None),
    "a tool that is none": (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "tool_choice",
        None,
    ),
    "an unknown switch": (
        {"extra_body": {"chat_template_kwargs": {"x": 1}}},
        "chat_template_kwargs",
        None,
    ),
    "a schema that is none": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "nothing"}},
            }
        },
        None,
        None,
    ),
    "a token that is none": ({"logit_bias": {"5000": 1}}, None, None),
    "a prompt that is too long": (
        {"messages": [{"role": "user", "content": "word " * 5000}]},
        "messages",
        "context_length_exceeded",
    ),
    "a prompt that is far too long": (
        {"messages": [{"role": "user", "content": "word " * 200_000}]},
        "messages",
        "context_length_exceeded",
    ),
    "a prefill for images": ({"extra_body": {"modalities": ["audio"]}}, None, "invalid_value"),
    "arguments that are no JSON": (
        {
            "messages": [
                *QUESTION,
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "1",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": "x"},
            ]
        },
        "messages.1.tool_calls",
        None,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_the_apis_own_words(client, name):
    change, param, code = REFUSED[name]
    options = {"model": "nano", "messages": QUESTION, **change}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**options)
    error = caught.value
    kind = openai.NotFoundError if code == "model_not_found" else openai.BadRequestError
    assert type(error) is kind
    body = error.response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"]
    if param is not None:
        assert error.param == param
    if code is not None:
        assert error.code == code


def test_the_types_hold_for_raw_json(client):
    raw = client.chat.completions.with_raw_response.create(
        model="nano", messages=QUESTION, max_tokens=4
    )
    data = json.loads(raw.text if isinstance(raw.text, str) else raw.text())
    ChatCompletion.model_validate(data, strict=False)
    assert set(data) <= set(ChatCompletion.model_fields)
