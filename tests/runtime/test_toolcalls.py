"""Tool calls: every slip the format allows for, and any division of the text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.reasoning import ReasoningSplitter
from edgekit.runtime.tokenizer import Detokenizer
from edgekit.runtime.toolcalls import CallArguments, CallStart, TextDelta, ToolCallParser, converted
from tests.runtime.fake_tokenizer import make_tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "scale": {"type": "number"},
                    "wind": {"type": "boolean"},
                    "where": {"type": "object"},
                    "names": {"type": ["array", "null"]},
                    "unit": {"enum": ["C", "F"]},
                },
            },
        },
    }
]
PARIS = "<parameter=city>\nParis\n</parameter>\n"


def parsed(chunks):
    """(text, [(name, arguments)]) of a content, arguments as a dict."""
    parser = ToolCallParser(TOOLS)
    text, calls = "", []
    for delta in [*(d for chunk in chunks for d in parser.push(chunk)), *parser.finish()]:
        if isinstance(delta, TextDelta):
            text += delta.text
        elif isinstance(delta, CallStart):
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        elif isinstance(delta, CallArguments):
            name, arguments = calls[delta.index]
            calls[delta.index] = (name, arguments + delta.text)
    assert parser.calls == len(calls)
    return text, [(name, json.loads(arguments)) for name, arguments in calls]


def call(body, name="weather"):
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>\n"


ONE = [("weather", {"city": "Paris"})]

CASES = {
    "as the format has it": (call(PARIS), ("", ONE)),
    "text before": (f"I look.\n\n{call(PARIS)}", ("I look.", ONE)),
    "text after": (f"{call(PARIS)}\nDone.", ("Done.", ONE)),
    "no tool_call": (call(PARIS).removeprefix("<tool_call>\n"), ("", ONE)),
    "tool_call twice": ("<tool_call>\n" + call(PARIS), ("", ONE)),
    "no end of parameter": (
        call("<parameter=city>\nParis\n<parameter=days>\n2\n</parameter>\n"),
        ("", [("weather", {"city": "Paris", "days": 2})]),
    ),
    "no end of the last parameter": (call("<parameter=city>\nParis\n"), ("", ONE)),
    "no end of an empty value": (
        call("<parameter=city>\n<parameter=days>\n2\n</parameter>\n"),
        ("", [("weather", {"city": "", "days": 2})]),
    ),
    "no end of function": (f"<tool_call>\n<function=weather>\n{PARIS}</tool_call>", ("", ONE)),
    "no end of call": (f"<tool_call>\n<function=weather>\n{PARIS}</function>\n", ("", ONE)),
    "no end at all": ("<tool_call>\n<function=weather>\n<parameter=city>\nParis", ("", ONE)),
    "two calls": (call(PARIS) + call("", "now"), ("", [*ONE, ("now", {})])),
    "two calls without an end": (
        f"<tool_call>\n<function=weather>\n{PARIS}" + call(PARIS),
        ("", ONE * 2),
    ),
    "on one line": (
        "<tool_call><function=weather><parameter=city>Paris</parameter></function></tool_call>",
        ("", ONE),
    ),
    "no parameters": (call(""), ("", [("weather", {})])),
    "empty value": (
        call("<parameter=city>\n\n</parameter>\n"),
        ("", [("weather", {"city": ""})]),
    ),
    "a value with tags": (
        call("<parameter=city>\na < b, <b>x</b> </p <parameter=x> </function>\n</parameter>\n"),
        ("", [("weather", {"city": "a < b, <b>x</b> </p <parameter=x> </function>"})]),
    ),
    "a value of lines": (
        call("<parameter=city>\n  if a:\n\n    b()\n\n</parameter>\n"),
        ("", [("weather", {"city": "  if a:\n\n    b()\n"})]),
    ),
    "unicode and quotes": (
        call('<parameter=city>\nZürich "東京" \\ \U0001f600\x07\n</parameter>\n'),
        ("", [("weather", {"city": 'Zürich "東京" \\ \U0001f600\x07'})]),
    ),
    "every type": (
        call(
            "<parameter=days>\n3\n</parameter>\n<parameter=scale>\n2.5\n</parameter>\n"
            "<parameter=wind>\nTrue\n</parameter>\n"
            '<parameter=where>\n{"a": [1]}\n</parameter>\n'
            "<parameter=names>\nNone\n</parameter>\n<parameter=unit>\nC\n</parameter>\n"
        ),
        (
            "",
            [
                (
                    "weather",
                    {
                        "days": 3,
                        "scale": 2.5,
                        "wind": True,
                        "where": {"a": [1]},
                        "names": None,
                        "unit": "C",
                    },
                )
            ],
        ),
    ),
    "a value of the wrong type": (
        call("<parameter=days>\nsoon\n</parameter>\n"),
        ("", [("weather", {"days": "soon"})]),
    ),
    "an unknown function": (
        call("<parameter=x>\n1\n</parameter>\n", "other"),
        ("", [("other", {"x": "1"})]),
    ),
    "a parameter twice": (call(PARIS + "<parameter=city>\nRome\n</parameter>\n"), ("", ONE)),
    "no call": ("Just <b>text</b> with a < b.\n", ("Just <b>text</b> with a < b.\n", [])),
    "something else in a call": (
        "A <tool_call>\nhello</tool_call>",
        ("A <tool_call>\nhello</tool_call>", []),
    ),
    "an empty call": ("A <tool_call>\n</tool_call> B", ("A B", [])),
    "cut in the name": ("<tool_call>\n<function=wea", ("<tool_call>\n<function=wea", [])),
    "cut in a key": (f"<tool_call>\n<function=weather>\n{PARIS}<parameter=da", ("", ONE)),
    "cut in an end tag": ("<function=weather><parameter=city>\nParis\n</para", ("", ONE)),
    "nothing": ("", ("", [])),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    text, expected = CASES[name]
    assert parsed([text]) == expected


@pytest.mark.parametrize("name", CASES)
def test_case_one_character_at_a_time(name):
    text, expected = CASES[name]
    assert parsed(list(text)) == expected


PIECES = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "<function=weather>",
        "<function=",
        "</function>",
        "<parameter=city>",
        "<parameter=days>",
        "</parameter>",
        "\n",
        " ",
        "x",
        "12",
        "<",
        ">",
        "é\U0001f600",
        '"',
    ]
)


@given(st.lists(PIECES, max_size=24).map("".join), st.data())
def test_any_division_gives_the_same(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = parsed([text])
    assert parsed(chunks) == whole
    assert parsed(list(text)) == whole


def test_arguments_stream_before_the_value_ends():
    parser = ToolCallParser(TOOLS)
    deltas = parser.push("<function=weather>\n<parameter=city>\nPar")
    assert deltas[0] == CallStart(0, "weather")
    assert "".join(d.text for d in deltas[1:]) == '{"city": "Par'


def test_characters_cut_into_tokens_come_out_whole():
    tokenizer = make_tokenizer()
    text = call('<parameter=city>\nZürich "東京" \U0001f600\n</parameter>\n')
    detokenizer = Detokenizer(tokenizer)
    tokens = tokenizer.encode(text, special=True)
    assert len(tokens) > len(text) / 2, "byte tokens, so that characters are cut"
    chunks = [*map(detokenizer.push, tokens), detokenizer.finish()]
    assert parsed(chunks) == ("", [("weather", {"city": 'Zürich "東京" \U0001f600'})])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_call_inside_the_reasoning_ends_it(size):
    splitter = ReasoningSplitter(start_in_reasoning=True)
    text = f"I need the weather.\n{call(PARIS)}"
    pieces = [
        piece for i in range(0, len(text), size) for piece in splitter.push(text[i : i + size])
    ]
    pieces += splitter.finish()
    assert "".join(t for channel, t in pieces if channel == "reasoning") == "I need the weather."
    assert parsed([t for channel, t in pieces if channel == "content"]) == ("", ONE)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "true", "[" * 100_000])
def test_what_is_no_json_stays_text(value):
    assert converted(value, {"type": ["number", "array", "object"]}) == value
