"""manifest.json: what a bundle is and what it needs.

Plain dataclasses with a strict reader rather than a validation library: opening a bundle must not
cost the runtime eight megabytes of a small board's memory.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from edgekit.errors import BundleError

SCHEMA_VERSION = 6

KERNELS = "kernels/index.json"
"""In a `plugin` bundle: the machine code's file by `Kernel.key`."""

StateKind = Literal["recurrent", "cache"]
DrafterKind = Literal["dspark", "dflash", "mtp"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of the bundle."""

    sha256: str
    nbytes: int


def plan_name(graph: str) -> str:
    """The engine that stands beside a `plugin` graph."""
    return f"{graph.removesuffix('.onnx')}.plan"


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A tensor that a graph reads and writes back: convolution or SSM state, or a KV cache.

    Attributes:
        kind: ``recurrent`` state is replaced by each step, a ``cache`` is appended to.
    """

    input: str
    output: str
    shape: tuple[int, ...]
    dtype: str
    kind: StateKind


@dataclass(frozen=True, slots=True)
class Graphs:
    """The files of one model and how they connect.

    Attributes:
        step: graph, or engine, that runs T tokens, and in the `plugin` lowering commits them.
        commit: graph that replays n stashed rows, if any.
        state: in execution order. stash: what `commit` takes of each layer.
        tap_layers: layers whose residual stream `step` returns.
        verify, prefill, head, pick, draw, judge: the other graphs of the `plugin` lowering.
    """

    step: str
    commit: str | None
    state: tuple[StateTensor, ...]
    stash: tuple[str, ...]
    tap_layers: tuple[int, ...]
    verify: str | None = None
    prefill: str | None = None
    head: str | None = None
    pick: str | None = None
    draw: str | None = None
    judge: str | None = None


@dataclass(frozen=True, slots=True)
class DraftGraphs:
    """The files of one drafter.

    Attributes:
        graphs: `context`, `block` and perhaps `head` of a dspark or dflash draft, `step` of an mtp
            head, by these names.
        tap_layers: what it reads of the target; some of the target's `tap_layers`, in its order.
        state: its KV caches.
    """

    kind: DrafterKind
    graphs: dict[str, str]
    tap_layers: tuple[int, ...]
    state: tuple[StateTensor, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything about a bundle that is not in its model's own config.json.

    Attributes:
        lowering: the form of the graphs. executor: what runs them.
        context: KV rows, and so the longest sequence. prefill_chunk: most tokens a step.
        source: the model as `edgekit build` was told it: `nano`, or a checkpoint folder.
        versions: packages it was built with, and must be run with where that matters.
        weight_bytes: of the target's weights as its graphs hold them, the embedding's table aside.
        expert_bytes: of them those of the routed experts, of which a token reads some.
        drafts: what can draft for the target, besides lookup. draft_values: the values of
            `edgekit build --draft`; none let the checkpoint decide.
        files: every other file, by path relative to the bundle.
    """

    name: str
    source: str
    recipe: str
    profile: str
    lowering: str
    executor: str
    context: int
    prefill_chunk: int
    weights_format: str
    created: str
    versions: dict[str, str]
    weight_bytes: int
    expert_bytes: int
    target: Graphs
    drafts: tuple[DraftGraphs, ...] = ()
    draft_values: tuple[str, ...] = ()
    files: dict[str, FileEntry] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def nbytes(self) -> int:
        """Bytes of all files together."""
        return sum(entry.nbytes for entry in self.files.values())

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Manifest:
        """Reads a parsed manifest.json.

        Raises:
            BundleError: another schema version, or a field is missing, unknown or of a wrong type.
        """
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise BundleError(
                f"this bundle has schema version {version}, this edgekit reads {SCHEMA_VERSION}",
                hint="build the bundle again with `edgekit build`",
            )
        try:
            return typing.cast(Manifest, _read(cls, data, "manifest"))
        except (TypeError, ValueError, KeyError) as error:
            raise BundleError(
                "manifest.json is damaged",
                cause=str(error),
                hint="build the bundle again with `edgekit build`",
            ) from None


def _read(kind: Any, value: Any, where: str) -> Any:
    """Turns JSON into `kind`, refusing anything that does not fit."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict) or set(value) != set(hints):
            odd = set(hints) ^ set(value if isinstance(value, dict) else ())
            raise ValueError(f"{where}: {', '.join(sorted(odd)) or 'not an object'}")
        return typing.cast(Any, kind)(
            **{key: _read(hints[key], value[key], f"{where}.{key}") for key in hints}
        )
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where} is not a list")
        return tuple(_read(arguments[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object")
        return {key: _read(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is types.UnionType:
        return None if value is None else _read(arguments[0], value, where)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{where} is {value!r}")
        return value
    if type(value) is not kind:
        raise ValueError(f"{where} is {value!r}, not {kind.__name__}")
    return value
