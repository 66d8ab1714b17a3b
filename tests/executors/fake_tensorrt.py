"""A stand-in for TensorRT's Python module whose plans are ONNX files, run by ONNX Runtime, and for
the GPU's memory, which is the CPU's. It checks what TensorRT would: every tensor has an address
inside an allocation, shapes lie in the profile, contexts have scratch memory and their profile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

Array = npt.NDArray[Any]
SCRATCH = 4096
PROFILES = ((1, 8), (1, 16))
VERSION = "1.7.1.116"
_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


class FakeMemory:
    """Keeps the contract of `CudaMemory`."""

    stream = 7

    def __init__(self, sm: int = 121) -> None:
        self._sm = sm
        self.allocations: dict[int, Array] = {}
        self.captures = 0
        self.compiled: list[bytes] = []  # what a cache was filled with

    def sm(self) -> int:
        return self._sm

    def allocate(self, nbytes: int) -> int:
        array = np.zeros(max(nbytes, 1), np.uint8)
        self.allocations[array.ctypes.data] = array
        return array.ctypes.data

    def check(self, address: int, nbytes: int) -> None:
        starts = [start for start in self.allocations if start <= address]
        assert starts, "an address that nobody allocated"
        start = max(starts)
        assert address + nbytes <= start + self.allocations[start].nbytes, "past the end"

    def free(self, address: int) -> None:
        self.allocations.pop(address, None)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """What is captured does not run yet."""
        self.captures += 1
        return enqueue

    def zero(self, address: int, nbytes: int) -> None:
        self.check(address, nbytes)
        ctypes.memset(address, 0, nbytes)

    def copy(self, to: int, source: int, nbytes: int) -> None:
        self.check(to, nbytes)
        self.check(source, nbytes)
        ctypes.memmove(to, source, nbytes)

    def upload(self, to: int, array: Array) -> None:
        data = np.ascontiguousarray(array)
        self.check(to, data.nbytes)
        ctypes.memmove(to, data.ctypes.data, data.nbytes)

    def download(self, array: Array, source: int) -> None:
        assert array.flags.c_contiguous
        self.check(source, array.nbytes)
        ctypes.memmove(array.ctypes.data, source, array.nbytes)

    def wait(self) -> None:
        pass

    def close(self) -> None:
        self.allocations.clear()


class FakeConfig:
    """IRuntimeConfig, and the cache it creates."""

    dynamic_shapes_kernel_specialization_strategy = ""

    def __init__(self, memory: FakeMemory) -> None:
        self.memory, self.strategy, self.cache = memory, "", None

    def set_execution_context_allocation_strategy(self, strategy: str) -> None:
        self.strategy = strategy

    def create_runtime_cache(self) -> Any:
        return SimpleNamespace(
            deserialize=self.memory.compiled.append, serialize=lambda: b"kernels"
        )

    def set_runtime_cache(self, cache: Any) -> None:
        self.cache = cache


class FakeContext:
    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.active_optimization_profile = 0
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.scratch = 0

    def set_device_memory(self, address: int, nbytes: int) -> None:
        assert nbytes >= SCRATCH
        self.engine.memory.check(address, nbytes)
        self.scratch = address

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        assert stream == FakeMemory.stream
        self.active_optimization_profile = profile
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        smallest, largest = PROFILES[self.active_optimization_profile]
        self.shapes[name] = shape
        return smallest <= shape[0] <= largest

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == FakeMemory.stream
        assert self.scratch
        session, memory = self.engine.session, self.engine.memory
        feeds = {}
        for value in session.get_inputs():
            shape = self.shapes.get(value.name, tuple(value.shape))
            array = np.empty(shape, _DTYPES[value.type])
            memory.download(array, self.addresses[value.name])
            feeds[value.name] = array
        names = [value.name for value in session.get_outputs()]
        results = dict(zip(names, session.run(names, feeds), strict=True))
        for name, array in results.items():
            kind = name.split(".")[0]
            before = self.addresses.get(name.replace("_out.", "."))
            if kind.endswith("_cache_out"):
                assert before == self.addresses[name], "a cache is appended to in place"
            elif kind.endswith("_state_out"):
                assert before != self.addresses[name], "state that is read is not written"
            memory.upload(self.addresses[name], array)
        return True


class FakeEngine:
    def __init__(self, data: bytes, memory: FakeMemory) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(data, options, providers=providers)
        self.memory = memory
        values = [*self.session.get_inputs(), *self.session.get_outputs()]
        self._names = [value.name for value in values]
        self._inputs = {value.name for value in self.session.get_inputs()}
        self._shapes = {
            value.name: tuple(dim if isinstance(dim, int) else -1 for dim in value.shape)
            for value in values
        }
        self.num_io_tensors = len(values)
        is_step = "tokens" in self._names
        self.num_optimization_profiles = 2 if is_step else 1

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def get_tensor_mode(self, name: str) -> str:
        return "in" if name in self._inputs else "out"

    def get_tensor_profile_shape(self, name: str, profile: int) -> tuple[tuple[int, ...], ...]:
        smallest, largest = PROFILES[profile]
        shape = self._shapes[name][1:]
        return ((smallest, *shape), (smallest, *shape), (largest, *shape))

    def get_device_memory_size_for_profile_v2(self, profile: int) -> int:
        return SCRATCH // (profile + 1)

    def create_runtime_config(self) -> FakeConfig:
        return FakeConfig(self.memory)

    def create_execution_context(self, how: FakeConfig) -> FakeContext:
        assert how.strategy == "ours"
        assert how.dynamic_shapes_kernel_specialization_strategy == "eager"
        assert how.cache is not None
        return FakeContext(self)


def fake_tensorrt(
    memory: FakeMemory, version: str = VERSION, loads: bool = True, engine: Any = FakeEngine
) -> Any:
    """The module; `loads` is false for one that takes no plan; `engine` runs a plan."""

    def runtime(logger: object) -> Any:
        def deserialize(view: memoryview) -> Any:
            return engine(bytes(view), memory) if loads else None

        return SimpleNamespace(deserialize_cuda_engine=deserialize)

    class Logger:
        ERROR = 1

        def __init__(self, severity: int) -> None:
            assert severity == self.ERROR

    only_rtx = {}
    if engine is FakeEngine:
        eager = SimpleNamespace(EAGER="eager")
        only_rtx = {"DynamicShapesKernelSpecializationStrategy": eager}
    return SimpleNamespace(
        **only_rtx,
        __version__=version,
        Logger=Logger,
        Runtime=runtime,
        ExecutionContextAllocationStrategy=SimpleNamespace(USER_MANAGED="ours"),
        TensorIOMode=SimpleNamespace(INPUT="in"),
    )
