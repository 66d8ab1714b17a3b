"""`POST /v1/responses`: text and tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgekit.runtime.serve.answer import Answer, Delta, ReasoningDelta
from edgekit.runtime.serve.http import PING, PULSE_SECONDS, frame, new_id, read_body, reply, stream
from edgekit.runtime.serve.responses_types import ResponsesRequest
from edgekit.runtime.serve.service import Runs, Service
from edgekit.runtime.toolcalls import CallArguments, CallStart, TextDelta


async def responses(request: Request) -> Response:
    """Answers a conversation."""
    service: Service = request.app.state.service
    body = await read_body(request, ResponsesRequest)
    service.check_model(body.model)
    prepared = await service.prepare(body.ask(service.model.sampling), "input")
    made = _Response(service, body, prepared.answer())
    runs = service.run([prepared.job])
    if not body.stream:
        return await reply(request, made.whole(runs), runs)
    return stream(made.frames(runs), runs, made.failed)


class _Response:
    """One response as it grows: items of reasoning, text and calls, in the order they come."""

    def __init__(self, service: Service, body: ResponsesRequest, answer: Answer) -> None:
        self._answer, self._body = answer, body
        self._sampling = service.model.sampling
        self._name = service.options.name
        self._id, self._created = new_id("resp_"), int(time())
        self._items: list[dict[str, Any]] = []
        self._number = -1

    async def whole(self, runs: Runs) -> dict[str, Any]:
        """The response when it is done."""
        async with aclosing(runs.events()) as events:
            async for item in events:
                if item is not None:
                    for delta in self._answer.push(item[1]):
                        self._grow(delta)
        self._close()
        return self._body_of(self._status())

    async def frames(self, runs: Runs) -> AsyncGenerator[str, None]:
        """The response as it grows."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._body_of("in_progress"))
        async with aclosing(runs.events(pulse=PULSE_SECONDS)) as events:
            async for item in events:
                if item is None:
                    yield PING
                    continue
                for delta in self._answer.push(item[1]):
                    for made in self._grow(delta):
                        yield made
        for made in self._close():
            yield made
        status = self._status()
        yield self._event(f"response.{status}", response=self._body_of(status))

    def failed(self, error: Any) -> str:
        """The frame for an error half-way."""
        return self._event("error", code=error.code, message=error.message, param=error.param)

    # -- items

    def _grow(self, delta: Delta) -> list[str]:
        """Adds to the last item, or begins another; returns the frames that say so."""
        match delta:
            case ReasoningDelta(text):
                made = self._open("reasoning")
                part = self._items[-1]["content"][0]
            case TextDelta(text):
                made = self._open("message")
                part = self._items[-1]["content"][0]
            case CallStart(_, name):
                made = self._close()
                item = {
                    "type": "function_call",
                    "id": new_id("fc_"),
                    "call_id": new_id("call_"),
                    "name": name,
                    "arguments": "",
                    "status": "in_progress",
                }
                return [*made, self._add(item)]
            case CallArguments(_, text):
                self._items[-1]["arguments"] += text
                kind = "response.function_call_arguments.delta"
                return [self._item_event(kind, delta=text)]
        part["text"] += text
        if isinstance(delta, ReasoningDelta):
            event = self._item_event("response.reasoning_text.delta", content_index=0, delta=text)
        else:
            event = self._item_event(
                "response.output_text.delta", content_index=0, delta=text, logprobs=[]
            )
        return [*made, event]

    def _open(self, kind: str) -> list[str]:
        """Makes the last item one of this kind that still grows."""
        if self._items and self._items[-1]["type"] == kind:
            return []
        made = self._close()
        part: dict[str, Any]
        item: dict[str, Any]
        if kind == "reasoning":
            part = {"type": "reasoning_text", "text": ""}
            item = {"type": kind, "id": new_id("rs_"), "summary": [], "content": [part]}
        else:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item = {"type": kind, "id": new_id("msg_"), "role": "assistant", "content": [part]}
        item["status"] = "in_progress"
        made.append(self._add(item))
        if kind == "message":
            made.append(self._item_event("response.content_part.added", content_index=0, part=part))
        return made

    def _add(self, item: dict[str, Any]) -> str:
        empty = {**item, "content": []} if "content" in item else item
        self._items.append(item)
        return self._event(
            "response.output_item.added", output_index=len(self._items) - 1, item=empty
        )

    def _close(self) -> list[str]:
        """Ends the last item."""
        if not self._items or self._items[-1]["status"] != "in_progress":
            return []
        item = self._items[-1]
        item["status"] = "incomplete" if self._answer.finish_reason == "length" else "completed"
        made = []
        if item["type"] == "function_call":
            made.append(
                self._item_event(
                    "response.function_call_arguments.done",
                    arguments=item["arguments"],
                    name=item["name"],
                )
            )
        elif item["type"] == "reasoning":
            text = item["content"][0]["text"]
            made.append(
                self._item_event("response.reasoning_text.done", content_index=0, text=text)
            )
        else:
            part = item["content"][0]
            made.append(
                self._item_event(
                    "response.output_text.done", content_index=0, text=part["text"], logprobs=[]
                )
            )
            made.append(self._item_event("response.content_part.done", content_index=0, part=part))
        made.append(
            self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)
        )
        return made

    # -- records

    def _item_event(self, kind: str, **fields: Any) -> str:
        at = len(self._items) - 1
        return self._event(kind, item_id=self._items[at]["id"], output_index=at, **fields)

    def _event(self, kind: str, **fields: Any) -> str:
        self._number += 1
        return frame({"type": kind, "sequence_number": self._number, **fields}, kind)

    def _status(self) -> str:
        return "incomplete" if self._answer.finish_reason == "length" else "completed"

    def _body_of(self, status: str) -> dict[str, Any]:
        body, stats = self._body, self._answer.stats
        ended = status != "in_progress"
        usage = {
            "input_tokens": stats.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": stats.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": stats.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": stats.reasoning_tokens},
            "total_tokens": stats.prompt_tokens + stats.completion_tokens,
        }
        incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
        base = self._sampling
        choice = body.tool_choice or "auto"
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": incomplete,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": self._name,
            "output": list(self._items),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {
                "effort": body.reasoning.effort if body.reasoning is not None else None,
                "summary": None,
            },
            "store": False,
            "temperature": base.temperature if body.temperature is None else body.temperature,
            "text": _text_record(body),
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [_tool_record(tool.model_dump()) for tool in body.tools or ()],
            "top_p": base.top_p if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": usage if ended else None,
            "metadata": body.metadata or {},
        }


def _text_record(body: ResponsesRequest) -> dict[str, Any]:
    if body.text is None or body.text.format is None:
        return {"format": {"type": "text"}}
    return {"format": body.text.format.model_dump(exclude_none=True, by_alias=True)}


def _tool_record(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "strict": tool.get("strict")}
