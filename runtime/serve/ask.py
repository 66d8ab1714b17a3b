"""A chat request, whichever API it came by, made into a job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.runtime.constrain import Grammar, Grammars, tool_grammar
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model
from edgekit.runtime.serve.answer import Answer
from edgekit.runtime.serve.engine import Job
from edgekit.runtime.serve.errors import invalid
from edgekit.runtime.template import Message

NAMED = "named:"
"""Begins a tool choice that names one tool."""

_EFFORTS = {
    "none": (False, False),
    "minimal": (False, False),
    "low": (True, True),
    "medium": (True, True),
    "high": (True, False),
    "xhigh": (True, False),
}
"""reasoning_effort: whether to think, and whether to be brief about it."""


@dataclass(frozen=True, slots=True)
class ChatAsk:
    """What a chat request wants.

    Attributes:
        messages: as templates take them.
        tools: `{"type": "function", "function": {...}}` each.
        tool_choice: auto, none, required, or NAMED and a name.
        parallel: more than one call an answer.
        thinking: None is the model's default.
        effort: reasoning_effort, None for none given.
        options: switches of the chat template.
        thinking_budget: most tokens of reasoning.
        grammar: what the content must be.
    """

    messages: Sequence[Message]
    params: SamplingParams
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    thinking: bool | None = None
    effort: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    thinking_budget: int | None = None
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to run: the same job any number of times."""

    job: Job
    tools: Sequence[Mapping[str, Any]] | None
    thinking: bool

    def answer(self, *, content_only: bool = False) -> Answer:
        """An empty answer. Without thinking, or where asked for, reasoning alone is content."""
        return Answer(self.tools, content_only or not self.thinking)


def prepare(model: Model, grammars: Grammars, ask: ChatAsk, *, timeout: float | None) -> Prepared:
    """Renders, tokenizes and checks a request; runs nothing.

    Raises:
        ApiError, UsageError, DoesNotFitError: the request cannot be done.
    """
    thinking, options = _switches(model, ask)
    offered = [] if ask.tool_choice == "none" else list(ask.tools)
    force_nonempty = bool(options.pop("force_nonempty_content", False))
    prompt = model.encode_chat(ask.messages, offered or None, thinking=thinking, **options)
    grammar = _grammar(model, ask, offered)
    if grammar is not None:
        grammars.check(grammar)
    constrain = None
    if grammar is not None or ask.thinking_budget is not None:

        def constrain() -> Any:
            return grammars.constraint(
                grammar,
                in_reasoning=prompt.opens_reasoning,
                thinking_budget=ask.thinking_budget,
            )

    job = Job(
        prompt.tokens,
        ask.params,
        start_in_reasoning=prompt.opens_reasoning,
        snapshot_at=prompt.snapshot_at,
        pin=prompt.first_turn,
        constrain=constrain,
        timeout=timeout,
    )
    return Prepared(job, offered or None, prompt.opens_reasoning and not force_nonempty)


def _switches(model: Model, ask: ChatAsk) -> tuple[bool, dict[str, Any]]:
    """Whether to think, and the template's other switches."""
    known = model.template.switches if model.template is not None else frozenset()
    options = dict(ask.options)
    for name in options:
        if name not in known | {"force_nonempty_content"}:
            raise invalid(
                f"the chat template has no switch {name!r}; it has: {', '.join(sorted(known))}",
                "chat_template_kwargs",
            )
    thinking = options.pop("enable_thinking", ask.thinking)
    if ask.effort is not None:
        effort_thinks, brief = _EFFORTS[ask.effort]
        if thinking is None:
            thinking = effort_thinks
        if brief and "medium_effort" in known:
            options.setdefault("medium_effort", True)
    if thinking is not None and not isinstance(thinking, bool):
        raise invalid("enable_thinking is true or false", "chat_template_kwargs")
    return True if thinking is None else thinking, options


def _grammar(model: Model, ask: ChatAsk, offered: list[Mapping[str, Any]]) -> Grammar | None:
    choice = ask.tool_choice
    if choice in ("none", "auto"):
        if ask.grammar is None or not offered:
            return ask.grammar
        return tool_grammar(model.tokenizer, offered, parallel=ask.parallel, otherwise=ask.grammar)
    if choice.startswith(NAMED):
        name = choice.removeprefix(NAMED)
        offered = [tool for tool in offered if tool["function"]["name"] == name]
        if not offered:
            raise invalid(
                f"tool_choice names {name!r}, which is not among the tools", "tool_choice"
            )
        return tool_grammar(model.tokenizer, offered, parallel=False)
    if not offered:
        raise invalid("tool_choice is 'required' without tools", "tool_choice")
    return tool_grammar(model.tokenizer, offered, parallel=ask.parallel)


def schema_grammar(schema: Any) -> Grammar:
    """The language of JSON by a schema; `{}` is any object."""
    return Grammar("json_schema", json.dumps(schema or {"type": "object"}))


def arguments_of(text: str, param: str) -> dict[str, Any]:
    """The arguments of an earlier call, as templates take them.

    Raises:
        ApiError: they are no JSON object.
    """
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise invalid("a tool call's arguments are not a JSON object", param)
    return value
