"""Runs and times one launch on the GPU of this machine; the emulator's counterpart."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.export.plugins.compile import compile_kernel
from edgekit.kernels.launch import Kernel, Launch
from edgekit.runtime.executors.cuda import Function

L2_BYTES = 256 << 20
"""More than any GPU's second-level cache: what a cold measurement must move between two runs."""


def run(
    launch: Launch, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], *, seed: int = 0
) -> None:
    """Runs one launch; `outputs`, which may also be among the inputs, are changed in place."""
    import torch

    on_device = {id(array): _upload(array) for array in [*inputs, *outputs]}
    _enqueue(
        launch,
        [on_device[id(array)].data_ptr() for array in inputs],
        [on_device[id(array)].data_ptr() for array in outputs],
    )
    torch.cuda.synchronize()
    for array in outputs:
        array.reshape(-1).view(np.uint8)[:] = on_device[id(array)].cpu().numpy()[: array.nbytes]


def time(
    launch: Launch,
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    *,
    repeats: int = 20,
) -> float:
    """Seconds a launch takes in a replayed CUDA graph whose every launch finds its own cold copy
    of the arrays: the graph goes round copies that together exceed the cache."""
    import torch

    total = sum(array.nbytes for array in {id(a): a for a in [*inputs, *outputs]}.values())
    copies = max(2, min(64, -(-L2_BYTES // max(total, 1))))
    sets = []
    for _ in range(copies):
        on_device = {id(array): _upload(array) for array in [*inputs, *outputs]}
        sets.append(
            (
                [on_device[id(array)] for array in inputs],
                [on_device[id(array)] for array in outputs],
            )
        )

    def once() -> None:
        for ins, outs in sets:
            _enqueue(launch, [t.data_ptr() for t in ins], [t.data_ptr() for t in outs])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        once()  # loads the kernel before capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(max(1, 40 // copies)):
            once()
    launches = copies * max(1, 40 // copies)
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / repeats / launches


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of a large copy on the device."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    return 10 * 2 * source.numel() / (float(start.elapsed_time(end)) / 1e3)


def multiply_rate() -> float:
    """Floating-point operations a second of a large bfloat16 product by the vendor's library."""
    import torch

    size = 8192
    a, b = (torch.randn(size, size, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    for _ in range(3):
        torch.matmul(a, b)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        torch.matmul(a, b)
    end.record()
    torch.cuda.synchronize()
    return 10 * 2 * size**3 / (float(start.elapsed_time(end)) / 1e3)


def _upload(array: np.ndarray) -> Any:
    import torch

    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return torch.from_numpy(raw.copy()).cuda()


def _enqueue(launch: Launch, inputs: list[int], outputs: list[int]) -> None:
    import torch

    _function(launch.kernel)(launch, inputs, outputs, torch.cuda.current_stream().cuda_stream)


@functools.cache
def _function(kernel: Kernel) -> Function:
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes torch's context current
    major, minor = torch.cuda.get_device_capability()
    return Function(compile_kernel(kernel, 10 * major + minor).path.read_bytes(), kernel.name)
