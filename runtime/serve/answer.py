"""From events to what an API's user sees: reasoning, text, tool calls; the same for every API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.runtime.events import FinishReason, GenerationEvent, GenerationStats, TokenLogprob
from edgekit.runtime.toolcalls import CallArguments, CallStart, TextDelta, ToolCallParser, ToolDelta


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text of the reasoning."""

    text: str


Delta = ReasoningDelta | ToolDelta


@dataclass(slots=True)
class Call:
    """A tool call: its name and the JSON text of its arguments."""

    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """One answer as it grows.

    Args:
        tools: what the model may call; None leaves tool markup in the text.
        content_only_fallback: reasoning without any content becomes the content, at the end.
    """

    tools: Sequence[Mapping[str, Any]] | None = None
    content_only_fallback: bool = False
    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    stats: GenerationStats = field(default_factory=GenerationStats)
    finish_reason: FinishReason | None = None
    _parser: ToolCallParser | None = None

    def __post_init__(self) -> None:
        if self.tools is not None:
            self._parser = ToolCallParser(self.tools)

    def push(self, event: GenerationEvent) -> list[Delta]:
        """What an event adds."""
        deltas: list[Delta] = []
        if event.text:
            if event.channel == "reasoning":
                deltas.append(ReasoningDelta(event.text))
            elif self._parser is None:
                deltas.append(TextDelta(event.text))
            else:
                deltas += self._parser.push(event.text)
        if event.channel == "content":
            self.logprobs += event.logprobs
        self.stats = event.stats
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason
            if self._parser is not None:
                deltas += self._parser.finish()
        for delta in deltas:
            self._add(delta)
        nothing = not self.text and not self.calls and self.finish_reason is not None
        if nothing and self.content_only_fallback and self.reasoning:
            moved = TextDelta(self.reasoning)
            self._add(moved)
            deltas.append(moved)
        return deltas

    def _add(self, delta: Delta) -> None:
        if isinstance(delta, ReasoningDelta):
            self.reasoning += delta.text
        elif isinstance(delta, TextDelta):
            self.text += delta.text
        elif isinstance(delta, CallStart):
            self.calls.append(Call(delta.name))
        elif isinstance(delta, CallArguments):
            self.calls[delta.index].arguments += delta.text
