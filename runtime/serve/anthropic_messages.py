"""`POST /v1/messages`: Anthropic's API."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgekit.runtime.serve.answer import Answer, Delta, ReasoningDelta
from edgekit.runtime.serve.anthropic_types import CountRequest, MessagesRequest
from edgekit.runtime.serve.errors import ApiError
from edgekit.runtime.serve.http import PULSE_SECONDS, frame, new_id, read_body, reply, stream
from edgekit.runtime.serve.service import Runs, Service
from edgekit.runtime.toolcalls import CallArguments, CallStart, TextDelta


async def messages(request: Request) -> Response:
    """Answers a conversation."""
    service: Service = request.app.state.service
    body = await read_body(request, MessagesRequest)
    service.check_model(body.model)
    prepared = await service.prepare(body.ask(service.model.sampling))
    made = _Message(service, prepared.answer(), len(prepared.job.prompt))
    runs = service.run([prepared.job])
    if not body.stream:
        return await reply(request, made.whole(runs), runs)
    return stream(made.frames(runs), runs, _failed)


async def count_tokens(request: Request) -> Response:
    """Counts a conversation's tokens."""
    service: Service = request.app.state.service
    body = await read_body(request, CountRequest)
    service.check_model(body.model)
    prepared = await service.prepare(body.ask(service.model.sampling))
    return JSONResponse({"input_tokens": len(prepared.job.prompt)})


def _failed(error: ApiError) -> str:
    return frame(error.anthropic(), "error")


class _Message:
    """One message as it grows: blocks of thinking, text and calls, in the order they come."""

    def __init__(self, service: Service, answer: Answer, prompt_tokens: int) -> None:
        self._answer = answer
        self._prompt_tokens = prompt_tokens
        self._stop: str | None = None
        self._blocks: list[dict[str, Any]] = []
        self._arguments = ""  # of the call that grows
        self._head = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": service.options.name,
        }

    async def whole(self, runs: Runs) -> dict[str, Any]:
        """The message when it is done."""
        async with aclosing(runs.events()) as events:
            async for item in events:
                if item is not None:
                    self._stop = item[1].stop
                    for delta in self._answer.push(item[1]):
                        self._grow(delta)
        self._close()
        return {**self._head, "content": self._blocks, **self._ending(), "usage": self._usage()}

    async def frames(self, runs: Runs) -> AsyncGenerator[str, None]:
        """The message as it grows."""
        usage = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        empty: dict[str, Any] = {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        yield self._event("message_start", message={**self._head, **empty})
        async with aclosing(runs.events(pulse=PULSE_SECONDS)) as events:
            async for item in events:
                if item is None:
                    yield self._event("ping")
                    continue
                self._stop = item[1].stop
                for delta in self._answer.push(item[1]):
                    for made in self._grow(delta):
                        yield made
        for made in self._close():
            yield made
        yield self._event("message_delta", delta=self._ending(), usage=self._usage())
        yield self._event("message_stop")

    def _grow(self, delta: Delta) -> list[str]:
        match delta:
            case ReasoningDelta(text):
                made = self._open({"type": "thinking", "thinking": "", "signature": ""})
                self._blocks[-1]["thinking"] += text
                change = {"type": "thinking_delta", "thinking": text}
            case TextDelta(text):
                made = self._open({"type": "text", "text": "", "citations": None})
                self._blocks[-1]["text"] += text
                change = {"type": "text_delta", "text": text}
            case CallStart(_, name):
                self._arguments = ""
                block = {"type": "tool_use", "id": new_id("toolu_"), "name": name, "input": {}}
                return [*self._close(), *self._begin(block)]
            case CallArguments(_, text):
                self._arguments += text
                made = []
                change = {"type": "input_json_delta", "partial_json": text}
        at = len(self._blocks) - 1
        return [*made, self._event("content_block_delta", index=at, delta=change)]

    def _open(self, block: dict[str, Any]) -> list[str]:
        if self._blocks and self._blocks[-1]["type"] == block["type"]:
            return []
        return [*self._close(), *self._begin(block)]

    def _begin(self, block: dict[str, Any]) -> list[str]:
        self._blocks.append(block)
        at = len(self._blocks) - 1
        return [self._event("content_block_start", index=at, content_block=block)]

    def _close(self) -> list[str]:
        if not self._blocks:
            return []
        if self._blocks[-1]["type"] == "tool_use":
            self._blocks[-1]["input"] = json.loads(self._arguments or "{}")
        return [self._event("content_block_stop", index=len(self._blocks) - 1)]

    def _ending(self) -> dict[str, Any]:
        reason = "end_turn"
        if self._answer.finish_reason == "length":
            reason = "max_tokens"
        elif self._answer.calls:
            reason = "tool_use"
        elif self._stop is not None:
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": self._stop}

    def _usage(self) -> dict[str, Any]:
        """Anthropic counts what was reused apart from the input."""
        stats = self._answer.stats
        return {
            "input_tokens": stats.prompt_tokens - stats.cached_tokens,
            "cache_read_input_tokens": stats.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": stats.completion_tokens,
        }

    def _event(self, kind: str, **fields: Any) -> str:
        return frame({"type": kind, **fields}, kind)
