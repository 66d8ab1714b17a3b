"""PyTorch's memory and streams, and the CUDA driver's launches, for `PluginSession`.

Everything runs on one stream. A program is captured into a CUDA graph the first time it runs, so a
step costs the host one replay; launches may start while the one before them ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.errors import BundleError, MissingDependencyError
from edgekit.kernels.launch import Kernel
from edgekit.manifest import KERNELS
from edgekit.runtime.executors.cuda import Function
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.program import Call, View

PIECE = 64 << 20
"""Bytes of the weights file on their way at once; two such pieces are in pinned memory."""


def open_torch_session(bundle: Bundle) -> PluginSession:
    """Loads a `plugin` bundle onto this machine's GPU.

    Raises:
        MissingDependencyError: PyTorch, the CUDA bindings or a GPU is missing.
        BundleError: the kernels are for another GPU, or of another edgekit.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "PyTorch is not installed",
            cause=str(error),
            hint="pip install 'edgekit-nemotron[cuda]'",
        ) from None
    if not torch.cuda.is_available():
        raise MissingDependencyError(
            f"bundle {bundle.manifest.name!r} needs an NVIDIA GPU",
            cause="PyTorch finds none",
            hint="build it for this machine's CPU: edgekit build MODEL --device cpu",
        )
    major, minor = torch.cuda.get_device_capability()
    _check_sm(bundle, 10 * major + minor)
    return PluginSession(bundle, TorchDevice(kernel_loader(bundle)))


def kernel_loader(bundle: Bundle) -> Callable[[Kernel], bytes]:
    """Finds a kernel's machine code in the bundle."""
    path = bundle.file(KERNELS)
    index: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}

    def load(kernel: Kernel) -> bytes:
        if kernel.key not in index:
            raise BundleError(
                f"bundle {bundle.manifest.name!r} has no kernel {kernel.name!r} as this edgekit "
                "launches it",
                cause="it was built by another version of edgekit",
                hint=f"build it again: {bundle.rebuild_command}",
            )
        return bundle.file(index[kernel.key]).read_bytes()

    return load


def _check_sm(bundle: Bundle, sm: int) -> None:
    built = bundle.manifest.versions.get("sm")
    if built != str(sm):
        raise BundleError(
            f"bundle {bundle.manifest.name!r} is for sm_{built}, and this GPU is sm_{sm}",
            hint=f"build it again here: {bundle.rebuild_command}",
        )


class TorchDevice:
    """A GPU, or for tests of its memory PyTorch's `cpu`, which launches nothing.

    Args:
        load: machine code of a kernel.
    """

    def __init__(self, load: Callable[[Kernel], bytes], kind: str = "cuda") -> None:
        import torch

        self._torch, self._load, self._kind = torch, load, kind
        self._stream: Any = None
        if kind == "cuda":
            torch.zeros(1, device=kind)  # makes PyTorch's context the driver's current one
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._functions: dict[Kernel, Function] = {}
        self._landing: dict[tuple[int, int], Any] = {}  # host memory that reads arrive in

    # -- memory: tensors of bytes

    def allocate(self, nbytes: int) -> Any:
        with self._on_stream():
            return self._torch.zeros(nbytes, dtype=self._torch.uint8, device=self._kind)

    def copy_of(self, memory: Any) -> Any:
        with self._on_stream():
            return memory.clone()

    def copy(self, source: Any, target: Any) -> None:
        with self._on_stream():
            target.copy_(source)

    def fill_zero(self, memory: Any) -> None:
        with self._on_stream():
            memory.zero_()

    def write(self, view: View, data: npt.NDArray[Any]) -> None:
        # The driver keeps a copy of what comes from memory that is not pinned.
        raw = self._torch.from_numpy(data.reshape(-1).view(np.uint8).copy())
        with self._on_stream():
            _bytes(view).copy_(raw, non_blocking=True)

    def write_file(self, memory: Any, path: Path) -> None:
        torch = self._torch
        pinned = self._kind == "cuda"
        pieces = [
            torch.empty(min(PIECE, memory.nbytes), dtype=torch.uint8, pin_memory=pinned)
            for _ in range(2)
        ]
        sent: list[Any] = [None, None]  # what says that a piece has left
        with path.open("rb", buffering=0) as file, self._on_stream():
            for number, start in enumerate(range(0, memory.nbytes, PIECE)):
                piece, count = pieces[number % 2], min(PIECE, memory.nbytes - start)
                if sent[number % 2] is not None:
                    sent[number % 2].synchronize()
                _read_exactly(file.fileno(), memoryview(piece.numpy())[:count], start)
                memory[start : start + count].copy_(piece[:count], non_blocking=True)
                if self._stream is not None:
                    sent[number % 2] = self._stream.record_event()
                # On a board the GPU's memory is the CPU's: nothing is to be there twice.
                os.posix_fadvise(file.fileno(), start, count, os.POSIX_FADV_DONTNEED)
        self._synchronize()

    def read(self, view: View) -> npt.NDArray[Any]:
        key = (view.memory.data_ptr(), view.offset)
        landing = self._landing.get(key)
        if landing is None or landing.nbytes < view.nbytes:
            pinned = self._kind == "cuda"
            landing = self._torch.empty(view.nbytes, dtype=self._torch.uint8, pin_memory=pinned)
            self._landing[key] = landing
        landing = landing[: view.nbytes]
        with self._on_stream():
            landing.copy_(_bytes(view), non_blocking=True)
        self._synchronize()
        array: npt.NDArray[Any] = landing.numpy().view(view.dtype).reshape(view.shape)
        return array

    def read_rows(self, view: View, first: int, last: int) -> npt.NDArray[np.uint8]:
        with self._on_stream():
            rows = self._entries(view)[:, first:last].contiguous().cpu()
        self._synchronize()
        array: npt.NDArray[np.uint8] = rows.numpy()
        return array

    def write_rows(self, view: View, first: int, data: npt.NDArray[np.uint8]) -> None:
        raw = self._torch.from_numpy(np.ascontiguousarray(data))
        with self._on_stream():
            self._entries(view)[:, first : first + data.shape[1]].copy_(raw)

    def move_rows(self, view: View, first: int, count: int) -> None:
        with self._on_stream():
            entries = self._entries(view)
            entries[:, :count].copy_(entries[:, first : first + count].clone())

    def peak_bytes(self) -> int | None:
        if self._kind != "cuda":
            return None
        return int(self._torch.cuda.max_memory_reserved())

    def _entries(self, view: View) -> Any:
        """Bytes [shape[0], shape[1], bytes of an entry]."""
        return _bytes(view).view(view.shape[0], view.shape[1], -1)

    # -- launches

    def run(self, calls: Sequence[Call]) -> None:
        self._load_kernels(calls)
        with self._on_stream():
            for call in calls:
                self._enqueue(call)

    def ready(self, calls: Sequence[Call]) -> Callable[[], None]:
        self._load_kernels(calls)  # which cannot be done while a graph is captured
        graph: Any = None

        def run() -> None:
            nonlocal graph
            if graph is None:
                self._synchronize()
                graph = self._torch.cuda.CUDAGraph()
                with self._torch.cuda.graph(graph, stream=self._stream):
                    for call in calls:
                        self._enqueue(call)
            with self._on_stream():
                graph.replay()

        return run

    def _load_kernels(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if call.launch.kernel not in self._functions:
                kernel = call.launch.kernel
                self._functions[kernel] = Function(self._load(kernel), kernel.name)

    def _enqueue(self, call: Call) -> None:
        self._functions[call.launch.kernel](
            call.launch,
            [_address(view) for view in call.inputs],
            [_address(view) for view in call.outputs],
            self._stream.cuda_stream,
        )

    def _on_stream(self) -> Any:
        return self._torch.cuda.stream(self._stream)  # for None it does nothing

    def _synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _address(view: View) -> int:
    address: int = view.memory.data_ptr() + view.offset
    return address


def _bytes(view: View) -> Any:
    return view.memory[view.offset : view.offset + view.nbytes]


def _read_exactly(descriptor: int, into: memoryview, offset: int) -> None:
    while into:
        count = os.preadv(descriptor, [into], offset)
        if not count:
            raise BundleError("the weights file ends early", hint="build the bundle again")
        into, offset = into[count:], offset + count
