"""What the process that builds an engine is asked, and what it answers: JSON lines."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.engines import Flavour

STEPS = 1000
"""Progress is told in so many parts of the whole."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Sizes that the symbolic dimensions of a graph take: smallest, usual and largest."""

    smallest: int
    usual: int
    largest: int


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One engine to build.

    Attributes:
        graph: an ONNX file of the `standard` lowering, its weights beside it.
        plan: where the engine goes.
        sm: compute capability, 121 for 12.1.
        profiles: one optimization profile each; all symbolic dimensions of the graph share them.
        formats: how the graph's weights are stored.
        weight_bytes: of all of them.
        timing_cache: file that is read and written where the flavour has such a thing.
    """

    flavour: Flavour
    graph: Path
    plan: Path
    sm: int
    profiles: tuple[Profile, ...]
    formats: frozenset[str]
    weight_bytes: int
    timing_cache: Path | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=_plain)

    @classmethod
    def from_json(cls, text: str) -> EngineRequest:
        data = json.loads(text)
        cache = data["timing_cache"]
        return cls(
            **{
                **data,
                "graph": Path(data["graph"]),
                "plan": Path(data["plan"]),
                "profiles": tuple(Profile(**profile) for profile in data["profiles"]),
                "formats": frozenset(data["formats"]),
                "timing_cache": Path(cache) if cache else None,
            }
        )


@dataclass(frozen=True, slots=True)
class EngineReport:
    """A finished engine.

    Attributes:
        version: of the flavour that built it. layers: what it runs, all profiles together.
        seconds: the build itself. peak_bytes: most memory that its process held and no file backed.
    """

    plan: Path
    version: str
    nbytes: int
    layers: int
    seconds: float
    peak_bytes: int


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)
