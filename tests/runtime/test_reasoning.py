"""Reasoning and content: any division of the text gives the same two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.reasoning import ReasoningSplitter

PARTS = ["<think>", "</think>", "<tool_call>", "<", "</th", "think>", " ", "\n", "\r\n", "a", "bé."]


def run(chunks, *, start):
    splitter = ReasoningSplitter(start_in_reasoning=start)
    pieces = [piece for chunk in chunks for piece in splitter.push(chunk)] + splitter.finish()
    assert all(text for _, text in pieces)
    channels = [channel for channel, _ in pieces]
    assert channels == sorted(channels, reverse=True)  # reasoning, then content
    return tuple(
        "".join(text for channel, text in pieces if channel == name)
        for name in ("reasoning", "content")
    )


def slow(text, *, start):
    """The rules over the whole text."""
    reasoning = start
    rest = text.lstrip()
    while rest.startswith("<think>"):
        reasoning = True
        text = rest = rest.removeprefix("<think>").lstrip()
    thought = ""
    if reasoning:
        ends = [text.find(mark) for mark in ("</think>", "<tool_call>") if mark in text]
        end = min(ends, default=len(text))
        thought, text = text[:end].strip(), text[end:]
    while text.lstrip().startswith("</think>"):
        text = text.lstrip().removeprefix("</think>")
    return thought, text.lstrip("\r\n")


@given(st.lists(st.sampled_from(PARTS), max_size=14), st.booleans(), st.randoms())
def test_any_division_is_split_like_the_whole(parts, start, random):
    text = "".join(parts)
    cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(5)))
    chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    expected = slow(text, start=start)
    assert run(chunks, start=start) == expected
    assert run(list(text), start=start) == expected
    assert run([text], start=start) == expected


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("Let me see.\n</think>\n\nYes.\n", True, ("Let me see.", "Yes.\n")),
        ("<think>\nLet me see.</think>Yes.", True, ("Let me see.", "Yes.")),
        ("\n<think>\nLet me see.</think>Yes.", False, ("Let me see.", "Yes.")),
        ("cut in the middle  ", True, ("cut in the middle", "")),
        ("</think></think>\n</think>Yes", True, ("", "Yes")),
        ("need it\n<tool_call>\n<function=f>", True, ("need it", "<tool_call>\n<function=f>")),
        ("<tool_call>x</think>", True, ("", "<tool_call>x</think>")),
        ("Yes. What </think> means", False, ("", "Yes. What </think> means")),
        ("\n\n  indented", False, ("", "  indented")),
        ("a <think> b", False, ("", "a <think> b")),
        ("a <think> b</think>c", True, ("a <think> b", "c")),
        ("never closed </thin", True, ("never closed </thin", "")),
        ("  ", True, ("", "")),
        ("<thi", False, ("", "<thi")),
        ("", True, ("", "")),
    ],
)
def test_the_rules(text, start, expected):
    assert run([text], start=start) == expected
    assert run(list(text), start=start) == expected


def test_text_comes_as_soon_as_it_is_certain():
    splitter = ReasoningSplitter(start_in_reasoning=True)
    assert splitter.channel == "reasoning"
    assert splitter.push("I think") == [("reasoning", "I think")]
    assert splitter.push(" ") == []
    assert splitter.push("so") == [("reasoning", " so")]
    assert splitter.push("</") == []
    assert splitter.push("b> ok</think>\n") == [("reasoning", "</b> ok")]
    assert splitter.channel == "content"
    assert splitter.push("\nYes") == [("content", "Yes")]
    assert splitter.push("\n") == [("content", "\n")]
    assert splitter.push("") == []
    assert splitter.finish() == []
