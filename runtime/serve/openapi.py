"""`GET /openapi.json`: what the endpoints take and give, from the types that check requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

import edgekit
from edgekit.runtime.serve.anthropic_types import CountRequest, MessagesRequest
from edgekit.runtime.serve.openai_types import ChatRequest, CompletionRequest
from edgekit.runtime.serve.responses_types import ResponsesRequest

_REF = "#/components/schemas/{model}"

_POSTS: tuple[tuple[str, str, type[BaseModel], str], ...] = (
    ("/v1/chat/completions", "Answers a conversation.", ChatRequest, "Error"),
    ("/v1/completions", "Goes on with a text.", CompletionRequest, "Error"),
    ("/v1/responses", "Answers a conversation.", ResponsesRequest, "Error"),
    ("/v1/messages", "Answers a conversation.", MessagesRequest, "AnthropicError"),
    ("/v1/messages/count_tokens", "Counts tokens.", CountRequest, "AnthropicError"),
)

_GETS = (
    ("/v1/models", "Lists the model.", "application/json"),
    ("/health", "Says that the process lives.", "application/json"),
    ("/ready", "Says whether requests are taken.", "application/json"),
    ("/metrics", "Counts, as Prometheus reads them.", "text/plain"),
    ("/openapi.json", "This description.", "application/json"),
)

_REFUSALS = {
    "400": "The request makes no sense, or the prompt does not fit.",
    "401": "The API key is missing or wrong.",
    "403": "The host name is not this machine's.",
    "404": "No such model.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "429": "The queue is full; Retry-After says when to come back.",
    "500": "A fault in edgekit.",
    "503": "The server is shutting down.",
    "504": "The request took too long.",
}

_ERRORS = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "additionalProperties": False,
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "additionalProperties": False,
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "additionalProperties": False,
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "additionalProperties": False,
                "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


def describe(*, with_key: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 description.

    Args:
        with_key: clients must show a key.
    """
    schemas: dict[str, Any] = dict(_ERRORS)
    paths: dict[str, Any] = {}
    for path, summary, model, error in _POSTS:
        schema = model.model_json_schema(ref_template=_REF)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
        body = {"schema": {"$ref": _REF.format(model=model.__name__)}}
        answers = {"application/json": {"schema": {"type": "object"}}}
        if path != "/v1/messages/count_tokens":
            answers["text/event-stream"] = {"schema": {"type": "string"}}
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": {"application/json": body}},
                "responses": {
                    "200": {"description": "The answer.", "content": answers},
                    **_refusals(_REFUSALS, error),
                },
            }
        }
    for path, summary, media in _GETS:
        paths[path] = {
            "get": {
                "summary": summary,
                "responses": {
                    "200": {"description": summary, "content": {media: {}}},
                    **_refusals({code: _REFUSALS[code] for code in ("401", "403", "503")}, "Error"),
                },
            }
        }
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "edgekit", "version": edgekit.__version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    if with_key:
        schemes = {"key": {"type": "http", "scheme": "bearer"}}
        described["components"]["securitySchemes"] = schemes
        described["security"] = [{"key": []}]
    return described


def _refusals(reasons: dict[str, str], error: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(model=error)}}}
    return {
        code: {"description": description, "content": content}
        for code, description in reasons.items()
    }
