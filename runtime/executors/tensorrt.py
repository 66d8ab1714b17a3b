"""Engines of TensorRT and TensorRT for RTX.

Not measured on the board: no GPU that these engines are for has run this yet (docs/tensorrt.md).

The plans hold the weights. Recurrent state is double-buffered, because an engine may read it after
it has begun to write; KV caches are bound as past and present at once, which is what appends in
place. Each small step has a context and a CUDA graph of its own for its number of tokens and either
buffer of the state; a prompt's chunks share one, so that no context ever switches its profile. All
use one scratch memory of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.engines import Flavour
from edgekit.manifest import StateTensor
from edgekit.ops.formats import BFLOAT16
from edgekit.runtime.executors.engine import (
    Engine,
    Memory,
    check_fits,
    import_flavour,
    replayed,
)
from edgekit.runtime.session import MAX_VERIFY, Rows, Snapshot, StepOutput, check_tokens

Array = npt.NDArray[Any]


def open_tensorrt_session(bundle: Bundle) -> TensorRtSession:
    """Loads a bundle of engines onto this machine's GPU.

    Raises:
        MissingDependencyError: the flavour, the CUDA bindings or a GPU is missing.
        BundleError: the engines are for another GPU or version, or were changed.
    """
    from edgekit.runtime.executors.cuda_memory import CudaMemory

    return TensorRtSession(
        bundle, import_flavour(cast(Flavour, bundle.manifest.executor)), CudaMemory()
    )


class TensorRtSession:
    """A `Session` of a `standard` bundle.

    Args:
        trt: the flavour's Python module.
    """

    def __init__(self, bundle: Bundle, trt: Any, memory: Memory) -> None:
        manifest = bundle.manifest
        check_fits(bundle, str(trt.__version__), memory.sm())
        self.vocab_size = bundle.spec.vocab_size
        self.capacity, self.prefill_chunk = manifest.context, manifest.prefill_chunk
        self.length = 0
        self._memory = memory
        self._graphs = graphs = manifest.target
        self._tap_width = len(graphs.tap_layers) * bundle.spec.hidden_size
        self._row = bundle.spec.conv_dim + bundle.spec.mamba_num_heads
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self._step = Engine(bundle, graphs.step, trt, runtime)
        self._commit = Engine(bundle, graphs.commit, trt, runtime) if graphs.commit else None
        engines = [self._step, *([self._commit] if self._commit else [])]
        scratch_bytes = max(engine.scratch_bytes for engine in engines)
        scratch = memory.allocate(scratch_bytes), scratch_bytes
        self._scratch = scratch
        self._prompt = self._step.context(1, *scratch) if self._step.profiles > 1 else None
        self._flipped = False  # which of its two buffers the state is in
        self._programs: dict[tuple[str, int, int, bool], Callable[[], None]] = {}

        self._state = {state.input: memory.allocate(_nbytes(state)) for state in graphs.state}
        self._recurrent = [state for state in graphs.state if state.kind == "recurrent"]
        self._caches = [state for state in graphs.state if state.kind == "cache"]
        self._spare = {state.input: memory.allocate(_nbytes(state)) for state in self._recurrent}
        rows = max(self.prefill_chunk, MAX_VERIFY)
        row_bytes = 4 * self._row
        self._stash = {name: memory.allocate(MAX_VERIFY * row_bytes) for name in graphs.stash}
        self._unread = memory.allocate(rows * row_bytes)  # takes the stash of a prompt's chunk
        self._inputs = {name: memory.allocate(8 * rows) for name in ("tokens", "rows", "length")}
        self._taps = memory.allocate(4 * rows * self._tap_width)
        self._logits = memory.allocate(4 * MAX_VERIFY * self.vocab_size)
        self._many_logits = 0, 0  # address and rows, when a chunk's are asked for
        self._pending: int | None = None  # rows of the verify step that commit will settle

    # -- the contract

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        output = self._run(tokens, 1 if logits == "last" else len(tokens))
        self._swap()
        self.length += len(tokens)
        return output

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        if len(tokens) > MAX_VERIFY:
            raise ValueError(f"verify takes at most {MAX_VERIFY} tokens, not {len(tokens)}")
        output = self._run(tokens, len(tokens))
        self._pending = len(tokens)
        return output

    def commit(self, n: int) -> None:
        rows = self._pending
        if rows is None or not 0 <= n <= rows:
            raise ValueError(f"commit({n}) does not follow a verify step of at least {n} tokens")
        self._pending = None
        if n == rows:
            self._swap()  # the spare state is the state after all of them
        elif n > 0 and self._commit is not None:
            addresses = self._stash | self._state_addresses(self._recurrent)
            shapes = dict.fromkeys(self._stash, (n, self._row))
            self._replay(self._commit, "commit", n, 0, addresses, shapes)
            self._swap()
        self.length += n

    def snapshot(self) -> Snapshot:
        self._require_settled()
        arrays = [np.empty(state.shape, _dtype(state)) for state in self._recurrent]
        for state, array in zip(self._recurrent, arrays, strict=True):
            self._memory.download(array, self._state[state.input])
        return Snapshot(self.length, tuple(arrays))

    def restore(self, snapshot: Snapshot) -> None:
        for state, array in zip(self._recurrent, snapshot.arrays, strict=True):
            self._memory.upload(self._state[state.input], array)
        self.length, self._pending = snapshot.length, None

    def read_rows(self, first: int, last: int) -> Rows:
        parts = []
        for cache in self._caches:
            _, heads, _, width = cache.shape
            part = np.empty((1, heads, last - first, width), _dtype(cache))
            for head in range(heads):
                self._memory.download(part[0, head], self._row_address(cache, head, first))
            parts.append(part)
        return tuple(parts)

    def write_rows(self, first: int, rows: Rows, skip: int = 0) -> None:
        for cache, part in zip(self._caches, rows, strict=True):
            for head, array in enumerate(part[0, :, skip:]):
                self._memory.upload(self._row_address(cache, head, first + skip), array)

    def to_host(self, snapshot: Snapshot) -> Rows:
        return snapshot.arrays

    def from_host(self, length: int, arrays: Rows) -> Snapshot:
        expected = [(tuple(state.shape), _dtype(state)) for state in self._recurrent]
        if [(array.shape, array.dtype) for array in arrays] != expected:
            raise ValueError("the state is of another model")
        return Snapshot(length, arrays)

    def reset(self) -> None:
        for state in self._recurrent:
            self._memory.zero(self._state[state.input], _nbytes(state))
        self.length, self._pending = 0, None

    def close(self) -> None:
        self._memory.wait()
        self._prompt = None
        self._programs.clear()
        self._step.close()
        if self._commit is not None:
            self._commit.close()
        self._memory.close()

    # -- running

    def _run(self, tokens: Sequence[int], R: int) -> StepOutput:
        self._require_settled()
        check_tokens(self, tokens, max(self.prefill_chunk, MAX_VERIFY))
        memory, T = self._memory, len(tokens)
        logits_at = self._logits
        if R > MAX_VERIFY:
            if self._many_logits[1] < R:
                self._many_logits = memory.allocate(4 * R * self.vocab_size), R
            logits_at = self._many_logits[0]
        memory.upload(self._inputs["tokens"], np.array(tokens, np.int64))
        memory.upload(self._inputs["rows"], np.arange(T - R, T, dtype=np.int64))
        memory.upload(self._inputs["length"], np.array(self.length, np.int64))
        stash = self._stash
        if T > MAX_VERIFY:
            stash = dict.fromkeys(stash, self._unread)
        outputs = {"logits": logits_at, "taps": self._taps, **stash}
        addresses = self._inputs | outputs | self._state_addresses(self._graphs.state)
        shapes = {"tokens": (T,), "rows": (R,)}
        if T > MAX_VERIFY:
            assert self._prompt is not None
            self._prompt.tell(addresses, shapes, memory.stream)
            self._prompt.enqueue(memory.stream)
        else:
            self._replay(self._step, "step", T, R, addresses, shapes)
        logits = np.empty((R, self.vocab_size), np.float32)
        memory.download(logits, logits_at)
        if not self._tap_width:
            return StepOutput(logits, None)
        taps = np.empty((T, self._tap_width), np.float32)
        memory.download(taps, self._taps)
        return StepOutput(logits, taps)

    def _state_addresses(self, states: Sequence[StateTensor]) -> dict[str, int]:
        """Caches are read and written in one place, recurrent state is not."""
        addresses = {}
        for state in states:
            current = self._state[state.input]
            addresses[state.input] = current
            addresses[state.output] = self._spare.get(state.input, current)
        return addresses

    def _row_address(self, cache: StateTensor, head: int, row: int) -> int:
        """Where a token's row of one head begins in a cache [1, kv heads, context, head_dim]."""
        _, _, context, width = cache.shape
        offset = (head * context + row) * width * _dtype(cache).itemsize
        return self._state[cache.input] + offset

    def _replay(
        self,
        engine: Engine,
        name: str,
        T: int,
        R: int,
        addresses: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Runs what stays the same whenever the state is in the same buffer."""
        key = (name, T, R, self._flipped)
        if key not in self._programs:
            stream = self._memory.stream
            context = engine.context(0, *self._scratch)
            context.tell(addresses, shapes, stream)
            self._programs[key] = replayed(self._memory, lambda: context.enqueue(stream))
        self._programs[key]()

    def _swap(self) -> None:
        self._flipped = not self._flipped
        for name, spare in self._spare.items():
            self._spare[name], self._state[name] = self._state[name], spare

    def _require_settled(self) -> None:
        if self._pending is not None:
            raise ValueError("a verify step is waiting for commit")


def _dtype(state: StateTensor) -> np.dtype[Any]:
    return BFLOAT16 if state.dtype == "bfloat16" else np.dtype(state.dtype)


def _nbytes(state: StateTensor) -> int:
    return math.prod(state.shape) * _dtype(state).itemsize
