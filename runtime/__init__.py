"""The online half: a bundle to tokens. Never imports the exporter, and torch only in its executor.

The names below load on first use, so importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.runtime.events import GenerationEvent, GenerationStats, SamplingParams
    from edgekit.runtime.model import Model, load_model

__all__ = ["GenerationEvent", "GenerationStats", "Model", "SamplingParams", "load_model"]

_MODULES = {
    "GenerationEvent": "events",
    "GenerationStats": "events",
    "Model": "model",
    "SamplingParams": "events",
    "load_model": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
