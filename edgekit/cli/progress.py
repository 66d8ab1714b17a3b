"""How a build shows its progress on stderr: a bar, plain lines, or JSON lines."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from edgekit.cli.output import SCHEMA_VERSION, out
from edgekit.units import size_text

if TYPE_CHECKING:
    from edgekit.export.build import BuildEvent

Mode = Literal["auto", "plain", "json"]
Sink = Callable[["BuildEvent"], None]

_LABELS = {
    "read": "reading the checkpoint",
    "weights": "writing weights",
    "golden": "computing golden logits",
    "finish": "finishing",
}
_PLAIN_SECONDS = 5.0


@contextmanager
def build_progress(mode: Mode) -> Iterator[Sink]:
    """A sink for build events. `auto` is a bar on a terminal and plain lines elsewhere;
    EDGEKIT_NO_PROGRESS turns the bar off."""
    if mode == "json":
        yield _json_line
    elif mode == "auto" and out.stderr.isatty() and not os.environ.get("EDGEKIT_NO_PROGRESS"):
        with _bar() as sink:
            yield sink
    else:
        yield _PlainLines()


def _json_line(event: BuildEvent) -> None:
    record = {"schema_version": SCHEMA_VERSION, "type": "progress", **dataclasses.asdict(event)}
    out.note(json.dumps(record))


class _PlainLines:
    """One line when a step ends, and one every few seconds while it takes long."""

    def __init__(self) -> None:
        self._step = ""
        self._said = 0.0

    def __call__(self, event: BuildEvent) -> None:
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
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[amount]:>22}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, int] = {}

        def sink(event: BuildEvent) -> None:
            if event.step not in tasks:
                label = _LABELS.get(event.step, event.step)
                tasks[event.step] = progress.add_task(label, amount="")
            progress.update(
                tasks[event.step],  # type: ignore[arg-type]
                completed=event.done,
                total=event.total,
                amount=_amount(event),
            )

        yield sink


def _amount(event: BuildEvent) -> str:
    if event.unit == "bytes":
        return f"{size_text(event.done)} of {size_text(event.total)}"
    if event.total == 1:
        return event.detail or "done"
    return f"{event.done} of {event.total} {event.unit}"
