"""GPU memory and one stream through the CUDA runtime: no torch, no pinned and no managed memory,
neither of which an integrated GPU wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.errors import BuildError, MissingDependencyError

Array = npt.NDArray[Any]


class CudaMemory:
    """Allocations of this process' first GPU, and the stream all work is on.

    Raises:
        MissingDependencyError: cuda-bindings or a GPU is missing.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import runtime
        except ImportError as error:
            raise MissingDependencyError(
                "the CUDA bindings are not installed",
                cause=str(error),
                hint="pip install 'cuda-bindings>=13'",
            ) from None
        self._cuda = runtime
        status, count = runtime.cudaGetDeviceCount()
        if status != runtime.cudaError_t.cudaSuccess or not count:
            raise MissingDependencyError(
                "this bundle needs an NVIDIA GPU",
                cause=f"CUDA finds none: {status.name}",
                hint="build it for this machine's CPU: edgekit build MODEL --device cpu",
            )
        self.stream = int(self._check(runtime.cudaStreamCreate()))
        self._addresses: list[int] = []

    def sm(self) -> int:
        """Compute capability, 121 for 12.1."""
        attribute = self._cuda.cudaDeviceAttr
        parts = (
            attribute.cudaDevAttrComputeCapabilityMajor,
            attribute.cudaDevAttrComputeCapabilityMinor,
        )
        major, minor = (self._check(self._cuda.cudaDeviceGetAttribute(p, 0)) for p in parts)
        return 10 * int(major) + int(minor)

    def allocate(self, nbytes: int) -> int:
        """The address of new zeros."""
        address = int(self._check(self._cuda.cudaMalloc(max(nbytes, 1))))
        self._addresses.append(address)
        self.zero(address, nbytes)
        return address

    def free(self, address: int) -> None:
        """Gives memory back, when all work before it is done."""
        if address in self._addresses:  # not after `close`
            self._addresses.remove(address)
            self._check(self._cuda.cudaFree(address))

    def zero(self, address: int, nbytes: int) -> None:
        self._check(self._cuda.cudaMemsetAsync(address, 0, nbytes, self.stream))

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Between two places on the GPU."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._check(self._cuda.cudaMemcpyAsync(to, source, nbytes, kind, self.stream))

    def upload(self, to: int, array: Array) -> None:
        """Copies an array to the GPU; it may change as soon as this returns."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        data = np.ascontiguousarray(array)
        self._check(
            self._cuda.cudaMemcpyAsync(to, data.ctypes.data, data.nbytes, kind, self.stream)
        )
        self.wait()

    def download(self, array: Array, source: int) -> None:
        """Fills an array from the GPU, when all work before it is done."""
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._check(
            self._cuda.cudaMemcpyAsync(array.ctypes.data, source, array.nbytes, kind, self.stream)
        )
        self.wait()

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Records what `enqueue` puts on the stream, without running it; what replays that."""
        cuda = self._cuda
        mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._check(cuda.cudaStreamBeginCapture(self.stream, mode))
        try:
            enqueue()
        finally:
            graph = self._check(cuda.cudaStreamEndCapture(self.stream))
        replayed = self._check(cuda.cudaGraphInstantiate(graph, 0))
        self._check(cuda.cudaGraphDestroy(graph))

        def replay() -> None:
            self._check(cuda.cudaGraphLaunch(replayed, self.stream))

        return replay

    def wait(self) -> None:
        """Waits for the stream."""
        self._check(self._cuda.cudaStreamSynchronize(self.stream))

    def close(self) -> None:
        """Frees everything."""
        for address in self._addresses:
            self._check(self._cuda.cudaFree(address))
        self._addresses.clear()

    def _check(self, result: tuple[Any, ...]) -> Any:
        status, *values = result
        if status != self._cuda.cudaError_t.cudaSuccess:
            raise BuildError(
                "CUDA refused a call",
                cause=status.name,
                hint="free some GPU memory, or build with a smaller --context",
            )
        return values[0] if values else None
