"""A DSpark draft on the device of a `PluginSession`.

The draft's caches, the target's taps and the drafted tokens never leave the device. A round, from
the anchor to what the target chose for every drafted token, is one program: block, Markov head and
choice of each token, verify step, choice. The host sends an anchor and reads tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgekit.bundle import Bundle
from edgekit.draft import CONFIG, load_draft_spec
from edgekit.kernels.nodes import tap_name
from edgekit.manifest import DraftGraphs
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.program import ALIGNMENT, Part, View
from edgekit.runtime.session import MAX_VERIFY, Draw, Rows
from edgekit.runtime.speculate.drafter import F32, Choose
from edgekit.runtime.speculate.window import Window

_LENGTH, _TOKENS, _ANGLES = 0, ALIGNMENT, 2 * ALIGNMENT
"""Bytes where these stand in the control block."""


class PluginDraft:
    """A `Drafter` beside a session, which must not run anything between a step and `observe`."""

    def __init__(self, session: PluginSession, bundle: Bundle, graphs: DraftGraphs) -> None:
        self.spec = spec = load_draft_spec(bundle.file(CONFIG))
        self.max_tokens = min(spec.max_tokens, MAX_VERIFY - 1)
        self._session, self._device = session, session.device
        self._graphs = session.draft_graphs[graphs.kind]
        target = bundle.spec
        self._caches = {
            state.input: self._array(state.shape, state.dtype) for state in graphs.state
        }
        rows = graphs.state[0].shape[-2]
        self.window = Window(rows, spec.sliding_window)
        self._taps = [tap_name(layer, target) for layer in graphs.tap_layers]
        at = bundle.manifest.target.tap_layers.index(graphs.tap_layers[0])
        self._features = session.taps[at : at + len(graphs.tap_layers)]
        self._hidden = self._array((MAX_VERIFY, spec.hidden_size), "float32")
        self._base = self._array((MAX_VERIFY, spec.vocab_size), "float32")
        half = spec.head_dim // 2
        turn = 4 * MAX_VERIFY * half
        memory = self._device.allocate(_ANGLES + 2 * turn)
        self._control = View(memory, 0, (_ANGLES + 2 * turn,), "uint8")
        self._length = View(memory, _LENGTH, (1,), "int32")
        self._tokens = View(memory, _TOKENS, (MAX_VERIFY,), "int32")
        self._cos = View(memory, _ANGLES, (MAX_VERIFY, half), "float32")
        self._sin = View(memory, _ANGLES + turn, (MAX_VERIFY, half), "float32")
        own = {"context": (), "block": ("draft_hidden",), "base": ("base",)}
        own |= {"head": ("logits", "best")}
        inputs = {"tokens", "length", "cos", "sin", "base", "draft_hidden", *self._taps}
        inputs |= {*self._caches, *self._layer_caches()}
        self._kind = graphs.kind
        for name, graph in self._graphs.items():
            bound = {*session.weights_of(graph), *inputs, *own[name]}
            session.runs.add(f"{self._kind}.{name}", graph, MAX_VERIFY, bound)
        self._programs: dict[tuple[str, int, int], Callable[[], None]] = {}
        self._waiting = 0  # rows of single steps whose taps were not taken yet
        session.before_taps = self._flush

    # -- the drafter

    def observe(self, tokens: Sequence[int], taps: F32 | None) -> None:
        """The session's last step, or verify step, began with these tokens.

        Taps of single steps gather in rows of their own until there are eight, or something else
        is to run: with drafting off a step costs no launch more.
        """
        T = len(tokens)
        if T == 1:
            self._waiting += 1
            self._session.tap_row = self._waiting % MAX_VERIFY
            if self._waiting == MAX_VERIFY:
                self._flush()
            return
        first = max(0, T - self.window.size)
        self.window.skip(first)
        for at in range(first, T, MAX_VERIFY):
            self._extend(at, min(MAX_VERIFY, T - at))

    def _flush(self) -> None:
        """Takes the taps that wait."""
        count, self._waiting, self._session.tap_row = self._waiting, 0, 0
        if count:
            self._extend(0, count)

    def _extend(self, at: int, count: int) -> None:
        """Adds the tokens whose taps are in these rows."""
        self._make_room(count)
        self._send(self.window.position, count)
        self._program("context", count, at)()
        self.window.add(count)

    def round(self, anchor: int, k: int, draw: Draw | None) -> tuple[list[int], list[int]]:
        """See `DeviceDrafter.round`."""
        self._session.begin_verify(anchor, k, draw)
        self._send(self.window.position, k + 1, anchor)
        name = "greedy" if draw is None else "drawn" if draw.drafts else "seeded"
        self._program(name, k, 0)()
        return self._session.read_round(k)

    def propose(self, anchor: int, k: int, choose: Choose) -> list[int]:
        """Drafts tokens that the host draws: logits are read for each."""
        self._flush()
        self._send(self.window.position, k + 1, anchor)
        self._program("block", k, 0)()
        drafted: list[int] = []
        token = anchor
        for i in range(k):
            self._device.write(self._session.token(i), np.array([token], np.int32))
            self._program("head", i, 0)()
            token = choose(self._device.read(self._base.rows(i, 1))[0])
            drafted.append(token)
        return drafted

    def read_rows(self, first: int) -> Rows:
        """The position of the first row there is, and rows of each cache as bytes."""
        self._flush()
        start, at = self.window.from_token(first)
        end = self.window.length
        rows = [self._device.read_rows(self._flat(c), at, end) for c in self._caches.values()]
        return (np.array([start]), *rows)

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        self.reset()
        ends = [first for first, _ in parts[1:]] + [len(tokens)]
        for (_, (start, *rows)), end in zip(parts, ends, strict=True):
            position = int(start[0])
            count = end - position
            self.window.go_to(position)
            self._make_room(count)
            for cache, part in zip(self._caches.values(), rows, strict=True):
                self._device.write_rows(self._flat(cache), self.window.length, part[:, :count])
            self.window.add(count)

    def reset(self) -> None:
        self._waiting = self._session.tap_row = 0
        self.window.clear()

    def close(self) -> None:
        self._programs.clear()
        self._caches.clear()

    # -- running

    def _send(self, position: int, rows: int, anchor: int = 0) -> None:
        """Length, block tokens and angles, in one copy."""
        half = self.spec.head_dim // 2
        words = np.zeros(self._control.nbytes, np.uint8)
        words[_LENGTH : _LENGTH + 4] = np.array([self.window.length], np.int32).view(np.uint8)
        block = np.full(MAX_VERIFY, self.spec.mask_token_id, np.int32)
        block[0] = anchor
        words[_TOKENS : _TOKENS + block.nbytes] = block.view(np.uint8)
        for view, angles in zip(
            (self._cos, self._sin), self.spec.rope.angles(position, rows), strict=True
        ):
            raw = angles.reshape(-1).view(np.uint8)
            words[view.offset : view.offset + 4 * rows * half] = raw
        self._device.write(self._control, words)

    def _program(self, name: str, count: int, at: int) -> Callable[[], None]:
        key = (name, count, at)
        program = self._programs.get(key)
        if program is None:
            program = self._session.runs.ready(self._parts(name, count, at))
            if name != "context" or at == 0:  # a prompt's later rows come once
                self._programs[key] = program
        return program

    def _parts(self, name: str, count: int, at: int) -> list[Part]:
        if name == "context":
            taps = zip(self._taps, self._features, strict=True)
            return self._arrange(
                "context",
                count,
                **{tap: view.rows(at, count) for tap, view in taps},
                **self._caches,
            )
        if name == "head":
            return self._head(count, self._session.token(count + 1))
        k = count
        _, predicting = self.spec.rows(k)
        first = predicting[0]
        hidden = self._hidden.rows(0, first + k)
        parts = self._arrange(
            "block",
            first + k,
            tokens=self._tokens.rows(0, first + k),
            draft_hidden=hidden,
            **self._layer_caches(),
        )
        parts += self._arrange(
            "base", k, draft_hidden=hidden.rows(first, k), base=self._base.rows(0, k)
        )
        if name == "block":
            return parts
        session = self._session
        for i in range(k):
            parts += self._head(i, session.token(i + 1))
            if name == "drawn":  # in place of the likeliest
                parts.append(session.draw_draft(i, self._base.rows(i, 1)))
        base = self._base.rows(0, k + 1) if name == "drawn" else None
        return parts + session.verify_parts(k + 1, base, name != "greedy")

    def _head(self, i: int, best: View) -> list[Part]:
        """Corrects row i of the block's logits in place by the token before it."""
        row = self._base.rows(i, 1)
        before = self._session.token(i)
        return self._arrange("head", 1, tokens=before, base=row, logits=row, best=best)

    def _arrange(self, name: str, T: int, **bound: View) -> list[Part]:
        graph = self._graphs[name]
        given = self._session.weights_of(graph)
        given |= {"length": self._length, "cos": self._cos.rows(0, T), "sin": self._sin.rows(0, T)}
        return [Part(f"{self._kind}.{name}", T, given | bound)]

    def _make_room(self, count: int) -> None:
        moved = self.window.make_room(count)
        if moved is not None:
            for cache in self._caches.values():
                self._device.move_rows(self._flat(cache), *moved)

    def _array(self, shape: tuple[int, ...], dtype: str) -> View:
        return View(self._device.allocate(View(None, 0, shape, dtype).nbytes), 0, shape, dtype)

    def _layer_caches(self) -> dict[str, View]:
        return {
            f"{name}.{i}": cache.at(i)
            for name, cache in self._caches.items()
            for i in range(self.spec.num_hidden_layers)
        }

    @staticmethod
    def _flat(cache: View) -> View:
        """[layers x kv heads, rows, head_dim]."""
        layers, kv, *rest = cache.shape
        return View(cache.memory, cache.offset, (layers * kv, *rest), cache.dtype)
