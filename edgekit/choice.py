"""A decision together with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """A decision and its reason, so that every command can show both."""

    value: T
    why: str
