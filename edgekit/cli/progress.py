"""How long work shows its progress on stderr: a bar, plain lines, or JSON lines."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from edgekit.cli.output import SCHEMA_VERSION, out
from edgekit.units import size_text

Mode = Literal["auto", "plain", "json"]


class Event(Protocol):
    """`done` of `total` in `unit` of one step; a build's events are of this kind."""

    @property
    def step(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Step:
    """An event of work that has no events of its own."""

    step: str
    done: int
    total: int
    unit: str
    detail: str = ""


Sink = Callable[[Event], None]

_LABELS = {
    "quantize": "quantizing",
    "read": "reading the checkpoint",
    "weights": "writing weights",
    "golden": "computing golden logits",
    "engine": "building engines",
    "engines": "engine",
    "finish": "finishing",
    "errors": "comparing weights",
    "ask": "asking questions",
    "hashes": "checking files",
    "bench": "measuring",
}
_PLAIN_SECONDS = 5.0


@contextmanager
def show_progress(mode: Mode) -> Iterator[Sink]:
    """A sink for events. `auto` is a bar on a terminal and plain lines elsewhere;
    EDGEKIT_NO_PROGRESS turns the bar off."""
    if mode == "json":
        yield _json_line
    elif mode == "auto" and out.stderr.isatty() and not os.environ.get("EDGEKIT_NO_PROGRESS"):
        with _bar() as sink:
            yield sink
    else:
        yield _PlainLines()


def _json_line(event: Event) -> None:
    names = ("step", "done", "total", "unit", "detail")
    fields = {name: getattr(event, name) for name in names}
    record = {"schema_version": SCHEMA_VERSION, "type": "progress", **fields}
    out.note(json.dumps(record))


class _PlainLines:
    """One line when a step ends, and one every few seconds while it takes long."""

    def __init__(self) -> None:
        self._step = ""
        self._said = 0.0

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event.step != self._step:
            self._step, self._said = event.step, now
        if event.done >= event.total or now - self._said >= _PLAIN_SECONDS:
            self._said = now
            label = _LABELS.get(event.step, event.step)
            out.note(f"{label}: {_amount(event)}")


@contextmanager
def _bar() -> Iterator[Sink]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[amount]:>22}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def sink(event: Event) -> None:
            if event.step not in tasks:
                label = _LABELS.get(event.step, event.step)
                tasks[event.step] = progress.add_task(label, amount="")
            progress.update(
                tasks[event.step],
                completed=event.done,
                total=event.total,
                amount=_amount(event),
            )

        yield sink


def _amount(event: Event) -> str:
    if event.unit == "bytes":
        return f"{size_text(event.done)} of {size_text(event.total)}"
    if event.total == 1:
        return event.detail or "done"
    return f"{event.done} of {event.total} {event.unit}"
