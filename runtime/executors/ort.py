"""ONNX Runtime on the CPU.

Weights stay in the mapped weights file: no prepacking, so nothing is held twice and the pages are
the kernel's to drop. KV caches are allocated once at full context and appended in place, by binding
the same buffer as past and present. Recurrent state is double-buffered for `verify` and for
prefill chunks, and updated in place by single tokens, where it is the largest thing a step moves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.errors import BuildError, MissingDependencyError, UsageError
from edgekit.runtime.session import MAX_VERIFY, Rows, Snapshot, StepOutput, check_tokens


class _Buffer(NamedTuple):
    """A NumPy array and the OrtValue over the same memory."""

    array: npt.NDArray[Any]
    value: Any


Buffers = dict[str, _Buffer]


class OrtSession:
    """A `Session` of an `ort`-lowered bundle.

    Args:
        beside: another session of the bundle: its loaded graphs are used, with state of our own.
    """

    def __init__(
        self, bundle: Bundle, *, threads: int | None = None, beside: OrtSession | None = None
    ) -> None:
        cpus = os.cpu_count() or 1
        if threads is not None and threads > cpus:
            raise UsageError(
                f"{threads} threads are more than this machine's {cpus} CPUs",
                hint=f"pass --threads {cpus} or fewer, or leave it out",
            )
        # ONNX Runtime's wheels report usage to their maker unless told not to before they load.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime as ort
        except ImportError as error:
            raise MissingDependencyError(
                "ONNX Runtime is not installed",
                cause=str(error),
                hint="pip install 'edgekit-nemotron[cpu]'",
            ) from None
        self._ort = ort
        manifest = bundle.manifest
        self.vocab_size = bundle.spec.vocab_size
        self.capacity = manifest.context
        self.prefill_chunk = manifest.prefill_chunk
        self.length = 0
        self._graphs = graphs = manifest.target
        self._tap_width = len(graphs.tap_layers) * bundle.spec.hidden_size
        self._step_model: Any
        self._commit_model: Any = None
        if beside is not None:
            self._step_model, self._commit_model = beside._step_model, beside._commit_model
        else:
            self._step_model = load_graph(ort, bundle, graphs.step, threads)
            if graphs.commit:
                self._commit_model = load_graph(ort, bundle, graphs.commit, threads)
        self._has_attention = any(state.kind == "cache" for state in graphs.state)
        self._stash_width = {
            output.name: int(output.shape[-1])
            for output in self._step_model.get_outputs()
            if output.name in graphs.stash
        }

        self._state = self._allocate(kinds=("recurrent", "cache"))
        self._spare = self._allocate(kinds=("recurrent",))
        self._last_position = self._buffer(np.zeros(1, np.int32))
        self._total_length = self._buffer(np.zeros((), np.int32))
        self._plans: dict[tuple[int, int, str], _Plan] = {}
        self._pending: _Plan | None = None  # the verify step that commit will settle
        self._side = 0  # of the double buffer: which half is committed now

    # -- the contract

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        T = len(tokens)
        plan = self._plan(tokens, 1 if logits == "last" else T, "decode" if T == 1 else "advance")
        output = self._run(plan, tokens)
        if plan.mode == "advance":
            self._swap()
        self.length += T
        return output

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        if len(tokens) > MAX_VERIFY:
            raise ValueError(f"verify takes at most {MAX_VERIFY} tokens, not {len(tokens)}")
        plan = self._plan(tokens, len(tokens), "verify")
        output = self._run(plan, tokens)
        self._pending = plan
        return output

    def commit(self, n: int) -> None:
        plan = self._pending
        if plan is None or not 0 <= n <= plan.T:
            raise ValueError(f"commit({n}) does not follow a verify step of at least {n} tokens")
        self._pending = None
        if n == plan.T:
            self._swap()  # the spare state is the state after all of them
        elif n > 0 and self._commit_model is not None:
            self._replay(plan, n)
            self._swap()
        self.length += n

    def snapshot(self) -> Snapshot:
        self._require_settled()
        arrays = tuple(
            self._state[state.input].array.copy()
            for state in self._graphs.state
            if state.kind == "recurrent"
        )
        return Snapshot(self.length, arrays)

    def restore(self, snapshot: Snapshot) -> None:
        recurrent = [state for state in self._graphs.state if state.kind == "recurrent"]
        for state, array in zip(recurrent, snapshot.arrays, strict=True):
            self._state[state.input].array[...] = array
        self.length = snapshot.length
        self._pending = None

    def read_rows(self, first: int, last: int) -> Rows:
        return tuple(cache[..., first:last, :].copy() for cache in self._caches())

    def write_rows(self, first: int, rows: Rows, skip: int = 0) -> None:
        for cache, part in zip(self._caches(), rows, strict=True):
            cache[..., first + skip : first + part.shape[-2], :] = part[..., skip:, :]

    def _caches(self) -> list[npt.NDArray[Any]]:
        """KV caches: [1, kv_heads, capacity, head_dim] each."""
        states = (state for state in self._graphs.state if state.kind == "cache")
        return [self._state[state.input].array for state in states]

    def to_host(self, snapshot: Snapshot) -> Rows:
        return snapshot.arrays

    def from_host(self, length: int, arrays: Rows) -> Snapshot:
        recurrent = [state for state in self._graphs.state if state.kind == "recurrent"]
        expected = [(tuple(state.shape), np.dtype(state.dtype)) for state in recurrent]
        if [(array.shape, array.dtype) for array in arrays] != expected:
            raise ValueError("the state is of another model")
        return Snapshot(length, arrays)

    def reset(self) -> None:
        for state in self._graphs.state:
            if state.kind == "recurrent":
                self._state[state.input].array[...] = 0
        self.length = 0
        self._pending = None

    def close(self) -> None:
        self._plans.clear()
        self._state.clear()
        self._spare.clear()
        self._pending = self._step_model = self._commit_model = None

    # -- running

    def _buffer(self, array: npt.NDArray[Any]) -> _Buffer:
        return _Buffer(array, self._ort.OrtValue.ortvalue_from_numpy(array))

    def _allocate(self, kinds: Sequence[str]) -> Buffers:
        return {
            state.input: self._buffer(np.zeros(state.shape, state.dtype))
            for state in self._graphs.state
            if state.kind in kinds
        }

    def _swap(self) -> None:
        """Makes the spare recurrent state the committed one."""
        for name, spare in self._spare.items():
            self._spare[name], self._state[name] = self._state[name], spare
        self._side ^= 1

    def _require_settled(self) -> None:
        if self._pending is not None:
            raise ValueError("a verify step is waiting for commit")

    def _plan(self, tokens: Sequence[int], R: int, mode: str) -> _Plan:
        """Buffers and bindings for one shape; small shapes are kept, chunks are made anew."""
        self._require_settled()
        check_tokens(self, tokens, max(self.prefill_chunk, MAX_VERIFY))
        T = len(tokens)
        plan = self._plans.get((T, R, mode))
        if plan is None:
            plan = _Plan(self, T, R, mode)
            if T <= MAX_VERIFY:
                self._plans[T, R, mode] = plan
        return plan

    def _run(self, plan: _Plan, tokens: Sequence[int]) -> StepOutput:
        plan.tokens.array[0, :] = tokens
        self._last_position.array[0] = self.length + plan.T - 1
        self._total_length.array[...] = self.length + plan.T
        binding = plan.binding(self._side)
        try:
            self._step_model.run_with_iobinding(binding)
        except Exception as error:  # ONNX Runtime raises its own classes and plain RuntimeError
            raise BuildError("ONNX Runtime failed to run the model", cause=str(error)) from error
        return plan.output

    def _replay(self, plan: _Plan, n: int) -> None:
        binding = self._commit_model.io_binding()
        for name, stash in plan.stash.items():
            # [1, T, width] cut to n rows is the front of the same memory.
            binding.bind_ortvalue_input(name, self._buffer(stash.array[:, :n]).value)
        for state in self._graphs.state:
            if state.kind == "recurrent":
                binding.bind_ortvalue_input(state.input, self._state[state.input].value)
                binding.bind_ortvalue_output(state.output, self._spare[state.input].value)
        self._commit_model.run_with_iobinding(binding)


class _Plan:
    """Input and output buffers of one (T, R, mode), and the bindings that join them to the state.

    There are two bindings, one for each side of the double buffer; a decode step needs no second
    buffer and has one binding for each as well, because verify may have swapped the sides.
    """

    def __init__(self, session: OrtSession, T: int, R: int, mode: str) -> None:
        buffer = session._buffer
        self.T, self.mode, self._session = T, mode, session
        self.tokens = buffer(np.zeros((1, T), np.int64))
        self.stash = {
            name: buffer(np.zeros((1, T, width), np.float32))
            for name, width in session._stash_width.items()
            if mode == "verify"
        }
        self._rows = buffer(np.arange(T - R, T, dtype=np.int64))
        self._logits = buffer(np.zeros((1, R, session.vocab_size), np.float32))
        self._taps = buffer(np.zeros((1, T, session._tap_width), np.float32))
        taps = self._taps.array[0] if session._tap_width else None
        self.output = StepOutput(self._logits.array[0], taps)
        self._bindings: dict[int, Any] = {}

    def binding(self, side: int) -> Any:
        if side not in self._bindings:
            self._bindings[side] = self._bind()
        return self._bindings[side]

    def _bind(self) -> Any:
        session = self._session
        binding = session._step_model.io_binding()
        binding.bind_ortvalue_input("tokens", self.tokens.value)
        binding.bind_ortvalue_input("rows", self._rows.value)
        if session._has_attention:
            binding.bind_ortvalue_input("last_position", session._last_position.value)
            binding.bind_ortvalue_input("total_length", session._total_length.value)
        for state in session._graphs.state:
            current = session._state[state.input]
            in_place = state.kind == "cache" or self.mode == "decode"
            after = current if in_place else session._spare[state.input]
            binding.bind_ortvalue_input(state.input, current.value)
            binding.bind_ortvalue_output(state.output, after.value)
        binding.bind_ortvalue_output("logits", self._logits.value)
        if session._tap_width:
            binding.bind_ortvalue_output("taps", self._taps.value)
        for name, stash in self.stash.items():
            binding.bind_ortvalue_output(name, stash.value)
        return binding


def load_graph(ort: Any, bundle: Bundle, name: str, threads: int | None) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # its errors are raised as ours, with their cause
    options.enable_mem_pattern = False  # a plan for every T it meets would only grow
    if "int4" not in bundle.manifest.weights_format:  # those kernels would pack at every call
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(
            str(bundle.file(name)), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime raises its own classes and plain RuntimeError
        raise BuildError(
            f"ONNX Runtime cannot load {name} of bundle {bundle.manifest.name!r}",
            cause=f"{str(error).strip()} (onnxruntime {ort.__version__})",
            hint=f"build it again: {bundle.rebuild_command}",
        ) from error
