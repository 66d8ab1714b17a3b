"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgekit.runtime.events import GenerationStats, TokenLogprob
from edgekit.runtime.serve.answer import Answer, Delta, ReasoningDelta
from edgekit.runtime.serve.ask import Prepared
from edgekit.runtime.serve.engine import Job
from edgekit.runtime.serve.http import PING, PULSE_SECONDS, frame, new_id, read_body, reply, stream
from edgekit.runtime.serve.openai_types import ChatRequest
from edgekit.runtime.serve.service import Runs, Service
from edgekit.runtime.tokenizer import Tokenizer
from edgekit.runtime.toolcalls import CallArguments, CallStart, TextDelta

DONE = "data: [DONE]\n\n"


async def chat_completions(request: Request) -> Response:
    """Answers a conversation."""
    service: Service = request.app.state.service
    body = await read_body(request, ChatRequest)
    service.check_model(body.model)
    prepared = await service.prepare(body.ask(service.model.sampling))
    choices = _Choices(service, body, prepared)
    runs = service.run(choices.jobs)
    if not body.stream:
        return await reply(request, choices.whole(runs), runs)
    return stream(choices.frames(runs), runs, lambda error: frame(error.openai()), DONE)


def seeded(job: Job, n: int) -> list[Job]:
    """n jobs alike; with a seed each gets its own."""
    seed = job.params.seed
    if seed is None:
        return [job] * n
    return [replace(job, params=replace(job.params, seed=seed + i)) for i in range(n)]


def usage_of(all_stats: Sequence[GenerationStats]) -> dict[str, Any]:
    """OpenAI's counts of a request's answers: the prompt counts once."""
    prompt = max(stats.prompt_tokens for stats in all_stats)
    completion = sum(stats.completion_tokens for stats in all_stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": max(s.cached_tokens for s in all_stats)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(stats.reasoning_tokens for stats in all_stats)
        },
    }


def logprob_entry(tokenizer: Tokenizer, one: TokenLogprob) -> dict[str, Any]:
    """One token's log probability in the chat form."""

    def entry(token: int, value: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token)
        text = raw.decode("utf-8", errors="replace")
        return {"token": text, "logprob": max(value, -9999.0), "bytes": list(raw)}

    top = [entry(token, value) for token, value in one.top]
    return {**entry(one.token, one.logprob), "top_logprobs": top}


class _Choices:
    """The answers of one request."""

    def __init__(self, service: Service, body: ChatRequest, prepared: Prepared) -> None:
        n = body.n or 1
        self.jobs = seeded(prepared.job, n)
        self._answers = [prepared.answer() for _ in range(n)]
        self._body = body
        self._tokenizer = service.model.tokenizer
        self._head = {
            "id": new_id("chatcmpl-"),
            "created": int(time()),
            "model": service.options.name,
        }

    async def whole(self, runs: Runs) -> dict[str, Any]:
        """The answers when all are done."""
        async with aclosing(runs.events()) as events:
            async for item in events:
                if item is not None:
                    self._answers[item[0]].push(item[1])
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(i, answer) for i, answer in enumerate(self._answers)],
            "usage": usage_of([answer.stats for answer in self._answers]),
        }

    async def frames(self, runs: Runs) -> AsyncGenerator[str, None]:
        """The answers as they grow."""
        async with aclosing(runs.events(pulse=PULSE_SECONDS)) as events:
            for i in range(len(self._answers)):
                yield self._chunk(i, {"role": "assistant", "content": ""})
            async for item in events:
                if item is None:
                    yield PING
                    continue
                i, event = item
                answer = self._answers[i]
                deltas = [self._delta(i, delta) for delta in answer.push(event)]
                logprobs = None
                if self._body.logprobs and event.logprobs and event.channel == "content":
                    logprobs = self._logprobs(event.logprobs)
                    deltas = deltas or [{}]
                for delta in deltas:
                    yield self._chunk(i, delta, logprobs=logprobs)
                    logprobs = None
                if event.finish_reason is not None:
                    yield self._chunk(i, {}, finish=_finish_reason(answer))
        if self._body.wants_usage:
            usage = usage_of([answer.stats for answer in self._answers])
            yield frame(
                {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
            )

    def _choice(self, i: int, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": answer.text if answer.text or not answer.calls else None,
            "refusal": None,
        }
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": new_id("call_"),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.calls
            ]
        logprobs = self._logprobs(answer.logprobs) if self._body.logprobs else None
        return {
            "index": i,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": _finish_reason(answer),
        }

    def _chunk(
        self,
        i: int,
        delta: dict[str, Any],
        *,
        logprobs: dict[str, Any] | None = None,
        finish: str | None = None,
    ) -> str:
        choice = {"index": i, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        return frame({**chunk, "usage": None} if self._body.wants_usage else chunk)

    def _delta(self, i: int, delta: Delta) -> dict[str, Any]:
        match delta:
            case ReasoningDelta(text):
                return {"reasoning_content": text}
            case TextDelta(text):
                return {"content": text}
            case CallStart(index, name):
                function = {"name": name, "arguments": ""}
                opening = {"index": index, "id": new_id("call_"), "type": "function"}
                return {"tool_calls": [{**opening, "function": function}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _logprobs(self, found: Sequence[TokenLogprob]) -> dict[str, Any]:
        content = [logprob_entry(self._tokenizer, one) for one in found]
        return {"content": content, "refusal": None}


def _finish_reason(answer: Answer) -> str:
    if answer.finish_reason == "length":
        return "length"
    return "tool_calls" if answer.calls else "stop"
