"""What OpenAI's responses API may hold here, and how it becomes a `ChatAsk`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.serve.ask import NAMED, ChatAsk, schema_grammar
from edgekit.runtime.serve.errors import invalid
from edgekit.runtime.serve.http import Schema
from edgekit.runtime.serve.openai_types import Count, Effort, call_message


class InputText(Schema):
    """A piece of a message; `output_text` is what an earlier answer of ours held."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    logprobs: list[Any] | None = None


class InputMessage(Schema):
    """A message."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputText]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class InputCall(Schema):
    """A call in an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class InputResult(Schema):
    """What a call returned."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[InputText]
    id: str | None = None
    status: str | None = None


class ReasoningText(Schema):
    """A piece of reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class InputReasoning(Schema):
    """Reasoning of an earlier answer."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[ReasoningText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: None = None
    status: str | None = None


# A message may leave its type out, so the kinds cannot be told apart by it alone.
InputItem = InputMessage | InputCall | InputResult | InputReasoning


class ResponseFunction(Schema):
    """A function the model may call."""

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^>\s]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(Schema):
    """A tool by name."""

    type: Literal["function"]
    name: str


class TextFormat(Schema):
    """What the text must be."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class TextConfig(Schema):
    """How to write."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningConfig(Schema):
    """How to reason."""

    effort: Effort | None = None
    summary: None = None
    generate_summary: None = None


class ResponsesRequest(Schema):
    """`POST /v1/responses`. The server keeps nothing: each request has the whole conversation."""

    model: str
    input: str | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_output_tokens: Count | None = None
    tools: list[ResponseFunction] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    include: Annotated[list[str], Field(max_length=0)] | None = None
    truncation: Literal["disabled"] | None = None
    store: Literal[False] | None = None
    background: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def ask(self, base: SamplingParams) -> ChatAsk:
        """The request as the engine's side knows it."""
        given = {"temperature": self.temperature, "top_p": self.top_p}
        given["max_tokens"] = self.max_output_tokens
        params = replace(base, **{name: v for name, v in given.items() if v is not None})  # type: ignore[arg-type]
        if self.tool_choice is not None and self.tool_choice != "auto" and not self.tools:
            raise invalid("tool_choice needs tools", "tool_choice")
        choice = self.tool_choice or "auto"
        wanted = self.text.format if self.text is not None else None
        if wanted is not None and wanted.type == "json_schema" and wanted.schema_ is None:
            raise invalid("a json_schema format needs a schema", "text.format.schema")
        is_json = wanted is not None and wanted.type != "text"
        return ChatAsk(
            messages=self._messages(),
            params=params,
            tools=[_tool(tool) for tool in self.tools or ()],
            tool_choice=NAMED + choice.name if isinstance(choice, NamedFunction) else choice,
            parallel=self.parallel_tool_calls is not False,
            effort=self.reasoning.effort if self.reasoning is not None else None,
            grammar=schema_grammar(wanted.schema_) if wanted is not None and is_json else None,
        )

    def _messages(self) -> list[dict[str, Any]]:
        """Items as messages: reasoning, text and calls that follow one another are one answer."""
        messages: list[dict[str, Any]] = []
        if self.instructions:
            messages.append({"role": "system", "content": self.instructions})
        items = self.input
        if isinstance(items, str):
            return [*messages, {"role": "user", "content": items}]
        answer: dict[str, Any] | None = None
        for i, item in enumerate(items):
            is_answer = not isinstance(item, InputResult)
            if isinstance(item, InputMessage):
                is_answer = item.role == "assistant"
            if not is_answer:
                answer = None
            elif answer is None:
                answer = {"role": "assistant", "content": ""}
                messages.append(answer)
            if isinstance(item, InputMessage):
                if answer is not None:
                    answer["content"] += _text(item.content)
                else:
                    role = "system" if item.role == "developer" else item.role
                    messages.append({"role": role, "content": _text(item.content)})
            elif isinstance(item, InputResult):
                messages.append({"role": "tool", "content": _text(item.output)})
            elif answer is not None and isinstance(item, InputReasoning):
                text = "".join(part.text for part in item.content or item.summary)
                if text:
                    answer["reasoning_content"] = answer.get("reasoning_content", "") + text
            elif answer is not None and isinstance(item, InputCall):
                call = call_message(item.name, item.arguments, f"input.{i}.arguments")
                answer.setdefault("tool_calls", []).append(call)
        return messages


def _tool(tool: ResponseFunction) -> dict[str, Any]:
    function = tool.model_dump(exclude_none=True, exclude={"type"})
    return {"type": "function", "function": function}


def _text(content: str | list[InputText]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)
