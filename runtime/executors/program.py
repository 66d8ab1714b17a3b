"""A `plugin` graph made ready for one number of tokens: launches with the addresses they take.

Intermediate values share one piece of memory, the arena: a value's place is free again after its
last reader. Graph inputs and outputs have places of their own, which the session gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgekit.kernels.launch import Launch
from edgekit.kernels.nodes import Form, form
from edgekit.runtime.executors.plugin_graph import Graph, Node

ALIGNMENT = 256

ITEM_BYTES = {
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "uint8": 1,
}


@dataclass(frozen=True, slots=True)
class View:
    """An array in a device's memory, `offset` bytes from its start."""

    memory: Any
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def rows(self, first: int, count: int) -> View:
        """Rows first..first+count."""
        row = self.nbytes // self.shape[0]
        return View(self.memory, self.offset + first * row, (count, *self.shape[1:]), self.dtype)

    def at(self, i: int) -> View:
        """Element i of the first axis."""
        return View(self.memory, self.rows(i, 1).offset, self.shape[1:], self.dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """One launch and its arrays."""

    node: Node
    launch: Launch
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]


class Store(Protocol):
    """A device's memory: a GPU's, or in tests the CPU's. Calls take effect in their order."""

    def allocate(self, nbytes: int) -> Any:
        """Memory full of zeros, aligned to ALIGNMENT; it has `nbytes`."""

    def copy_of(self, memory: Any) -> Any:
        """New memory with the same content."""

    def copy(self, source: Any, target: Any) -> None:
        """Copies one memory over another of the same size."""

    def fill_zero(self, memory: Any) -> None: ...

    def write(self, view: View, data: npt.NDArray[Any]) -> None:
        """Copies bytes from the host, which may change `data` afterwards."""

    def write_file(self, memory: Any, path: Path) -> None:
        """Copies a file of the memory's size into it, in pieces."""

    def read(self, view: View) -> npt.NDArray[Any]:
        """Waits for everything before and copies to the host; valid until the view's next read."""

    def read_rows(self, view: View, first: int, last: int) -> npt.NDArray[np.uint8]:
        """Copies entries first..last of the second axis to the host: bytes [view.shape[0],
        last - first, bytes of an entry]."""

    def write_rows(self, view: View, first: int, data: npt.NDArray[np.uint8]) -> None:
        """Puts what `read_rows` gave back, beginning at entry `first`."""

    def move_rows(self, view: View, first: int, count: int) -> None:
        """Makes entries first..first + count of the second axis the first ones."""

    def peak_bytes(self) -> int | None:
        """Most bytes of the device that were taken at once; None where others take them, too."""


class Device(Store, Protocol):
    """A store with what runs launches on it."""

    def ready(self, calls: Sequence[Call]) -> Callable[[], None]:
        """What runs the calls, over and over."""

    def run(self, calls: Sequence[Call]) -> None:
        """Runs the calls once."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a graph's intermediate values are in the arena, for up to as many tokens as it was made
    for: with fewer, values are smaller and stay where they are.

    Attributes:
        nbytes: of the arena.
        offsets: by name. aliases: outputs that are state, by the name of the state.
    """

    nbytes: int
    offsets: Mapping[str, int]
    aliases: Mapping[str, str]


def lay_out(graph: Graph, T: int, bound: Collection[str]) -> Layout:
    """A layout for up to T tokens.

    Args:
        bound: names of weights, graph inputs and graph outputs, which have places of their own.
    """
    values = _Values(bound)
    forms = Forms(T)
    for at, node in enumerate(graph.nodes):
        for name in node.inputs:
            values.read(name, at)
        made = forms.of(node)
        for i, (name, output) in enumerate(zip(node.outputs, made.outputs, strict=True)):
            if i in made.state:
                values.alias(name, node.inputs[made.state[i]])
                continue
            donor = node.inputs[made.in_place[i]] if i in made.in_place else None
            nbytes = math.prod(output.shape) * ITEM_BYTES[output.dtype]
            values.write(name, at, nbytes, donor)
    offsets, nbytes = values.place()
    return Layout(nbytes, offsets, values.aliases)


def arrange(
    graph: Graph, T: int, bound: Mapping[str, View], layout: Layout, arena: Any
) -> list[Call]:
    """The calls of a graph for T tokens.

    Args:
        bound: weights, graph inputs and graph outputs by name.
        arena: memory of at least `layout.nbytes`.
    """
    forms, views = Forms(T), dict(bound)
    calls = []
    for node in graph.nodes:
        made = forms.of(node)
        for name, output in zip(node.outputs, made.outputs, strict=True):
            if name in layout.aliases:
                views[name] = bound[layout.aliases[name]]
            elif name not in bound:
                views[name] = View(arena, layout.offsets[name], output.shape, output.dtype)
        inputs, outputs = (
            tuple(views[name] for name in names) for names in (node.inputs, node.outputs)
        )
        calls.append(Call(node, made.launch, inputs, outputs))
    return calls


@dataclass(frozen=True, slots=True)
class Part:
    """A run of one of a session's graphs.

    Attributes:
        kind: of the graph. bound: everything that has a place of its own, by name.
    """

    kind: str
    T: int
    bound: Mapping[str, View]


class Programs(Protocol):
    """Graphs, those of a session and of its drafts, ready to run."""

    def add(self, kind: str, graph: Graph, tokens: int, bound: Collection[str]) -> None:
        """Takes in a graph under a name.

        Args:
            tokens: most that it is given. bound: names in it that have a place of their own.
        """

    def most(self, kind: str) -> int:
        """The most tokens that a graph takes at once."""

    def ready(self, parts: Sequence[Part]) -> Callable[[], None]:
        """What runs the parts, one after the other, over and over."""

    def run(self, parts: Sequence[Part]) -> None:
        """Runs the parts once."""


class LaunchPrograms:
    """Graphs as launches, one by one, on a device.

    They share an arena: no value of theirs outlives the run of its graph.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._graphs: dict[str, tuple[Graph, Layout]] = {}
        self._tokens: dict[str, int] = {}
        self._arena: Any = None
        self._arena_bytes = -1

    def add(self, kind: str, graph: Graph, tokens: int, bound: Collection[str]) -> None:
        self._graphs[kind], self._tokens[kind] = (graph, lay_out(graph, tokens, bound)), tokens

    def most(self, kind: str) -> int:
        return self._tokens[kind]

    def ready(self, parts: Sequence[Part]) -> Callable[[], None]:
        return self._device.ready(self._calls(parts))

    def run(self, parts: Sequence[Part]) -> None:
        self._device.run(self._calls(parts))

    def _calls(self, parts: Sequence[Part]) -> list[Call]:
        nbytes = max(layout.nbytes for _, layout in self._graphs.values())
        if nbytes > self._arena_bytes:  # what is ready already keeps its own
            self._arena, self._arena_bytes = self._device.allocate(nbytes), nbytes
        calls = []
        for part in parts:
            graph, layout = self._graphs[part.kind]
            calls += arrange(graph, part.T, part.bound, layout, self._arena)
        return calls


class Forms:
    """Forms of nodes for T tokens; the many nodes with equal attributes share one."""

    def __init__(self, T: int) -> None:
        self._T = T
        self._made: dict[tuple[str, int], Form] = {}

    def of(self, node: Node) -> Form:
        key = node.op, id(node.attributes)
        if key not in self._made:
            self._made[key] = form(node.op, node.attributes, self._T)
        return self._made[key]


@dataclass(slots=True)
class _Values:
    """Lifetimes of the values without a place of their own."""

    bound: Collection[str]
    nbytes: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    donors: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # outputs that are state

    def read(self, name: str, at: int) -> None:
        if name not in self.bound and name not in self.aliases:
            self.last[name] = at

    def write(self, name: str, at: int, nbytes: int, donor: str | None) -> None:
        if name in self.bound:
            return
        self.nbytes[name] = nbytes
        self.first[name] = self.last[name] = at
        if donor in self.nbytes:
            self.donors[name] = donor

    def alias(self, name: str, state: str) -> None:
        if name not in self.bound:
            self.aliases[name] = state

    def place(self) -> tuple[dict[str, int], int]:
        """An offset for each value, and the bytes they need together."""
        # A value takes its donor's memory when it is the last to read it.
        chains: dict[str, str] = {}
        ends: dict[str, int] = {}
        for name in self.nbytes:
            donor = self.donors.get(name)
            head = name
            if donor is not None and self.last[donor] == self.first[name]:
                head = chains[donor]
            chains[name] = head
            ends[head] = max(ends.get(head, 0), self.last[name])
        offsets: dict[str, int] = {}
        placed: list[tuple[int, int, int, int]] = []  # offset, end of it, first and last use
        size = 0
        for head in ends:
            begin, end = self.first[head], ends[head]
            alive = (p for p in placed if p[2] <= end and begin <= p[3])
            offset = _gap(sorted(alive), self.nbytes[head])
            offsets[head] = offset
            stop = offset + -(-self.nbytes[head] // ALIGNMENT) * ALIGNMENT
            placed.append((offset, stop, begin, end))
            size = max(size, stop)
        return {name: offsets[head] for name, head in chains.items()}, size


def _gap(taken: Iterable[tuple[int, int, int, int]], nbytes: int) -> int:
    """The lowest offset where nothing is in the way."""
    offset = 0
    for start, stop, _, _ in taken:
        if start - offset >= nbytes:
            break
        offset = max(offset, stop)
    return offset
