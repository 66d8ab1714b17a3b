"""What every endpoint does alike: reading a body, refusing, streaming, ending with the client."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from edgekit.runtime.serve.errors import ApiError, invalid
from edgekit.runtime.serve.service import Runs, Service

Body = TypeVar("Body", bound=BaseModel)
T = TypeVar("T")

PULSE_SECONDS = 15.0
"""A stream says something at least so often, so that nobody in between gives it up."""


class Schema(BaseModel):
    """Base of everything a client sends: exact types, and nothing that is not known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """The request's body, checked.

    Raises:
        ApiError: it is too large, no JSON, or not what `kind` describes.
    """
    service: Service = request.app.state.service
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media != "application/json":
        # Also what keeps a web page from posting here without asking the browser first.
        raise ApiError(415, "the content-type must be application/json", code="unsupported_media")
    most = service.options.max_body
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise ApiError(413, f"a request has at most {most} bytes", code="request_too_large")
        chunks.append(chunk)
    try:
        return kind.model_validate_json(b"".join(chunks))
    except ValidationError as error:
        raise refusal(error) from None


def refusal(error: ValidationError) -> ApiError:
    """The first thing that is wrong with a body."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # Of a union's branches the one that was entered deepest is the one that was meant.
    first = max(problems, key=lambda problem: len(problem["loc"]))
    if problems[0]["type"] in ("json_invalid", "extra_forbidden", "missing"):
        first = problems[0]
    param = ".".join(str(part) for part in first["loc"]) or None
    if first["type"] == "json_invalid":
        return invalid(f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    if first["type"] == "extra_forbidden":
        return invalid(f"unknown or unsupported parameter: {param}", param, "unknown_parameter")
    if first["type"] == "missing":
        return invalid(f"missing parameter: {param}", param, "missing_required_parameter")
    return invalid(f"{param}: {first['msg']}" if param else first["msg"], param, "invalid_value")


async def until_disconnect(request: Request, work: Awaitable[T]) -> T | None:
    """The result, or None when the client went away first; the work is then cancelled."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, leaving):
            if not one.done():
                one.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def reply(request: Request, work: Awaitable[dict[str, Any]], runs: Runs) -> Response:
    """A JSON answer, or nothing for a client that has gone; then `runs` are cancelled."""
    try:
        body = await until_disconnect(request, work)
    finally:
        runs.cancel()
    return Response(status_code=499) if body is None else JSONResponse(body)


class _Stream(StreamingResponse):
    """Server-sent events of jobs, which end with the connection."""

    def __init__(self, body: AsyncGenerator[str, None], runs: Runs) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(body, media_type="text/event-stream", headers=headers)
        self._runs = runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._runs.cancel()


def stream(
    frames: AsyncGenerator[str, None],
    runs: Runs,
    fail: Callable[[ApiError], str],
    end: str = "",
) -> Response:
    """Server-sent events.

    Args:
        frames: each made by `frame`, or a comment.
        runs: cancelled when the client goes away.
        fail: the frame for an error half-way.
        end: what comes last, if nothing failed.
    """

    async def body() -> AsyncGenerator[str, None]:
        async with aclosing(frames) as source:
            try:
                async for one in source:
                    yield one
            except ApiError as error:
                yield fail(error)
                return
        if end:
            yield end

    return _Stream(body(), runs)


def frame(data: dict[str, Any], event: str | None = None) -> str:
    """One server-sent event."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n" if event else f"data: {text}\n\n"


PING = ": waiting\n\n"


def new_id(prefix: str) -> str:
    """An id nobody can guess."""
    return f"{prefix}{secrets.token_hex(12)}"
