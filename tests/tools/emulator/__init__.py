"""Runs the CUDA kernels of export/plugins on the CPU; see emulator.h for what that proves."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.kernels.launch import Kernel, Launch

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "export" / "plugins"
CANARY = 64
"""Guard bytes on both sides of every array."""


class EmulatorError(AssertionError):
    """The kernel hung, or wrote outside its arrays."""


def run(
    launch: Launch, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], *, seed: int = 0
) -> None:
    """Runs one launch; `outputs`, which may also be among the inputs, are changed in place.

    Raises:
        EmulatorError: a thread waits for ever, or a byte beside an array or of an input changed.
    """
    arrays = [*inputs, *outputs]
    written = {id(array) for array in outputs}
    guarded = {id(array): _Guarded(array) for array in arrays}
    pointers = [guarded[id(array)].address for array in arrays]
    integers = [int(value) & 0xFFFFFFFF for value in launch.integers]
    values = [*pointers[: len(inputs)], *integers, *pointers[len(inputs) :]]
    library = _compile(launch.kernel)
    status = library.emulator_launch(
        ctypes.cast(getattr(library, launch.kernel.name), ctypes.c_void_p),
        len(values),
        (ctypes.c_uint64 * len(values))(*values),
        *(int(size) for size in launch.grid),
        launch.block,
        int(launch.shared),
        seed,
    )
    if status:
        raise EmulatorError(f"{launch.kernel.key}: did not finish (see stderr)")
    for array in arrays:
        guarded[id(array)].settle(array, written=id(array) in written, key=launch.kernel.key)


class _Guarded:
    """A copy of an array between two canaries."""

    def __init__(self, array: np.ndarray) -> None:
        assert array.flags.c_contiguous
        # A kernel may read and write whole 16-byte words, so the copy is aligned like GPU memory.
        self.memory = np.full(array.nbytes + 2 * CANARY + 256, 0xA5, dtype=np.uint8)
        start = CANARY + -(self.memory.ctypes.data + CANARY) % 256
        self.inside = slice(start, start + array.nbytes)
        self.memory[self.inside] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.address = self.memory.ctypes.data + start

    def settle(self, array: np.ndarray, *, written: bool, key: str) -> None:
        outside = np.ones(self.memory.size, dtype=bool)
        outside[self.inside] = False
        if (self.memory[outside] != 0xA5).any():
            raise EmulatorError(f"{key}: wrote outside an array {array.shape} {array.dtype}")
        flat = array.reshape(-1).view(np.uint8)
        if written:
            flat[:] = self.memory[self.inside]
        elif (flat != self.memory[self.inside]).any():
            raise EmulatorError(f"{key}: wrote to an input {array.shape} {array.dtype}")


@functools.cache
def _compile(kernel: Kernel) -> Any:
    headers = [HERE / "emulator.h", *sorted(SOURCES.glob("*.cuh")), SOURCES / kernel.source]
    digest = hashlib.sha256(kernel.key.encode() + b"".join(p.read_bytes() for p in headers))
    folder = Path(tempfile.gettempdir()) / "edgekit-emulator"
    folder.mkdir(exist_ok=True)
    library = folder / f"{digest.hexdigest()[:24]}.so"
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}.part")
        command = ["g++", "-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w"]
        command += ["-DEDGEKIT_EMULATOR", f"-I{HERE}", f"-I{SOURCES}"]
        command += [f"-D{name}={value}" for name, value in kernel.defines]
        command += [str(SOURCES / kernel.source), "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EmulatorError(f"{kernel.key} does not compile:\n{done.stderr}")
        partial.rename(library)
    return ctypes.CDLL(str(library))
