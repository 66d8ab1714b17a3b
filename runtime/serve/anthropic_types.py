"""What Anthropic's messages API may hold here, and how it becomes a `ChatAsk`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.serve.ask import NAMED, ChatAsk
from edgekit.runtime.serve.errors import invalid
from edgekit.runtime.serve.http import Schema
from edgekit.runtime.serve.openai_types import MAX_STOPS, Count


class CacheControl(Schema):
    """A mark for caching. Prompts are cached here without it."""

    type: Literal["ephemeral"]
    ttl: str | None = None


class TextBlock(Schema):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: None = None


class ThinkingBlock(Schema):
    """Reasoning of an earlier answer; the signature is ours and says nothing."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class ToolUseBlock(Schema):
    """A call in an earlier answer."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: Any = None


class ToolResultBlock(Schema):
    """What a call returned."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None
    cache_control: CacheControl | None = None


Block = Annotated[
    TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]


class MessageParam(Schema):
    """A message."""

    role: Literal["user", "assistant"]
    content: str | list[Block]


class ToolParam(Schema):
    """A tool. `input_schema` is a JSON schema."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^>\s]+$")]
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    cache_control: CacheControl | None = None


class ToolChoice(Schema):
    """Whether to call tools."""

    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Schema):
    """Whether to reason, and for how many tokens."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    display: Literal["summarized"] | None = None


class Metadata(Schema):
    """Who asks."""

    user_id: str | None = None


class CountRequest(Schema):
    """`POST /v1/messages/count_tokens`."""

    model: str
    messages: Annotated[list[MessageParam], Field(min_length=1)]
    system: str | list[TextBlock] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None

    def ask(self, base: SamplingParams) -> ChatAsk:
        """The request as the engine's side knows it."""
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": _text(self.system)})
        for message in self.messages:
            messages += _messages(message)
        choice = self.tool_choice
        if choice is not None and choice.type in ("any", "tool") and not self.tools:
            raise invalid("tool_choice needs tools", "tool_choice")
        thinks = self.thinking is not None and self.thinking.type != "disabled"
        return ChatAsk(
            messages=messages,
            params=base,
            tools=[_tool(tool) for tool in self.tools or ()],
            tool_choice=_choice(choice),
            parallel=not (choice is not None and choice.disable_parallel_tool_use),
            thinking=thinks,
            thinking_budget=self.thinking.budget_tokens if self.thinking and thinks else None,
        )


class MessagesRequest(CountRequest):
    """`POST /v1/messages`."""

    max_tokens: Count
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1 << 31)] | None = None
    stop_sequences: Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None

    def ask(self, base: SamplingParams) -> ChatAsk:
        if self.messages[-1].role == "assistant":
            raise invalid("the last message is the user's: answers cannot be begun", "messages")
        chosen: dict[str, Any] = {"max_tokens": self.max_tokens}
        for name in ("temperature", "top_p", "top_k"):
            if getattr(self, name) is not None:
                chosen[name] = getattr(self, name)
        if self.stop_sequences is not None:
            if not all(self.stop_sequences):
                raise invalid("a stop sequence has at least one character", "stop_sequences")
            chosen["stop"] = tuple(self.stop_sequences)
        return super().ask(replace(base, **chosen))


def _messages(message: MessageParam) -> list[dict[str, Any]]:
    """A message as chat templates take it: results of calls are messages of their own."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    made: list[dict[str, Any]] = []
    text = ""
    reasoning = ""
    calls = []
    for block in message.content:
        if isinstance(block, TextBlock):
            text += block.text
        elif isinstance(block, ThinkingBlock):
            reasoning += block.thinking
        elif isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": block.input}
            calls.append({"type": "function", "function": function})
        else:
            made.append({"role": "tool", "content": _text(block.content)})
    if message.role == "user":
        if calls or reasoning:
            raise invalid("a user message holds text and tool results", "messages")
        return [*made, {"role": "user", "content": text}] if text or not made else made
    if made:
        raise invalid("an assistant message holds no tool results", "messages")
    answer: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        answer["reasoning_content"] = reasoning
    if calls:
        answer["tool_calls"] = calls
    return [answer]


def _tool(tool: ToolParam) -> dict[str, Any]:
    function = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice | None) -> str:
    if choice is None:
        return "auto"
    if choice.type == "tool":
        if choice.name is None:
            raise invalid("tool_choice names no tool", "tool_choice")
        return NAMED + choice.name
    return {"any": "required"}.get(choice.type, choice.type)


def _text(content: str | Sequence[TextBlock] | None) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else "".join(block.text for block in content)
