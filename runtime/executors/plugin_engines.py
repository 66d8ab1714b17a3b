"""Engines of TensorRT that carry edgekit's kernels as plugins.

Not measured on the board: no GPU has run this yet (docs/tensorrt.md).

The session is that of the kernels themselves (plugin.py): weights are loaded once, as they lie, and
every engine takes them, and all state, as inputs. State comes out where it went in. Each number of
tokens has a context of its own, because a CUDA graph keeps what its context was told; all contexts
share one scratch memory, and nothing runs at the same time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.engines import Flavour
from edgekit.manifest import plan_name
from edgekit.ops.formats import BFLOAT16
from edgekit.runtime.executors.engine import (
    Engine,
    Memory,
    check_fits,
    import_flavour,
    replayed,
)
from edgekit.runtime.executors.plugin import PluginSession, graph_files
from edgekit.runtime.executors.plugin_graph import Graph
from edgekit.runtime.executors.program import Part, View
from edgekit.runtime.session import MAX_VERIFY

Array = npt.NDArray[Any]

LOAD_BYTES = 64 << 20
"""Of a weights file that are in the CPU's memory at once."""


def open_plugin_engines(bundle: Bundle) -> PluginSession:
    """Loads a bundle of engines with plugins onto this machine's GPU.

    Raises:
        MissingDependencyError: TensorRT, the CUDA bindings or a GPU is missing.
        BundleError: the engines are for another GPU or version, or were changed.
    """
    from edgekit.runtime.executors.cuda_memory import CudaMemory

    trt = import_flavour(cast(Flavour, bundle.manifest.executor))
    return plugin_engine_session(bundle, trt, CudaMemory())


def plugin_engine_session(bundle: Bundle, trt: Any, memory: Memory) -> PluginSession:
    """The session.

    Args:
        trt: TensorRT's Python module.
    """
    return PluginSession(bundle, MemoryStore(memory), EnginePrograms(bundle, trt, memory))


class Block:
    """Memory of the GPU; freed with the object."""

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.address, self.nbytes = memory.allocate(nbytes), nbytes
        weakref.finalize(self, memory.free, self.address)


class MemoryStore:
    """A `Store` of `Block`s."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def allocate(self, nbytes: int) -> Block:
        return Block(self._memory, nbytes)

    def copy_of(self, memory: Block) -> Block:
        copy = self.allocate(memory.nbytes)
        self.copy(memory, copy)
        return copy

    def copy(self, source: Block, target: Block) -> None:
        self._memory.copy(target.address, source.address, source.nbytes)

    def fill_zero(self, memory: Block) -> None:
        self._memory.zero(memory.address, memory.nbytes)

    def write(self, view: View, data: Array) -> None:
        self._memory.upload(_address(view), data)

    def write_file(self, memory: Block, path: Path) -> None:
        with path.open("rb") as file:
            at = 0
            while piece := file.read(LOAD_BYTES):
                self._memory.upload(memory.address + at, np.frombuffer(piece, np.uint8))
                at += len(piece)

    def read(self, view: View) -> Array:
        dtype = BFLOAT16 if view.dtype == "bfloat16" else np.dtype(view.dtype)
        array = np.empty(view.shape, dtype)
        self._memory.download(array, _address(view))
        return array

    def read_rows(self, view: View, first: int, last: int) -> Array:
        outer, entries, width = _entries(view)
        rows = np.empty((outer, last - first, width), np.uint8)
        for i in range(outer):
            self._memory.download(rows[i], _address(view) + (i * entries + first) * width)
        return rows

    def move_rows(self, view: View, first: int, count: int) -> None:
        outer, entries, width = _entries(view)
        between = self.allocate(count * width)  # the two places may overlap
        for i in range(outer):
            start = _address(view) + i * entries * width
            self._memory.copy(between.address, start + first * width, between.nbytes)
            self._memory.copy(start, between.address, between.nbytes)

    def write_rows(self, view: View, first: int, data: Array) -> None:
        outer, entries, width = _entries(view)
        for i in range(outer):
            self._memory.upload(_address(view) + (i * entries + first) * width, data[i])

    def peak_bytes(self) -> None:
        return None  # TensorRT has memory of its own


class EnginePrograms:
    """`Programs` of engines."""

    def __init__(self, bundle: Bundle, trt: Any, memory: Memory) -> None:
        check_fits(bundle, str(trt.__version__), memory.sm())
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self._bundle, self._trt, self._memory = bundle, trt, memory
        self._files = graph_files(bundle) | {
            f"{draft.kind}.{name}": file
            for draft in bundle.manifest.drafts
            for name, file in draft.graphs.items()
        }
        self._engines: dict[str, Engine] = {}
        self._scratch = 0, -1

    def add(self, kind: str, graph: Graph, tokens: int, bound: Collection[str]) -> None:
        plan = plan_name(self._files[kind])
        self._engines[kind] = Engine(self._bundle, plan, self._trt, self._runtime)

    def most(self, kind: str) -> int:
        return self._engines[kind].most_tokens or MAX_VERIFY

    def ready(self, parts: Sequence[Part]) -> Callable[[], None]:
        return replayed(self._memory, self._prepare(parts))

    def run(self, parts: Sequence[Part]) -> None:
        self._prepare(parts)()

    def _prepare(self, parts: Sequence[Part]) -> Callable[[], None]:
        """A context for each part, told its shapes and addresses; what enqueues them."""
        stream = self._memory.stream
        nbytes = max(engine.scratch_bytes for engine in self._engines.values())
        if nbytes > self._scratch[1]:  # contexts that there are keep their own
            self._scratch = self._memory.allocate(nbytes), nbytes
        enqueues = []
        for part in parts:
            engine = self._engines[part.kind]
            context = engine.context(0, *self._scratch)
            addresses, shapes = {}, {}
            for name in engine.names:
                view = _bound(name, part.bound)
                addresses[name] = _address(view)
                if name in engine.dynamic:
                    shapes[name] = view.shape
            context.tell(addresses, shapes, stream)
            enqueues.append(context.enqueue)

        def enqueue() -> None:
            for one in enqueues:
                one(stream)

        return enqueue


def _bound(name: str, bound: Mapping[str, View]) -> View:
    """Where a tensor of an engine is: what comes out as `x_out` is the state x."""
    return bound[name] if name in bound else bound[name.replace("_out", "", 1)]


def _address(view: View) -> int:
    return int(view.memory.address) + view.offset


def _entries(view: View) -> tuple[int, int, int]:
    """First and second axis of a view, and bytes of an entry of the second."""
    outer, entries = view.shape[:2]
    return outer, entries, view.nbytes // (outer * entries)
