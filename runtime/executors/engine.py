"""What the sessions of engines share: a plan, its contexts, and programs that a CUDA graph replays.

Not measured on the board (docs/tensorrt.md).
"""

from __future__ import annotations

import hashlib
import importlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.engines import FLAVOURS, Flavour
from edgekit.errors import BuildError, BundleError, MissingDependencyError
from edgekit.paths import cache_dir

Array = npt.NDArray[Any]


class Memory(Protocol):
    """What a session asks of the GPU's memory; see `CudaMemory`."""

    stream: int

    def sm(self) -> int: ...
    def allocate(self, nbytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def zero(self, address: int, nbytes: int) -> None: ...
    def copy(self, to: int, source: int, nbytes: int) -> None: ...
    def upload(self, to: int, array: Array) -> None: ...
    def download(self, array: Array, source: int) -> None: ...
    def wait(self) -> None: ...
    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]: ...
    def close(self) -> None: ...


def replayed(memory: Memory, enqueue: Callable[[], None]) -> Callable[[], None]:
    """What runs `enqueue`: as it is the first time, when TensorRT settles what depends on shapes;
    then recorded as a CUDA graph, which is replayed from then on. Addresses and shapes must stay.
    """
    graph: Callable[[], None] | None = None
    calls = 0

    def run() -> None:
        nonlocal graph, calls
        calls += 1
        if calls == 1:
            enqueue()
            return
        if graph is None:
            graph = memory.capture(enqueue)
        graph()

    return run


class Engine:
    """One plan.

    Attributes:
        scratch_bytes: what a context needs. names: of inputs and outputs. dynamic: inputs with
            symbolic dimensions.
    """

    def __init__(self, bundle: Bundle, name: str, trt: Any, runtime: Any) -> None:
        self.name = name
        path, entry = bundle.file(name), bundle.manifest.files[name]
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as plan:
            # A plan is machine code: nothing of one that was changed may be loaded.
            if hashlib.sha256(plan).hexdigest() != entry.sha256:
                raise BundleError(
                    f"{name} of bundle {bundle.manifest.name!r} was changed after it was built",
                    hint=f"build it again: {bundle.rebuild_command}",
                )
            with memoryview(plan) as view:
                self._engine = runtime.deserialize_cuda_engine(view)
        if self._engine is None:
            raise BundleError(
                f"TensorRT cannot load {name} of bundle {bundle.manifest.name!r}",
                cause="it says why above",
                hint=f"build it again: {bundle.rebuild_command}",
            )
        count = self._engine.num_optimization_profiles
        self._how = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        self._compiled: _Compiled | None = None
        if hasattr(trt, "DynamicShapesKernelSpecializationStrategy"):
            kernels = cache_dir() / "engines" / f"{entry.sha256[:32]}.kernels"
            self._compiled = _Compiled(trt, self._engine.create_runtime_config(), kernels)
            self._how = self._compiled.config
        sizes = [self._engine.get_device_memory_size_for_profile_v2(i) for i in range(count)]
        self.profiles, self.scratch_bytes = count, max(sizes)
        self.names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        shapes = {name: tuple(self._engine.get_tensor_shape(name)) for name in self.names}
        is_input = trt.TensorIOMode.INPUT
        self.dynamic = [
            name
            for name, shape in shapes.items()
            if -1 in shape and self._engine.get_tensor_mode(name) == is_input
        ]

    @property
    def most_tokens(self) -> int | None:
        """The most that its first profile takes, None for one size."""
        if not self.dynamic:
            return None
        _, _, largest = self._engine.get_tensor_profile_shape(self.dynamic[0], 0)
        return int(largest[0])

    def context(self, profile: int, scratch: int, nbytes: int) -> Context:
        """A new context of a profile, with scratch memory of ours."""
        context = self._engine.create_execution_context(self._how)
        context.set_device_memory(scratch, nbytes)
        return Context(self.name, context, profile, self.names)

    def close(self) -> None:
        if self._compiled is not None:
            self._compiled.keep()
            self._compiled = None
        self._how = self._engine = None


class _Compiled:
    """What TensorRT for RTX compiles on this machine, kept in a file between runs.

    Kernels are made for every shape before it runs: a CUDA graph would keep the stopgap that runs
    while they are made.
    """

    def __init__(self, trt: Any, config: Any, file: Path) -> None:
        self.config, self._file = config, file
        config.set_execution_context_allocation_strategy(
            trt.ExecutionContextAllocationStrategy.USER_MANAGED
        )
        strategies = trt.DynamicShapesKernelSpecializationStrategy
        config.dynamic_shapes_kernel_specialization_strategy = strategies.EAGER
        self._cache = config.create_runtime_cache()
        if file.exists():  # one of another driver is refused, and then made anew
            self._cache.deserialize(file.read_bytes())
        config.set_runtime_cache(self._cache)

    def keep(self) -> None:
        """Writes the file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_name(f"{self._file.name}.part")
        part.write_bytes(bytes(memoryview(self._cache.serialize())))
        part.replace(self._file)


class Context:
    """One execution context, which stays with its profile: switching it while another runs is how
    error 700 comes about."""

    def __init__(self, name: str, context: Any, profile: int, names: Sequence[str]) -> None:
        self._name, self._context, self._profile, self._names = name, context, profile, names

    def tell(
        self,
        addresses: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        stream: int,
    ) -> None:
        """Sets what the next executions work on.

        Args:
            shapes: of the inputs that have symbolic dimensions.
        """
        context = self._context
        if context.active_optimization_profile != self._profile:
            context.set_optimization_profile_async(self._profile, stream)
        done = all(context.set_input_shape(name, shape) for name, shape in shapes.items())
        if not (done and all(context.set_tensor_address(n, addresses[n]) for n in self._names)):
            raise self._failed()

    def enqueue(self, stream: int) -> None:
        """Enqueues one execution."""
        if not self._context.execute_async_v3(stream):
            raise self._failed()

    def _failed(self) -> BuildError:
        return BuildError(
            f"TensorRT failed to run {self._name}",
            cause="it says why above",
            hint="edgekit verify BUNDLE",
        )


def check_fits(bundle: Bundle, version: str, sm: int) -> None:
    """Plans are for one version and one GPU."""
    manifest = bundle.manifest
    built = manifest.versions.get(manifest.executor)
    if built != version:
        raise BundleError(
            f"bundle {manifest.name!r} was built with {manifest.executor} {built}, "
            f"and {version} is installed",
            hint=f"build it again: {bundle.rebuild_command}",
        )
    if manifest.versions.get("sm") != str(sm):
        raise BundleError(
            f"bundle {manifest.name!r} is for sm_{manifest.versions.get('sm')}, "
            f"and this GPU is sm_{sm}",
            hint="build it again for this GPU with --sm",
        )


def import_flavour(flavour: Flavour) -> Any:
    info = FLAVOURS[flavour]
    cause = ""
    for name in info.modules:
        try:
            return importlib.import_module(name)
        except (ImportError, OSError, RuntimeError) as error:
            cause = cause or str(error)
    raise MissingDependencyError(f"{info.title} is not installed", cause=cause, hint=info.install)
