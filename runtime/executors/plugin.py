"""A session of a `plugin`-lowered bundle: edgekit's CUDA kernels, launched one after another or
carried by engines (plugin_engines.py).

Tokens, the sequence's length and how many rows to commit are on the device, sent in one small copy
before a step; nothing else waits for the host until the logits are read. Weights are loaded once,
as they lie in the weights file. Recurrent state is one piece of memory for all layers, so that a
commit is one launch and a snapshot two copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.kernels.mamba2 import STASH_ROWS
from edgekit.kernels.nodes import ARRIVALS, tap_name
from edgekit.kernels.sampling import random_words, sampling_words
from edgekit.runtime.executors.plugin_graph import Graph, Tensor, read_graph
from edgekit.runtime.executors.program import (
    ALIGNMENT,
    Device,
    LaunchPrograms,
    Part,
    Programs,
    Store,
    View,
)
from edgekit.runtime.sampling import check_best
from edgekit.runtime.session import MAX_VERIFY, Draw, Rows, Snapshot, StepOutput, check_tokens

WEIGHTS = "weights/weights.bin"

F32 = npt.NDArray[np.float32]
Mode = Literal["step", "verify"]
Chooser = Literal["pick", "draw"]

_LENGTH, _N, _SETTINGS, _RANDOM = 0, 4, 8, 12
_CHOSEN = _RANDOM + 4 * (1 + MAX_VERIFY)
_TOKENS = _CHOSEN + MAX_VERIFY
"""Where these stand in the control words: each 16-byte aligned. Random words are those of the
target's rows and of each drafted token. What is chosen behind a verify step's tokens is before
them, so that one read brings both."""


def graph_files(bundle: Bundle) -> dict[str, str]:
    """The graphs of a bundle by kind."""
    names = bundle.manifest.target
    files = {
        "step": names.step,
        "verify": names.verify,
        "prefill": names.prefill,
        "head": names.head,
        "pick": names.pick,
        "draw": names.draw,
        "judge": names.judge,
        "commit": names.commit,
    }
    return {kind: name for kind, name in files.items() if name is not None}


class PluginSession:
    """A `Session` on a device.

    Args:
        programs: what runs the graphs; None launches their kernels one by one.
    """

    def __init__(self, bundle: Bundle, device: Store, programs: Programs | None = None) -> None:
        manifest, spec = bundle.manifest, bundle.spec
        self.vocab_size = spec.vocab_size
        self.capacity = manifest.context
        self.prefill_chunk = manifest.prefill_chunk
        self.length = 0
        self.device = device
        names = manifest.target
        self._graphs: dict[str, Graph] = {
            kind: read_graph(bundle.file(name)) for kind, name in graph_files(bundle).items()
        }
        self.draft_graphs: dict[str, dict[str, Graph]] = {
            draft.kind: {name: read_graph(bundle.file(file)) for name, file in draft.graphs.items()}
            for draft in manifest.drafts
        }
        self._bound = self._weights(bundle)
        self._recurrent: list[Any] = []
        self._caches: list[View] = []
        self._allocate_state(bundle)
        self._array("arrivals", (ARRIVALS,), "int32")
        most = max(MAX_VERIFY, self.prefill_chunk)
        self._control = self._array("control", (_TOKENS + most,), "int32")
        self.chosen = View(self._control.memory, 4 * _CHOSEN, (MAX_VERIFY,), "int32")
        self._bound["length"] = View(self._control.memory, 4 * _LENGTH, (1,), "int32")
        self._bound["n"] = View(self._control.memory, 4 * _N, (1,), "int32")
        self._hidden = self._array("hidden", (most, spec.hidden_size), "float32")
        self._logits = self._array("logits", (MAX_VERIFY, spec.vocab_size), "float32")
        for name in (tap_name(layer, spec) for layer in names.tap_layers):
            if name not in self._bound:
                self._array(name, (most, spec.hidden_size), "float32")
        self.taps = [self._bound[tap_name(layer, spec)] for layer in names.tap_layers]
        self._host_taps = bool(self.taps) and not manifest.drafts  # else they stay on the device
        self.tap_row = 0  # where `step_choose` leaves its taps: rows before it are still wanted
        self.before_taps: Callable[[], None] = _nothing  # other runs overwrite those rows

        self.runs = programs or LaunchPrograms(cast(Device, device))
        for kind, graph in self._graphs.items():
            tokens = most if kind == "prefill" else MAX_VERIFY
            self.runs.add(kind, graph, tokens, self._bound_names(kind))
        self._programs: dict[tuple[Mode, int, int, Chooser | None], Callable[[], None]] = {}
        self._prefill_program: Callable[[], None] | None = None
        self._replay: Callable[[], None] | None = None
        if "commit" in self._graphs:
            self._replay = self.runs.ready([self._part("commit", MAX_VERIFY)])
        self._pending: int | None = None  # tokens of the verify step that commit will settle

    # -- the contract

    def step(self, tokens: Sequence[int], *, logits: Literal["last", "all"] = "last") -> StepOutput:
        self._check(tokens, max(self.prefill_chunk, MAX_VERIFY))
        if len(tokens) > self.runs.most("step"):
            output = self._prefill(tokens, len(tokens) if logits == "all" else 1)
        else:
            output = _copy(self._run("step", tokens, len(tokens) if logits == "all" else 1))
        self.length += len(tokens)
        return output

    def step_choose(self, token: int, draw: Draw | None) -> int:
        self._check((token,), MAX_VERIFY)
        (chosen,) = self._choose("step", (token,), draw)
        self.length += 1
        return chosen

    def verify_choose(self, tokens: Sequence[int], draw: Draw | None) -> list[int]:
        self._check(tokens, MAX_VERIFY)
        self.before_taps()
        chosen = self._choose("verify", tokens, draw)
        self._pending = len(tokens)
        return chosen

    def _choose(self, mode: Mode, tokens: Sequence[int], draw: Draw | None) -> list[int]:
        T, at = len(tokens), self.tap_row
        chooser: Chooser = "pick" if draw is None else "draw"
        program = self._programs.get((mode, T, at, chooser))
        if program is None:
            program = self.runs.ready([*self._parts(mode, T, T, at), self._chosen_by(chooser, T)])
            self._programs[mode, T, at, chooser] = program
        self._send(tokens, draw)
        program()
        chosen: list[int] = self.device.read(self.chosen.rows(0, T)).tolist()
        check_best(min(chosen))
        return chosen

    def verify(self, tokens: Sequence[int]) -> StepOutput:
        if len(tokens) > MAX_VERIFY:
            raise ValueError(f"verify takes at most {MAX_VERIFY} tokens, not {len(tokens)}")
        self._check(tokens, MAX_VERIFY)
        output = self._run("verify", tokens, len(tokens))
        self._pending = len(tokens)
        return output

    def commit(self, n: int) -> None:
        T = self._pending
        if T is None or not 0 <= n <= T:
            raise ValueError(f"commit({n}) does not follow a verify step of at least {n} tokens")
        self._pending = None
        if n and self._replay is not None:
            self.device.write(self._bound["n"], np.array([n], np.int32))
            self._replay()
        self.length += n

    def snapshot(self) -> Snapshot:
        self._require_settled()
        copies = tuple(self.device.copy_of(memory) for memory in self._recurrent)
        return Snapshot(self.length, copies)

    def restore(self, snapshot: Snapshot) -> None:
        for memory, copy in zip(self._recurrent, snapshot.arrays, strict=True):
            self.device.copy(copy, memory)
        self.length = snapshot.length
        self._pending = None

    def read_rows(self, first: int, last: int) -> Rows:
        return tuple(self.device.read_rows(cache, first, last) for cache in self._caches)

    def write_rows(self, first: int, rows: Rows, skip: int = 0) -> None:
        for cache, part in zip(self._caches, rows, strict=True):
            self.device.write_rows(cache, first + skip, part[:, skip:])

    def to_host(self, snapshot: Snapshot) -> Rows:
        views = [View(memory, 0, (1, memory.nbytes, 1), "uint8") for memory in snapshot.arrays]
        return tuple(self.device.read_rows(view, 0, view.nbytes).reshape(-1) for view in views)

    def from_host(self, length: int, arrays: Rows) -> Snapshot:
        expected = [(memory.nbytes,) for memory in self._recurrent]
        if [array.shape for array in arrays] != expected:
            raise ValueError("the state is of another model")
        memories = tuple(self.device.allocate(array.nbytes) for array in arrays)
        for memory, array in zip(memories, arrays, strict=True):
            self.device.write(View(memory, 0, array.shape, "uint8"), array)
        return Snapshot(length, memories)

    def reset(self) -> None:
        for memory in self._recurrent:
            self.device.fill_zero(memory)
        self.length = 0
        self._pending = None

    def close(self) -> None:
        self._programs.clear()
        self._bound.clear()
        self._recurrent.clear()
        self._prefill_program = self._replay = self._pending = None

    # -- memory

    def _array(self, name: str, shape: tuple[int, ...], dtype: str) -> View:
        """An array of its own, full of zeros."""
        nbytes = View(None, 0, shape, dtype).nbytes
        view = self._bound[name] = View(self.device.allocate(nbytes), 0, shape, dtype)
        return view

    def _weights(self, bundle: Bundle) -> dict[str, View]:
        """Loads the weights file as it is, and the small weights of the graph files behind it."""
        tensors: dict[str, Tensor] = {}
        drafts = (graph for graphs in self.draft_graphs.values() for graph in graphs.values())
        for graph in (*self._graphs.values(), *drafts):
            tensors |= graph.weights
        entry = bundle.manifest.files.get(WEIGHTS)
        memory = None
        if entry is not None and entry.nbytes:
            memory = self.device.allocate(entry.nbytes)
            self.device.write_file(memory, bundle.file(WEIGHTS))
        small = {name: tensor for name, tensor in tensors.items() if tensor.offset is None}
        inline = b""
        offsets = {}
        for name, tensor in small.items():
            offsets[name] = len(inline)
            inline += tensor.data + bytes(-len(tensor.data) % ALIGNMENT)
        beside = self.device.allocate(len(inline))
        if inline:
            whole = View(beside, 0, (len(inline),), "uint8")
            self.device.write(whole, np.frombuffer(inline, np.uint8))
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
                self._caches.append(self._array(name, state.shape, state.dtype))
        for kind, names in by_kind.items():
            shape, dtype = states[names[0]].shape, states[names[0]].dtype
            whole = self._array(kind, (len(names), *shape), dtype)
            self._recurrent.append(whole.memory)
            for i, name in enumerate(names):
                self._bound[name] = whole.at(i)
        self._stash = bundle.manifest.target.stash
        if self._stash:
            shape = (STASH_ROWS, bundle.spec.in_proj_dim)
            whole = self._array("stash", (len(self._stash), *shape), "bfloat16")
            for i, name in enumerate(self._stash):
                self._bound[name] = whole.at(i)

    # -- running

    def _bound_names(self, kind: str) -> set[str]:
        """Values of a graph that have places of their own."""
        words = {"logits", "settings", "random", "drawn"}
        own = {"head": {"hidden", "logits"}, "pick": {"logits", "best"}, "commit": set()}
        own |= {"draw": words, "judge": words | {"base", "tokens"}}
        others = own.get(kind, {"tokens", "hidden"})
        stash = () if kind in ("step", "prefill") else self._stash
        return (self._bound.keys() - set(self._stash)) | others | set(stash)

    def _part(self, kind: str, T: int, at: int = 0, **bound: View) -> Part:
        """A graph for T tokens, whose taps and hidden rows go to row `at` and on."""
        found = {name: self._bound[name] for name in self._bound_names(kind) if name in self._bound}
        if kind in ("step", "verify", "prefill"):
            found["tokens"] = View(self._control.memory, 4 * _TOKENS, (T,), "int32")
            for name in found:
                if name == "hidden" or name.startswith("tap."):
                    found[name] = found[name].rows(at, T)
                elif name in self._stash:
                    found[name] = found[name].rows(0, T)
        return Part(kind, T, found | bound)

    def _head_parts(self, hidden: View, logits: View) -> list[Part]:
        """The head for some rows, as many at a time as it takes."""
        count, most = hidden.shape[0], self.runs.most("head")
        pieces = [(at, min(most, count - at)) for at in range(0, count, most)]
        return [
            self._part("head", n, hidden=hidden.rows(at, n), logits=logits.rows(at, n))
            for at, n in pieces
        ]

    def weights_of(self, graph: Graph) -> dict[str, View]:
        """What a draft's graph takes of the loaded weights, and the counters."""
        return {name: self._bound[name] for name in (*graph.weights, "arrivals")}

    def verify_parts(self, T: int, base: View | None, drawn: bool) -> list[Part]:
        """A verify step of tokens that are on the device, and what is chosen behind each.

        Args:
            base: logits [T, V] that the drafted tokens were drawn from, if they were.
        """
        if base is None:
            last = self._chosen_by("draw" if drawn else "pick", T)
        else:
            tokens = View(self._control.memory, 4 * _TOKENS, (T,), "int32")
            given = {"base": base, "tokens": tokens, "drawn": self.chosen.rows(0, T)}
            last = self._part(
                "judge", T, 0, logits=self._logits.rows(0, T), **given, **self._words(0)
            )
        return [*self._parts("verify", T, T), last]

    def draw_draft(self, i: int, logits: View) -> Part:
        """Draws drafted token i from its logits [1, V]."""
        return self._part(
            "draw", 1, 0, logits=logits, drawn=self.token(i + 1), **self._words(i + 1)
        )

    def _words(self, i: int) -> dict[str, View]:
        """What drawing takes: for the target's rows, or with i > 0 for the i-th drafted token."""
        memory = self._control.memory
        return {
            "settings": View(memory, 4 * _SETTINGS, (4,), "int32"),
            "random": View(memory, 4 * (_RANDOM + 4 * i), (4,), "int32"),
        }

    def _parts(self, mode: Mode, T: int, rows: int, at: int = 0) -> list[Part]:
        """T tokens up to the logits of the last `rows` of them; taps go to row `at` and on."""
        hidden, logits = self._hidden.rows(at + T - rows, rows), self._logits.rows(0, rows)
        return [self._part(mode, T, at), *self._head_parts(hidden, logits)]

    def _chosen_by(self, chooser: Chooser, rows: int) -> Part:
        """A token of each row of logits: the likeliest, or one drawn."""
        logits, chosen = self._logits.rows(0, rows), self.chosen.rows(0, rows)
        if chooser == "pick":
            return self._part("pick", rows, logits=logits, best=chosen)
        return self._part("draw", rows, 0, logits=logits, drawn=chosen, **self._words(0))

    def token(self, i: int) -> View:
        """The place of a step's token number i."""
        return View(self._control.memory, 4 * (_TOKENS + i), (1,), "int32")

    def begin_verify(self, anchor: int, k: int, draw: Draw | None) -> None:
        """Sends what a verify step of the anchor and k tokens, drafted on the device, needs."""
        self._check((anchor,) * (k + 1), MAX_VERIFY)
        self.before_taps()
        self._send((anchor,), draw)
        self._pending = k + 1

    def read_round(self, k: int) -> tuple[list[int], list[int]]:
        """Waits for a verify step; its k drafted tokens, and the k + 1 that the target chose."""
        view = View(self._control.memory, 4 * _CHOSEN, (MAX_VERIFY + k + 1,), "int32")
        words = self.device.read(view).tolist()
        chosen = words[: k + 1]
        check_best(min(chosen))
        return words[MAX_VERIFY + 1 :], chosen

    def program(self, mode: Mode, T: int, rows: int) -> Callable[[], None]:
        """Runs T tokens up to the logits of the last `rows` of them."""
        program = self._programs.get((mode, T, rows, None))
        if program is None:
            program = self.runs.ready(self._parts(mode, T, rows))
            self._programs[mode, T, rows, None] = program
        return program

    def _prefill(self, tokens: Sequence[int], rows: int) -> StepOutput:
        """More tokens than a step takes. Prompts differ in length: only whole chunks are kept
        ready."""
        T, device = len(tokens), self.device
        self.before_taps()
        self._send(tokens)
        if self._prefill_program is None and self.prefill_chunk == T:
            self._prefill_program = self.runs.ready([self._part("prefill", T)])
        if self._prefill_program is not None and self.prefill_chunk == T:
            self._prefill_program()
        else:
            self.runs.run([self._part("prefill", T)])
        pieces = []
        for at in range(T - rows, T, MAX_VERIFY):
            count = min(MAX_VERIFY, T - at)
            hidden, logits = self._hidden.rows(at, count), self._logits.rows(0, count)
            self.runs.run(self._head_parts(hidden, logits))
            pieces.append(device.read(logits).copy())
        return StepOutput(np.concatenate(pieces), self._read_taps(T))

    def _send(self, tokens: Sequence[int], draw: Draw | None = None) -> None:
        """Before a run of these tokens, or of them and others that are on the device."""
        words = np.zeros(_TOKENS + len(tokens), np.int32)
        words[_LENGTH] = self.length
        words[_TOKENS:] = tokens
        if draw is not None:
            drawing = words.view(np.uint32)
            settings = sampling_words(draw.temperature, draw.top_k, draw.top_p, draw.min_p)
            drawing[_SETTINGS : _SETTINGS + 4] = settings
            numbers = [random_words(draw.seed, self.length, "text")]
            numbers += [
                random_words(draw.seed, self.length + i, "draft") for i in range(MAX_VERIFY)
            ]
            drawing[_RANDOM:_CHOSEN] = np.array(numbers, np.uint32).reshape(-1)
        self.device.write(self._control.rows(0, len(words)), words)

    def _run(self, mode: Mode, tokens: Sequence[int], rows: int) -> StepOutput:
        T = len(tokens)
        program = self.program(mode, T, rows)
        self.before_taps()
        self._send(tokens)
        program()
        logits = self.device.read(self._logits.rows(0, rows))
        return StepOutput(logits, self._read_taps(T))

    def _read_taps(self, T: int) -> F32 | None:
        if not self._host_taps:
            return None
        return np.concatenate([self.device.read(tap.rows(0, T)) for tap in self.taps], axis=1)

    def _check(self, tokens: Sequence[int], most: int) -> None:
        self._require_settled()
        check_tokens(self, tokens, most)

    def _require_settled(self) -> None:
        if self._pending is not None:
            raise ValueError("a verify step is waiting for commit")


def _copy(output: StepOutput) -> StepOutput:
    """Arrays that the next run does not overwrite."""
    return StepOutput(output.logits.copy(), output.taps.copy() if output.taps is not None else None)


def _nothing() -> None:
    pass
