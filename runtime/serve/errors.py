"""Errors as the APIs give them."""

from __future__ import annotations

from typing import Any

from edgekit.errors import DoesNotFitError, EdgekitError, UsageError
from edgekit.runtime.serve.engine import BusyError, DeadlineError, PressureError, StoppedError


class ApiError(Exception):
    """A refusal.

    Args:
        status: HTTP status.
        param: which of the request's parameters is meant, None for none.
        code: a word for programs.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    @property
    def kind(self) -> str:
        """OpenAI's `type`."""
        if self.status == 401:
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    def openai(self) -> dict[str, Any]:
        """The body of OpenAI's API."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def anthropic(self) -> dict[str, Any]:
        """The body of Anthropic's API."""
        kinds = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}
        kinds |= {429: "rate_limit_error", 503: "overloaded_error"}
        default = "api_error" if self.status >= 500 else "invalid_request_error"
        kind = kinds.get(self.status, default)
        return {"type": "error", "error": {"type": kind, "message": self.message}}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that makes no sense."""
    return ApiError(400, message, param=param, code=code)


def from_edgekit(error: EdgekitError, param: str | None = None) -> ApiError:
    """What an error of the runtime is to a client."""
    message = error.message if not error.cause else f"{error.message}: {error.cause}"
    if isinstance(error, BusyError):
        headers = {"retry-after": str(error.retry_after)}
        return ApiError(429, message, code="queue_full", headers=headers)
    if isinstance(error, PressureError):
        return ApiError(503, message, code="memory_pressure", headers={"retry-after": "10"})
    if isinstance(error, StoppedError):
        return ApiError(503, message, code="shutting_down", headers={"retry-after": "10"})
    if isinstance(error, DeadlineError):
        return ApiError(504, message, code="timeout")
    if isinstance(error, DoesNotFitError):
        return invalid(message, param, "context_length_exceeded")
    if isinstance(error, UsageError):
        return invalid(message, param)
    return ApiError(500, message, code="internal_error")
