"""Conversations and their exact Nemotron chat text, with a loss weight for every piece.

``segments`` gives the text that ``chat_template.jinja`` renders, cut where the model's own words
begin and end. A test holds the two together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = Path(__file__).with_name("chat_template.jinja")


OR = " || "
ALL = " && "


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, the tool's result, and what nano thinks before calling."""

    name: str
    arguments: dict[str, str]
    result: str
    thought: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: the user's words, nano's thought and answer, and how to check the answer.

    ``key`` is text a right answer contains: parts separated by ALL, each with alternatives
    separated by OR; with ``exact`` it is the whole answer. An empty key means that any answer may
    be right.
    """

    skill: str
    user: str
    answer: str
    thought: str
    key: str = ""
    exact: bool = False
    call: Call | None = None

    def right(self, answer: str) -> bool:
        """True if the answer holds the key."""
        return all(self._holds(answer.strip(), part) for part in self.key.split(ALL))

    def _holds(self, found: str, part: str) -> bool:
        keys = part.split(OR)
        if not part.isupper():  # a word in capitals must be answered in capitals
            found, keys = found.casefold(), [k.casefold() for k in keys]
        return found in keys if self.exact else any(k in found for k in keys)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system prompt, tools, and turns; ``thinking`` applies to the last turn."""

    turns: list[Turn]
    system: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = True


@cache
def _template() -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def system_text(system: str, tools: list[dict[str, Any]]) -> str:
    """The system message, tools included."""
    if not tools:
        return f"<|im_start|>system\n{system}<|im_end|>\n"
    return _template().render(messages=[{"role": "system", "content": system}], tools=tools)


def call_text(call: Call) -> str:
    """The XML of a tool call."""
    arguments = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in call.arguments.items())
    return f"<tool_call>\n<function={call.name}>\n{arguments}</function>\n</tool_call>\n"


def prompt_text(conversation: Conversation) -> str:
    """What the model reads before the answer to the last turn (before its tool call, if any)."""
    pieces = [text for text, _ in segments(conversation)]
    steps = 6 if conversation.turns[-1].call else 3
    return "".join(pieces[:-steps]) + pieces[-steps]


def segments(conversation: Conversation) -> Iterator[tuple[str, float]]:
    """(text, loss weight) pieces; each turn ends with (prompt, reply, newline) triples."""
    yield system_text(conversation.system, conversation.tools), 0.0
    last = len(conversation.turns) - 1
    for i, turn in enumerate(conversation.turns):
        think = conversation.thinking and i == last
        ask = f"<|im_start|>user\n{turn.user}<|im_end|>\n"
        opening = "<|im_start|>assistant\n<think>" + ("\n" if think else "</think>")
        if turn.call:
            yield ask + opening, 0.0
            thought = f"{turn.call.thought}</think>" if think else ""
            yield f"{thought}\n{call_text(turn.call)}<|im_end|>", 1.0
            yield "\n", 0.0
            ask = f"<|im_start|>user\n<tool_response>\n{turn.call.result}\n</tool_response>\n"
            ask += "<|im_end|>\n"
        yield ask + opening, 0.0
        thought = f"{turn.thought}</think>" if think else ""
        yield f"{thought}{turn.answer}<|im_end|>", 1.0
        yield "\n", 0.0


def messages(conversation: Conversation) -> list[dict[str, Any]]:
    """The conversation as OpenAI-style messages."""
    out: list[dict[str, Any]] = []
    if conversation.system:
        out.append({"role": "system", "content": conversation.system})
    last = len(conversation.turns) - 1
    for i, turn in enumerate(conversation.turns):
        think = conversation.thinking and i == last
        out.append({"role": "user", "content": turn.user})
        if turn.call:
            function = {"name": turn.call.name, "arguments": turn.call.arguments}
            step: dict[str, Any] = {"role": "assistant", "content": ""}
            step["tool_calls"] = [{"type": "function", "function": function}]
            if think:
                step["reasoning_content"] = turn.call.thought
            out += [step, {"role": "tool", "content": turn.call.result}]
        reply = {"role": "assistant", "content": turn.answer}
        if think:
            reply["reasoning_content"] = turn.thought
        out.append(reply)
    return out
