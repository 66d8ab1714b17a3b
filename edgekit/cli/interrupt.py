"""Ctrl-C while a model speaks: the first asks it to stop, the second ends the program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed."""

    requested = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within the block Ctrl-C sets `requested`, so that a step ends whole; pressed again it raises
    KeyboardInterrupt."""
    interrupt = Interrupt()

    def handle(signum: int, frame: FrameType | None) -> None:
        if interrupt.requested:
            raise KeyboardInterrupt
        interrupt.requested = True

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
