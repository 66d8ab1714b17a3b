"""A session of a `plugin`-lowered bundle: edgekit's CUDA kernels, launched one after another.

Tokens, the sequence's length and how many rows to commit are on the device, sent in one small copy
before a step; nothing else waits for the host until the logits are read. Weights are loaded once,
as they lie in the weights file. Recurrent state is one piece of memory for all layers, so that a
commit is one launch and a snapshot two copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.errors import DoesNotFitError
from edgekit.runtime.executors.plugin_graph import Graph, Tensor, read_graph
from edgekit.runtime.executors.program import ALIGNMENT, Call, Device, View, arrange
from edgekit.runtime.session import MAX_VERIFY, Snapshot, StepOutput

WEIGHTS = "weights/weights.bin"

F32 = npt.NDArray[np.float32]
Mode = Literal["decode", "verify", "prefill"]

_LENGTH, _N, _TOKENS = 0, 4, 8
"""Where these stand in the control words: each 16-byte aligned."""


@dataclass(frozen=True, slots=True)
class _Program:
    """Everything of one step up to the logits of its last row, or of all rows of a verify step."""

    run: Callable[[], None]
    logits: View
    taps: View | None


class PluginSession:
    """A `Session` on a device that runs launches."""

    def __init__(self, bundle: Bundle, device: Device) -> None:
        manifest, spec = bundle.manifest, bundle.spec
        self.vocab_size = spec.vocab_size
        self.capacity = manifest.context
        self.prefill_chunk = manifest.prefill_chunk
        self.length = 0
        self._device = device
        names = manifest.target
        files = {
            "decode": names.step,
            "verify": names.verify,
            "prefill": names.prefill,
            "head": names.head,
            "commit": names.commit,
        }
        self._graphs: dict[str, Graph] = {
            kind: read_graph(bundle.file(name)) for kind, name in files.items() if name is not None
        }
        rows = max(self.prefill_chunk, MAX_VERIFY)
        self._bound = self._weights(bundle)
        self._recurrent: list[Any] = []
        self._allocate_state(bundle)
        self._control = self._array("control", (_TOKENS + rows,), "int32")
        self._bound["length"] = View(self._control.memory, 4 * _LENGTH, (1,), "int32")
        self._bound["n"] = View(self._control.memory, 4 * _N, (1,), "int32")
        self._hidden = self._array("hidden", (rows, spec.hidden_size), "float32")
        self._logits = self._array("logits", (MAX_VERIFY, spec.vocab_size), "float32")
        self._taps: View | None = None
        if names.tap_layers:
            width = len(names.tap_layers) * spec.hidden_size
            self._taps = self._array("taps", (rows, width), "float32")

        self._arena = device.allocate(0)
        self._programs: dict[tuple[Mode, int], _Program] = {}
        self._replay: Callable[[], None] | None = None
        if "commit" in self._graphs:
            self._replay = device.ready(self._arrange("commit", MAX_VERIFY), repeats=True)
        self._pending: int | None = None  # tokens of the verify step that commit will settle
        self._arrange("prefill", rows)  # the arena is then as large as it ever needs to be

    # -- the contract

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        T = len(tokens)
        self._check(tokens, self.prefill_chunk)
        program = self._program("decode" if T == 1 else "prefill", T)
        self._send(tokens)
        program.run()
        rows = self._all_rows(T) if logits == "all" and T > 1 else self._read(program.logits)
        self.length += T
        return StepOutput(rows, self._read(program.taps) if program.taps is not None else None)

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        if len(tokens) > MAX_VERIFY:
            raise ValueError(f"verify takes at most {MAX_VERIFY} tokens, not {len(tokens)}")
        self._check(tokens, MAX_VERIFY)
        program = self._program("verify", len(tokens))
        self._send(tokens)
        program.run()
        self._pending = len(tokens)
        taps = self._read(program.taps) if program.taps is not None else None
        return StepOutput(self._read(program.logits), taps)

    def commit(self, n: int) -> None:
        T = self._pending
        if T is None or not 0 <= n <= T:
            raise ValueError(f"commit({n}) does not follow a verify step of at least {n} tokens")
        self._pending = None
        if n and self._replay is not None:
            self._device.write(self._bound["n"], np.array([n], np.int32))
            self._replay()
        self.length += n

    def snapshot(self) -> Snapshot:
        self._require_settled()
        copies = tuple(self._device.copy_of(memory) for memory in self._recurrent)
        return Snapshot(self.length, copies)

    def restore(self, snapshot: Snapshot) -> None:
        for memory, copy in zip(self._recurrent, snapshot.arrays, strict=True):
            self._device.copy(copy, memory)
        self.length = snapshot.length
        self._pending = None

    def reset(self) -> None:
        for memory in self._recurrent:
            self._device.fill_zero(memory)
        self.length = 0
        self._pending = None

    def close(self) -> None:
        self._programs.clear()
        self._bound.clear()
        self._recurrent.clear()
        self._replay = self._pending = None

    # -- memory

    def _array(self, name: str, shape: tuple[int, ...], dtype: str) -> View:
        """An array of its own, full of zeros."""
        nbytes = View(None, 0, shape, dtype).nbytes
        view = self._bound[name] = View(self._device.allocate(nbytes), 0, shape, dtype)
        return view

    def _weights(self, bundle: Bundle) -> dict[str, View]:
        """Loads the weights file as it is, and the small weights of the graph files behind it."""
        tensors: dict[str, Tensor] = {}
        for graph in self._graphs.values():
            tensors |= graph.weights
        entry = bundle.manifest.files.get(WEIGHTS)
        memory = None
        if entry is not None and entry.nbytes:
            memory = self._device.allocate(entry.nbytes)
            self._device.write_file(memory, bundle.file(WEIGHTS))
        small = {name: tensor for name, tensor in tensors.items() if tensor.offset is None}
        inline = b""
        offsets = {}
        for name, tensor in small.items():
            offsets[name] = len(inline)
            inline += tensor.data + bytes(-len(tensor.data) % ALIGNMENT)
        beside = self._device.allocate(len(inline))
        if inline:
            whole = View(beside, 0, (len(inline),), "uint8")
            self._device.write(whole, np.frombuffer(inline, np.uint8))
        return {
            name: View(beside, offsets[name], tensor.shape, tensor.dtype)
            if tensor.offset is None
            else View(memory, tensor.offset, tensor.shape, tensor.dtype)
            for name, tensor in tensors.items()
        }

    def _allocate_state(self, bundle: Bundle) -> None:
        """State by its names in the graphs; that of all Mamba layers lies together."""
        by_kind: dict[str, list[str]] = {}
        states = {state.input: state for state in bundle.manifest.target.state}
        for name, state in states.items():
            if state.kind == "recurrent":
                by_kind.setdefault(name.split(".")[0], []).append(name)
            else:
                self._bound[state.output] = self._array(name, state.shape, state.dtype)
        for kind, names in by_kind.items():
            shape, dtype = states[names[0]].shape, states[names[0]].dtype
            whole = self._array(kind, (len(names), *shape), dtype)
            self._bound[f"{kind}_out"] = whole
            self._recurrent.append(whole.memory)
            for i, name in enumerate(names):
                self._bound[name] = self._bound[states[name].output] = whole.at(i)
        self._stash = bundle.manifest.target.stash
        if self._stash:
            shape = (MAX_VERIFY, bundle.spec.in_proj_dim)
            whole = self._array("stash", (len(self._stash), *shape), "bfloat16")
            for i, name in enumerate(self._stash):
                self._bound[name] = whole.at(i)

    # -- running

    def _arrange(self, kind: str, T: int, **bound: View) -> list[Call]:
        def arena(nbytes: int) -> Any:
            if self._arena.nbytes < nbytes:
                self._arena = self._device.allocate(nbytes)
            return self._arena

        tokens = View(self._control.memory, 4 * _TOKENS, (T,), "int32")
        rows = {
            "decode": ("hidden", "taps"),
            "verify": ("hidden", "taps", *self._stash),
            "prefill": ("hidden", "taps"),
        }.get(kind, ())
        per_token = {name: self._bound[name].rows(0, T) for name in rows if name in self._bound}
        return arrange(
            self._graphs[kind], T, self._bound | {"tokens": tokens} | per_token | bound, arena
        )

    def _head(self, first: int, rows: int) -> tuple[list[Call], View]:
        """The calls that turn rows of the residual stream into logits."""
        logits = self._logits.rows(0, rows)
        calls = self._arrange("head", rows, hidden=self._hidden.rows(first, rows), logits=logits)
        return calls, logits

    def _program(self, mode: Mode, T: int) -> _Program:
        program = self._programs.get((mode, T))
        if program is None:
            rows = T if mode == "verify" else 1
            head, logits = self._head(T - rows, rows)
            calls = [*self._arrange(mode, T), *head]
            repeats = mode != "prefill"
            taps = self._taps.rows(0, T) if self._taps is not None else None
            program = _Program(self._device.ready(calls, repeats=repeats), logits, taps)
            if repeats or self.prefill_chunk == T:
                self._programs[mode, T] = program
        return program

    def _all_rows(self, T: int) -> F32:
        """Logits of every row of the step that just ran."""
        pieces = []
        for first in range(0, T, MAX_VERIFY):
            calls, logits = self._head(first, min(MAX_VERIFY, T - first))
            self._device.ready(calls, repeats=False)()
            pieces.append(self._read(logits).copy())
        return np.concatenate(pieces)

    def _send(self, tokens: Sequence[int]) -> None:
        words = np.zeros(_TOKENS + len(tokens), np.int32)
        words[_LENGTH] = self.length
        words[_TOKENS:] = tokens
        self._device.write(self._control.rows(0, len(words)), words)

    def _read(self, view: View) -> F32:
        return self._device.read(view)

    def _check(self, tokens: Sequence[int], most: int) -> None:
        self._require_settled()
        T = len(tokens)
        if not 1 <= T <= most:
            raise ValueError(f"a step takes 1..{most} tokens, not {T}")
        if self.length + T > self.capacity:
            raise DoesNotFitError(
                f"the context is full: {self.length} tokens and {T} more, of {self.capacity}",
                hint="start a new conversation, or build the bundle with a larger --context",
            )
        if not 0 <= min(tokens) <= max(tokens) < self.vocab_size:
            raise ValueError(f"token ids run from 0 to {self.vocab_size - 1}")

    def _require_settled(self) -> None:
        if self._pending is not None:
            raise ValueError("a verify step is waiting for commit")
