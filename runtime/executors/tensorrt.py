"""Engines of TensorRT and TensorRT for RTX.

Not measured on the board: no GPU that these engines are for has run this yet (docs/tensorrt.md).

The plans hold the weights. Recurrent state is double-buffered, because an engine may read it after
it has begun to write; KV caches are bound as past and present at once, which is what appends in
place. One context for each profile, so that none ever switches, over one scratch memory of ours.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.engines import FLAVOURS, Flavour
from edgekit.errors import BuildError, BundleError, MissingDependencyError
from edgekit.manifest import StateTensor
from edgekit.ops.formats import BFLOAT16
from edgekit.runtime.session import MAX_VERIFY, Rows, Snapshot, StepOutput, check_tokens

Array = npt.NDArray[Any]


class Memory(Protocol):
    """What a session asks of the GPU's memory; see `CudaMemory`."""

    stream: int

    def sm(self) -> int: ...
    def allocate(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def zero(self, address: int, nbytes: int) -> None: ...
    def copy(self, to: int, source: int, nbytes: int) -> None: ...
    def upload(self, to: int, array: Array) -> None: ...
    def download(self, array: Array, source: int) -> None: ...
    def wait(self) -> None: ...
    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]: ...
    def close(self) -> None: ...


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
        self._contexts = [self._step.context(i, *scratch) for i in range(self._step.profiles)]
        self._replay = self._commit.context(0, *scratch) if self._commit else None

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
        self._logits_rows = MAX_VERIFY
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
        elif n > 0 and self._replay is not None:
            addresses = self._stash | self._state_addresses(self._recurrent)
            shapes = dict.fromkeys(self._stash, (n, self._row))
            self._replay.tell(addresses, shapes, self._memory.stream)
            self._replay.enqueue(self._memory.stream)
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
        self._contexts.clear()
        self._replay = None
        self._step.close()
        if self._commit is not None:
            self._commit.close()
        self._memory.close()

    # -- running

    def _run(self, tokens: Sequence[int], R: int) -> StepOutput:
        self._require_settled()
        check_tokens(self, tokens, max(self.prefill_chunk, MAX_VERIFY))
        memory, T = self._memory, len(tokens)
        if self._logits_rows < R:
            self._logits, self._logits_rows = memory.allocate(4 * R * self.vocab_size), R
        memory.upload(self._inputs["tokens"], np.array(tokens, np.int64))
        memory.upload(self._inputs["rows"], np.arange(T - R, T, dtype=np.int64))
        memory.upload(self._inputs["length"], np.array(self.length, np.int64))
        stash = self._stash
        if T > MAX_VERIFY:
            stash = dict.fromkeys(stash, self._unread)
        outputs = {"logits": self._logits, "taps": self._taps, **stash}
        addresses = self._inputs | outputs | self._state_addresses(self._graphs.state)
        profile = 1 if T > MAX_VERIFY else 0
        context = self._contexts[profile]
        context.tell(addresses, {"tokens": (T,), "rows": (R,)}, memory.stream)
        context.enqueue(memory.stream)
        logits = np.empty((R, self.vocab_size), np.float32)
        memory.download(logits, self._logits)
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

    def _swap(self) -> None:
        for name, spare in self._spare.items():
            self._spare[name], self._state[name] = self._state[name], spare

    def _require_settled(self) -> None:
        if self._pending is not None:
            raise ValueError("a verify step is waiting for commit")


class Engine:
    """One plan.

    Attributes:
        scratch_bytes: what a context needs. names: of inputs and outputs. dynamic: inputs with
            symbolic dimensions.
    """

    def __init__(self, bundle: Bundle, name: str, trt: Any, runtime: Any) -> None:
        self.name = name
        path, entry = bundle.file(name), bundle.manifest.files[name]
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as plan:
            # A plan is machine code: nothing of one that was changed may be loaded.
            if hashlib.sha256(plan).hexdigest() != entry.sha256:
                raise BundleError(
                    f"{name} of bundle {bundle.manifest.name!r} was changed after it was built",
                    hint=f"build it again: {bundle.rebuild_command}",
                )
            with memoryview(plan) as view:
                self._engine = runtime.deserialize_cuda_engine(view)
        if self._engine is None:
            raise BundleError(
                f"TensorRT cannot load {name} of bundle {bundle.manifest.name!r}",
                cause="it says why above",
                hint=f"build it again: {bundle.rebuild_command}",
            )
        self._trt, count = trt, self._engine.num_optimization_profiles
        sizes = [self._engine.get_device_memory_size_for_profile_v2(i) for i in range(count)]
        self.profiles, self.scratch_bytes = count, max(sizes)
        self.names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        shapes = {name: tuple(self._engine.get_tensor_shape(name)) for name in self.names}
        is_input = trt.TensorIOMode.INPUT
        self.dynamic = [
            name
            for name, shape in shapes.items()
            if -1 in shape and self._engine.get_tensor_mode(name) == is_input
        ]

    @property
    def most_tokens(self) -> int | None:
        """The most that its first profile takes, None for one size."""
        if not self.dynamic:
            return None
        _, _, largest = self._engine.get_tensor_profile_shape(self.dynamic[0], 0)
        return int(largest[0])

    def context(self, profile: int, scratch: int, nbytes: int) -> Context:
        """A new context of a profile, with scratch memory of ours."""
        ours = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._engine.create_execution_context(ours)
        context.set_device_memory(scratch, nbytes)
        return Context(self.name, context, profile, self.names)

    def close(self) -> None:
        self._engine = None


class Context:
    """One execution context, which stays with its profile: switching it while another runs is how
    error 700 comes about."""

    def __init__(self, name: str, context: Any, profile: int, names: Sequence[str]) -> None:
        self._name, self._context, self._profile, self._names = name, context, profile, names

    def tell(
        self,
        addresses: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        stream: int,
    ) -> None:
        """Sets what the next executions work on.

        Args:
            shapes: of the inputs that have symbolic dimensions.
        """
        context = self._context
        if context.active_optimization_profile != self._profile:
            context.set_optimization_profile_async(self._profile, stream)
        done = all(context.set_input_shape(name, shape) for name, shape in shapes.items())
        if not (done and all(context.set_tensor_address(n, addresses[n]) for n in self._names)):
            raise self._failed()

    def enqueue(self, stream: int) -> None:
        """Enqueues one execution."""
        if not self._context.execute_async_v3(stream):
            raise self._failed()

    def _failed(self) -> BuildError:
        return BuildError(
            f"TensorRT failed to run {self._name}",
            cause="it says why above",
            hint="edgekit verify BUNDLE",
        )


def _dtype(state: StateTensor) -> np.dtype[Any]:
    return BFLOAT16 if state.dtype == "bfloat16" else np.dtype(state.dtype)


def _nbytes(state: StateTensor) -> int:
    return math.prod(state.shape) * _dtype(state).itemsize


def check_fits(bundle: Bundle, version: str, sm: int) -> None:
    """Plans are for one version and one GPU."""
    manifest = bundle.manifest
    built = manifest.versions.get(manifest.executor)
    if built != version:
        raise BundleError(
            f"bundle {manifest.name!r} was built with {manifest.executor} {built}, "
            f"and {version} is installed",
            hint=f"build it again: {bundle.rebuild_command}",
        )
    if manifest.versions.get("sm") != str(sm):
        raise BundleError(
            f"bundle {manifest.name!r} is for sm_{manifest.versions.get('sm')}, "
            f"and this GPU is sm_{sm}",
            hint="build it again for this GPU with --sm",
        )


def import_flavour(flavour: Flavour) -> Any:
    info = FLAVOURS[flavour]
    cause = ""
    for name in info.modules:
        try:
            return importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            cause = cause or str(error)
    raise MissingDependencyError(f"{info.title} is not installed", cause=cause, hint=info.install)
