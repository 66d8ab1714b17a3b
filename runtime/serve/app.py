"""The ASGI application: routes, who may come in, and what every refusal looks like."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgekit.runtime.serve.anthropic_messages import count_tokens, messages
from edgekit.runtime.serve.errors import ApiError
from edgekit.runtime.serve.metrics import CONTENT_TYPE
from edgekit.runtime.serve.openai_chat import chat_completions
from edgekit.runtime.serve.openai_completions import completions
from edgekit.runtime.serve.openai_responses import responses
from edgekit.runtime.serve.openapi import describe
from edgekit.runtime.serve.service import Service

_log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/", "/health", "/ready"})
"""What needs no key: a page without content of ours, and whether the server is well."""

_PAGE = Path(__file__).with_name("page.html")
_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page talks to this server alone."""

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


def create_app(service: Service) -> Starlette:
    """The application for one service."""
    routes = [
        Route("/v1/chat/completions", chat_completions, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/messages", messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
        Route("/v1/models", _models, methods=["GET"]),
        Route("/v1/models/{model:path}", _model, methods=["GET"]),
        Route("/", _page, methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
        Route("/ready", _ready, methods=["GET"]),
        Route("/openapi.json", _openapi, methods=["GET"]),
        Route("/metrics", _metrics, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            ApiError: _refused,
            HTTPException: _http_error,
            Exception: _fault,
        },
    )
    app.state.service = service
    app.add_middleware(_Gate, service=service)
    return app


async def _models(request: Request) -> Response:
    service: Service = request.app.state.service
    return JSONResponse({"object": "list", "data": [_model_record(service)]})


async def _model(request: Request) -> Response:
    service: Service = request.app.state.service
    service.check_model(request.path_params["model"])
    return JSONResponse(_model_record(service))


def _model_record(service: Service) -> dict[str, Any]:
    return {
        "id": service.options.name,
        "object": "model",
        "created": service.started,
        "owned_by": "edgekit",
        "max_model_len": service.model.context,
    }


async def _page(request: Request) -> Response:
    text = _PAGE.read_text(encoding="utf-8")
    return HTMLResponse(text, headers={"content-security-policy": _CSP})


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    service: Service = request.app.state.service
    if not service.engine.accepts:
        raise ApiError(503, "the server is shutting down", code="shutting_down")
    stats = service.engine.stats()
    return JSONResponse(
        {"status": "ready", "slots": stats.slots, "busy": stats.busy, "waiting": stats.waiting}
    )


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


async def _openapi(request: Request) -> Response:
    service: Service = request.app.state.service
    return JSONResponse(describe(with_key=service.options.api_key is not None))


# -- refusals


def error_response(path: str, error: ApiError) -> Response:
    """An error in the shape of the API that the path belongs to."""
    body = error.anthropic() if path.startswith("/v1/messages") else error.openai()
    return JSONResponse(body, status_code=error.status, headers=error.headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(request.url.path, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {404: "no such path", 405: "no such method here"}.get(error.status_code, error.detail)
    refusal = ApiError(error.status_code, message, headers=dict(error.headers or {}))
    return error_response(request.url.path, refusal)


async def _fault(request: Request, error: Exception) -> Response:
    _log.error("a fault while answering %s", request.url.path, exc_info=error)
    return error_response(
        request.url.path, ApiError(500, "a fault in edgekit", code="internal_error")
    )


class _Gate:
    """Lets in who may come in, and counts what was answered."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("route")
                path = route.path if isinstance(route, Route) else "other"
                self._service.metrics.request(path, message["status"])
            await send(message)

        error = self._why_not(request)
        if error is not None:
            await error_response(request.url.path, error)(scope, receive, counted)
            return
        await self._app(scope, receive, counted)

    def _why_not(self, request: Request) -> ApiError | None:
        options = self._service.options
        if options.check_host:
            host = request.headers.get("host", "")
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name not in LOCAL_HOSTS:
                return ApiError(403, "this server answers on localhost alone", code="wrong_host")
        if options.api_key is None or request.url.path in OPEN_PATHS:
            return None
        given = request.headers.get("x-api-key", "")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip()
        if hmac.compare_digest(given.encode(), options.api_key.encode()):
            return None
        headers = {"www-authenticate": "Bearer"}
        return ApiError(401, "a valid API key is needed", code="invalid_api_key", headers=headers)
