"""From generated text to reasoning, content and calls: one case each, however the text is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.events import GenerationEvent, GenerationStats
from edgekit.runtime.reasoning import ReasoningSplitter
from edgekit.runtime.serve.answer import Answer, ReasoningDelta
from edgekit.runtime.toolcalls import CallArguments, CallStart, TextDelta

TOOLS = [
    {"function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}},
]
CALL = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
ONE = [("f", {"x": 1})]


def answered(chunks, *, thinking, fallback=False, tools=TOOLS, finish="stop"):
    """The answer, checked to be the sum of its deltas."""
    splitter = ReasoningSplitter(start_in_reasoning=thinking)
    answer = Answer(tools, content_only_fallback=fallback)
    pieces = [piece for chunk in chunks for piece in splitter.push(chunk)] + splitter.finish()
    deltas = []
    for channel, text in pieces:
        deltas += answer.push(GenerationEvent(text, channel, (), GenerationStats()))
    deltas += answer.push(GenerationEvent("", "content", (5,), GenerationStats(), finish))
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == answer.text
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)) == answer.reasoning
    assert [d.name for d in deltas if isinstance(d, CallStart)] == [c.name for c in answer.calls]
    for i, call in enumerate(answer.calls):
        parts = [d.text for d in deltas if isinstance(d, CallArguments) and d.index == i]
        assert "".join(parts) == call.arguments
    return answer


def shown(answer):
    return (
        answer.reasoning,
        answer.text,
        [(call.name, json.loads(call.arguments)) for call in answer.calls],
    )


CASES = {
    "reasoning and text": ("I think.\n</think>\n\nYes.", True, ("I think.", "Yes.", [])),
    "the end of thinking twice": ("So.</think>\n</think>Yes.", True, ("So.", "Yes.", [])),
    "a call after reasoning": (f"So.</think>\n{CALL}", True, ("So.", "", ONE)),
    "a call inside reasoning": (f"So.\n{CALL}", True, ("So.", "", ONE)),
    "text, call, text": (f"So.</think>A\n{CALL}\nB", True, ("So.", "AB", ONE)),
    "reasoning that never ends": ("So it goes on", True, ("So it goes on", "", [])),
    "nothing at all": ("", True, ("", "", [])),
    "thinking off": ("Yes.", False, ("", "Yes.", [])),
    "thinking off, and yet it thinks": ("<think>So.</think>Yes.", False, ("So.", "Yes.", [])),
    "thinking off and empty": ("", False, ("", "", [])),
    "empty content": ("So.</think>", True, ("So.", "", [])),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_case(name, size):
    text, thinking, expected = CASES[name]
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    assert shown(answered(chunks, thinking=thinking)) == expected


@pytest.mark.parametrize("text", ["<think>So.", "<think>So.</think>", "<think>So.</think>\n\n"])
def test_without_content_the_reasoning_is_the_content(text):
    answer = answered(list(text), thinking=False, fallback=True)
    assert answer.text == "So."
    answer = answered([f"<think>So.</think>{CALL}"], thinking=False, fallback=True)
    assert (answer.text, len(answer.calls)) == ("", 1)


def test_without_tools_markup_is_text():
    answer = answered([CALL], thinking=False, tools=None)
    assert answer.text == CALL
    assert answer.calls == []


def test_a_call_that_was_cut_off_is_closed_and_said_to_be_cut():
    cut = CALL[: CALL.index("<parameter")]
    answer = answered([cut], thinking=False, finish="length")
    assert json.loads(answer.calls[0].arguments) == {}
    assert answer.finish_reason == "length"


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", CALL, "<tool_call>", "<", "é", "\n", " ", "word"]),
        max_size=12,
    ).map("".join),
    st.booleans(),
    st.booleans(),
)
def test_one_character_at_a_time_is_the_same(text, thinking, fallback):
    whole = answered([text], thinking=thinking, fallback=fallback)
    assert shown(answered(list(text), thinking=thinking, fallback=fallback)) == shown(whole)
