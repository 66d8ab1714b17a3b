"""What OpenAI's chat and completion requests may hold here, and how it becomes a `ChatAsk`.

Known parameters that this server cannot honour are left out, so they are refused like unknown ones.
`user`, `metadata` and their like change no answer at OpenAI either and are taken as they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from edgekit.runtime.constrain import Grammar
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.serve.ask import NAMED, ChatAsk, arguments_of, schema_grammar
from edgekit.runtime.serve.errors import invalid
from edgekit.runtime.serve.http import Schema

Penalty = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=1, le=1 << 31)]
LogitBias = dict[str, Annotated[float, Field(ge=-100, le=100)]]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
)
MAX_CHOICES = 8
MAX_STOPS = 16


class TextPart(Schema):
    """A piece of a message."""

    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class FunctionCall(Schema):
    """What an assistant called."""

    name: str
    arguments: str


class ToolCall(Schema):
    """A call in an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class SystemMessage(Schema):
    """Instructions."""

    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(Schema):
    """A question."""

    role: Literal["user"]
    content: Content
    name: str | None = None


class AssistantMessage(Schema):
    """An earlier answer. `refusal`, `annotations` and the like are what clients echo of ours."""

    role: Literal["assistant"]
    content: Content | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    name: str | None = None
    refusal: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None


class ToolMessage(Schema):
    """What a call returned."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None


ChatMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class Function(Schema):
    """A function the model may call. `parameters` is a JSON schema."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^>\s]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Schema):
    """A tool."""

    type: Literal["function"]
    function: Function


class FunctionName(Schema):
    """A function by name."""

    name: str


class NamedTool(Schema):
    """A tool by name."""

    type: Literal["function"]
    function: FunctionName


class PlainFormat(Schema):
    """Text, or any JSON object."""

    type: Literal["text", "json_object"]


class JsonSchema(Schema):
    """A JSON schema with a name."""

    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class JsonSchemaFormat(Schema):
    """JSON by a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class RegexFormat(Schema):
    """Text that matches a regular expression as a whole (Rust's syntax)."""

    type: Literal["regex"]
    pattern: str


class GrammarFormat(Schema):
    """Text of a Lark grammar, in llguidance's dialect."""

    type: Literal["grammar"]
    grammar: str


ResponseFormat = Annotated[
    PlainFormat | JsonSchemaFormat | RegexFormat | GrammarFormat, Field(discriminator="type")
]


class StreamOptions(Schema):
    """How to stream."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class CustomParams(Schema):
    """Where some servers' clients put the thinking budget."""

    thinking_budget: Annotated[int, Field(ge=0)] | None = None


class SamplingRequest(Schema):
    """What chat and completion requests share."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1 << 31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    logit_bias: LogitBias | None = None
    max_tokens: Count | None = None
    user: str | None = None

    def params(self, base: SamplingParams) -> SamplingParams:
        """Sampling as asked for, the server's own where nothing was."""
        given = {name: getattr(self, name) for name in _SAMPLING}
        chosen: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        if self.seed is not None:
            chosen["seed"] = self.seed % (1 << 64)
        if self.stop is not None:
            stops = [self.stop] if isinstance(self.stop, str) else self.stop
            if not all(stops):
                raise invalid("a stop string has at least one character", "stop")
            chosen["stop"] = tuple(stops)
        if self.logit_bias is not None:
            chosen["logit_bias"] = _biases(self.logit_bias)
        return replace(base, **chosen)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ChatRequest(SamplingRequest):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Effort | None = None
    thinking_budget: Annotated[int, Field(ge=0)] | None = None
    custom_params: CustomParams | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[Literal["text"]] | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def ask(self, base: SamplingParams) -> ChatAsk:
        """The request as the engine's side knows it.

        Raises:
            ApiError: parameters that contradict each other.
        """
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs", "top_logprobs")
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options needs stream", "stream_options")
        params = self.params(base)
        if self.max_completion_tokens is not None:
            if self.max_tokens is not None:
                raise invalid("give max_tokens or max_completion_tokens, not both", "max_tokens")
            params = replace(params, max_tokens=self.max_completion_tokens)
        if self.logprobs:
            params = replace(params, logprobs=self.top_logprobs or 0)
        budget = self.thinking_budget
        if self.custom_params is not None and self.custom_params.thinking_budget is not None:
            if budget is not None:
                raise invalid("thinking_budget is given twice", "thinking_budget")
            budget = self.custom_params.thinking_budget
        if self.tool_choice is not None and not self.tools:
            raise invalid("tool_choice needs tools", "tool_choice")
        if self.parallel_tool_calls is not None and not self.tools:
            raise invalid("parallel_tool_calls needs tools", "parallel_tool_calls")
        return ChatAsk(
            messages=[template_message(m, i) for i, m in enumerate(self.messages)],
            params=params,
            tools=[tool.model_dump(exclude_none=True) for tool in self.tools or ()],
            tool_choice=_tool_choice(self.tool_choice),
            parallel=self.parallel_tool_calls is not False,
            effort=self.reasoning_effort,
            options=self.chat_template_kwargs or {},
            thinking_budget=budget,
            grammar=_grammar(self.response_format),
        )


class CompletionRequest(SamplingRequest):
    """`POST /v1/completions`: text to go on with, or token ids."""

    prompt: str | list[int] | Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None

    def completion_params(self, base: SamplingParams) -> SamplingParams:
        """As `params`, with this endpoint's defaults."""
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options needs stream", "stream_options")
        params = self.params(base)
        if self.max_tokens is None:
            params = replace(params, max_tokens=16)
        return replace(params, logprobs=self.logprobs)


def template_message(message: ChatMessage, index: int) -> dict[str, Any]:
    """A message as chat templates take it."""
    role = "system" if message.role == "developer" else message.role
    made: dict[str, Any] = {"role": role, "content": text_of(message.content)}
    if isinstance(message, AssistantMessage):
        if message.reasoning_content:
            made["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            param = f"messages.{index}.tool_calls"
            made["tool_calls"] = [
                call_message(call.function.name, call.function.arguments, param)
                for call in message.tool_calls
            ]
    return made


def call_message(name: str, arguments: str, param: str) -> dict[str, Any]:
    """An earlier call as chat templates take it."""
    function = {"name": name, "arguments": arguments_of(arguments, param)}
    return {"type": "function", "function": function}


def text_of(content: Content | None) -> str:
    """Text, also when it came in parts."""
    if content is None:
        return ""
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _tool_choice(choice: str | NamedTool | None) -> str:
    if isinstance(choice, NamedTool):
        return NAMED + choice.function.name
    return choice or "auto"


def _grammar(wanted: ResponseFormat | None) -> Grammar | None:
    if isinstance(wanted, PlainFormat):
        return schema_grammar(None) if wanted.type == "json_object" else None
    if isinstance(wanted, JsonSchemaFormat):
        return schema_grammar(wanted.json_schema.schema_)
    if isinstance(wanted, RegexFormat):
        return Grammar("regex", wanted.pattern)
    if isinstance(wanted, GrammarFormat):
        return Grammar("lark", wanted.grammar)
    return None


def _biases(given: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    if not all(key.isascii() and key.isdecimal() and len(key) < 10 for key in given):
        raise invalid("logit_bias names tokens by their ids", "logit_bias")
    return tuple((int(key), bias) for key, bias in given.items())
