"""DSpark and DFlash: a whole block drafted in one pass over features of the target.

The target's taps of committed tokens become rows of the draft's own KV caches (`context`). A block
of the anchor and mask tokens attends to them and gives logits for every drafted position at once
(`block`); DSpark's Markov head then corrects each position by the token drafted before it (`head`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.draft import DraftSpec
from edgekit.runtime.executors.ort_draft import OrtDraft
from edgekit.runtime.session import MAX_VERIFY, Rows
from edgekit.runtime.speculate.drafter import F32, Choose
from edgekit.runtime.speculate.window import Window

PENDING = 128
"""Taps that may wait, so that plain steps, with drafting off, cost no graph call each."""

SURVIVAL = 0.2
"""With a confidence head, drafting ends where a token would be reached less often than this."""


class BlockDrafter:
    """A `Drafter` on a draft's graphs.

    Args:
        columns: where this draft's features are in the target's taps.
    """

    def __init__(self, spec: DraftSpec, executor: OrtDraft, columns: slice) -> None:
        self.spec = spec
        self.max_tokens = min(spec.max_tokens, MAX_VERIFY - 1)
        self.executor = executor
        self._columns = columns
        self.window = Window(executor.rows, spec.sliding_window)
        self._pending: list[F32] = []
        self._waiting = 0  # rows pending, those that will be dropped too

    def observe(self, tokens: Sequence[int], taps: F32 | None) -> None:
        if taps is None:
            raise ValueError("a block draft needs the target's taps")
        self._pending.append(taps[-self.window.size :, self._columns].copy())
        self._waiting += len(tokens)
        if self._waiting > PENDING:
            self._flush()

    def propose(self, anchor: int, k: int, choose: Choose) -> list[int]:
        self._flush()
        spec, executor = self.spec, self.executor
        count, predicting = spec.rows(k)
        call = executor.call("block", count, len(predicting))
        tokens = call.inputs["tokens"]
        tokens[:] = spec.mask_token_id
        tokens[0] = anchor
        call.inputs["rows"][:] = predicting
        call.inputs["cos"][:], call.inputs["sin"][:] = spec.rope.angles(self.window.position, count)
        call.run(self.window.length)
        base, hidden = call.outputs["base"], call.outputs["hidden"]
        if not executor.has("head"):
            return [choose(row) for row in base]
        return self._corrected(anchor, base, hidden, choose)

    def _corrected(self, anchor: int, base: F32, hidden: F32, choose: Choose) -> list[int]:
        """Draws left to right, each row corrected by the token before it."""
        head = self.executor.call("head")
        given, found = head.inputs, head.outputs
        if "state" in given:
            given["state"][...] = 0
        drafted: list[int] = []
        survives = 1.0
        token = anchor
        for i, row in enumerate(base):
            given["tokens"][0] = token
            given["base"][0] = row
            if "hidden" in given:
                given["hidden"][0] = hidden[i]
            head.run()
            if "confidence" in found:  # of what was drafted before and of no draw to come
                survives *= float(found["confidence"][0, 0])
                if survives < SURVIVAL and drafted:
                    break
            token = choose(found["logits"][0])
            drafted.append(token)
            if "state" in given:
                given["state"][...] = found["state_out"]
        return drafted

    def read_rows(self, first: int) -> Rows:
        """The position of the first row there is, and rows of each cache."""
        self._flush()
        start, at = self.window.from_token(first)
        return (np.array([start]), *self.executor.read_rows(at, self.window.length))

    def resume(self, tokens: Sequence[int], parts: Sequence[tuple[int, Rows]]) -> None:
        self.reset()
        ends = [first for first, _ in parts[1:]] + [len(tokens)]
        for (_, (start, *rows)), end in zip(parts, ends, strict=True):
            position = int(start[0])
            count = end - position
            self.window.go_to(position)
            self._make_room(count)
            self.executor.write_rows(self.window.length, [part[..., :count, :] for part in rows])
            self.window.add(count)

    def reset(self) -> None:
        self._pending.clear()
        self._waiting = 0
        self.window.clear()

    def close(self) -> None:
        self.executor.close()

    def _flush(self) -> None:
        """Turns the taps that wait into rows of the caches."""
        if not self._waiting:
            return
        features = np.concatenate(self._pending)[-self.window.size :]
        T = len(features)
        self.window.skip(self._waiting - T)
        self._pending.clear()
        self._waiting = 0
        call = self.executor.call("context", T)
        call.inputs["taps"][:] = features
        angles = self.spec.rope.angles(self.window.position, T)
        call.inputs["cos"][:], call.inputs["sin"][:] = angles
        call.run()
        self._make_room(T)
        self.executor.store(self.window.length, call.outputs)
        self.window.add(T)

    def _make_room(self, count: int) -> None:
        moved = self.window.make_room(count)
        if moved is not None:
            self.executor.move(*moved)
