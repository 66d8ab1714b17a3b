"""`POST /v1/completions`: text to go on with, without a chat's format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from edgekit.errors import UsageError
from edgekit.runtime.events import GenerationEvent, GenerationStats, TokenLogprob
from edgekit.runtime.serve.engine import Job
from edgekit.runtime.serve.errors import invalid
from edgekit.runtime.serve.http import PING, PULSE_SECONDS, frame, new_id, read_body, reply, stream
from edgekit.runtime.serve.openai_chat import DONE, seeded, usage_of
from edgekit.runtime.serve.openai_types import MAX_CHOICES, CompletionRequest
from edgekit.runtime.serve.service import Runs, Service
from edgekit.runtime.tokenizer import Tokenizer


async def completions(request: Request) -> Response:
    """Goes on with a text."""
    service: Service = request.app.state.service
    body = await read_body(request, CompletionRequest)
    service.check_model(body.model)
    params = body.completion_params(service.model.sampling)
    prompts: list[Any] = [body.prompt]
    if isinstance(body.prompt, list) and any(isinstance(item, str) for item in body.prompt):
        prompts = list(body.prompt)
    n = body.n or 1
    if n * len(prompts) > MAX_CHOICES:
        raise invalid(f"at most {MAX_CHOICES} answers at once", "n")

    def encode() -> list[Job]:
        made = []
        for prompt in prompts:
            tokens = prompt
            if isinstance(prompt, str):
                service.model.refuse_endless(prompt)
                tokens = service.model.tokenizer.encode(prompt)
            if not tokens:
                raise UsageError("the prompt is empty")
            job = Job(list(tokens), params, timeout=service.options.timeout)
            service.engine.check(job)
            made += seeded(job, n)
        return made

    jobs = await service.off_loop(encode, "prompt")
    texts_of = _Texts(service, body, len(jobs), n)
    runs = service.run(jobs)
    if not body.stream:
        return await reply(request, texts_of.whole(runs), runs)
    return stream(texts_of.frames(runs), runs, lambda error: frame(error.openai()), DONE)


class _Texts:
    """The answers of one request: `n` for each prompt."""

    def __init__(self, service: Service, body: CompletionRequest, count: int, n: int) -> None:
        self._tokenizer = service.model.tokenizer
        self._body, self._n = body, n
        self._texts = [""] * count
        self._logprobs: list[list[TokenLogprob]] = [[] for _ in range(count)]
        self._stats = [GenerationStats()] * count
        self._finish: list[str | None] = [None] * count
        self._head = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": int(time()),
            "model": service.options.name,
        }

    def _push(self, i: int, event: GenerationEvent) -> None:
        self._texts[i] += event.text
        self._logprobs[i] += event.logprobs
        self._stats[i] = event.stats
        self._finish[i] = event.finish_reason

    def _usage(self) -> dict[str, Any]:
        usage = usage_of(self._stats)
        usage["prompt_tokens"] = sum(stats.prompt_tokens for stats in self._stats[:: self._n])
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        return usage

    async def whole(self, runs: Runs) -> dict[str, Any]:
        """The answers when all are done."""
        async with aclosing(runs.events()) as events:
            async for item in events:
                if item is not None:
                    self._push(*item)
        choices = [
            self._choice(i, text, self._logprobs[i], self._finish[i])
            for i, text in enumerate(self._texts)
        ]
        return {**self._head, "choices": choices, "usage": self._usage()}

    async def frames(self, runs: Runs) -> AsyncGenerator[str, None]:
        """The answers as they grow."""
        async with aclosing(runs.events(pulse=PULSE_SECONDS)) as events:
            async for item in events:
                if item is None:
                    yield PING
                    continue
                i, event = item
                self._push(i, event)
                if event.text or event.logprobs or event.finish_reason:
                    reason = event.finish_reason
                    choice = self._choice(i, event.text, event.logprobs, reason)
                    yield frame({**self._head, "choices": [choice]})
        if self._body.wants_usage:
            yield frame({**self._head, "choices": [], "usage": self._usage()})

    def _choice(
        self, i: int, text: str, found: Sequence[TokenLogprob], finish: str | None
    ) -> dict[str, Any]:
        logprobs = None if self._body.logprobs is None else _legacy(self._tokenizer, found)
        return {"index": i, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _legacy(tokenizer: Tokenizer, found: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Log probabilities in the form of this endpoint."""

    def text(token: int) -> str:
        return tokenizer.token_bytes(token).decode("utf-8", errors="replace")

    return {
        "tokens": [text(one.token) for one in found],
        "token_logprobs": [max(one.logprob, -9999.0) for one in found],
        "top_logprobs": [{text(t): max(v, -9999.0) for t, v in one.top} for one in found],
        "text_offset": [],
    }
