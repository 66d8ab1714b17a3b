"""How a kernel is launched: the one description that every executor evaluates.

A launch is a pure function of shapes. Its sizes are integers for the torch executor and TensorRT's
symbolic sizes for an ahead-of-time plugin, so the functions that make one use only ``+ - * //``
on whatever depends on the number of tokens.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

MAX_SHARED = 48 << 10
"""Bytes of shared memory of a block unless a launcher raises the kernel's limit."""

Size = Any
"""An int, or a symbolic size of TensorRT that adds, multiplies and floor-divides like one."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled function: a source file and what it is specialised for.

    Attributes:
        source: file under export/plugins.
        name: the `extern "C"` function.
        defines: preprocessor constants, which are part of the kernel's identity.
    """

    source: str
    name: str
    defines: tuple[tuple[str, int | str], ...] = ()

    @property
    def key(self) -> str:
        """A name that differs whenever the compiled code may."""
        return " ".join([self.source, self.name, *(f"{k}={v}" for k, v in self.defines)])


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel. Arguments are its input pointers, `integers`, its output pointers.

    Attributes:
        grid: blocks in x, y, z. block: threads, a multiple of 32. shared: dynamic shared memory,
            bytes; above 48 KiB the launcher raises the kernel's limit first.
        integers: the int32 arguments.
    """

    kernel: Kernel
    grid: tuple[Size, Size, Size]
    block: int
    shared: int = 0
    integers: tuple[Size, ...] = ()


def defines(**values: int | str) -> tuple[tuple[str, int | str], ...]:
    """Preprocessor constants in a fixed order."""
    return tuple(sorted(values.items()))


def divide_up(a: Size, b: int) -> Size:
    """ceil(a / b) in the operators a symbolic size has."""
    return (a + (b - 1)) // b


def float_bits(value: float) -> int:
    """A float as the int32 argument that carries its bits."""
    bits: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return bits
