"""Where the Python interfaces of TensorRT and TensorRT for RTX differ, and nothing else.

TensorRT 10 asks for strong typing by a flag that 11 has no choice about. TensorRT builds for the
GPU at hand, and takes plugins; TensorRT for RTX names the compute capabilities to build for, and
its timing caches do nothing. All the rest of the interface is one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edgekit.engines import FLAVOURS, Flavour
from edgekit.errors import MissingDependencyError
from edgekit.export.engine.check import check_gpu, check_version


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One flavour's module and its version."""

    flavour: Flavour
    module: Any
    version: str

    def check(self, sm: int, formats: frozenset[str]) -> None:
        """Refuses what this version cannot build.

        Raises:
            MissingDependencyError: the version is too old, or known to be bad for this.
            BuildError: it does not build for this GPU, or not this format for it.
        """
        check_version(self.flavour, self.version, sm, formats)

    def create_network(self, builder: Any) -> Any:
        """A strongly typed network, whose plugins an engine can carry."""
        flags = self.module.NetworkDefinitionCreationFlag
        names = ["STRONGLY_TYPED"]
        if FLAVOURS[self.flavour].lowering == "plugin":
            names.append("PREFER_AOT_PYTHON_PLUGINS")
        found = (getattr(flags, name, None) for name in names)
        return builder.create_network(sum(1 << int(flag) for flag in found if flag is not None))

    def plugins(self) -> Any:
        """TensorRT's `plugin` module.

        Raises:
            MissingDependencyError: it is not there, or has no plugins that an engine carries.
        """
        name = f"{self.module.__name__}.plugin"
        cause = "its Python package has no tensorrt.plugin.aot_impl"
        try:
            module = importlib.import_module(name)
            if hasattr(module, "aot_impl") and hasattr(self.module, "PreviewFeature"):
                return module
        except ImportError as error:
            cause = str(error)
        raise MissingDependencyError(
            f"this TensorRT {self.version} cannot carry edgekit's kernels",
            cause=cause,
            hint=FLAVOURS[self.flavour].install,
        )

    def require_capture(self, config: Any) -> None:
        """Refuses engines that allocate while they run: a CUDA graph cannot hold those."""
        flag = getattr(self.module.BuilderFlag, "REQUIRE_USER_ALLOCATION", None)
        if flag is not None:
            config.set_flag(flag)

    def allow_state(self, config: Any) -> None:
        """Lets plugins update their inputs."""
        config.set_preview_feature(self.module.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)

    def set_target(self, config: Any, sm: int) -> None:
        """Makes `config` build for a compute capability.

        Raises:
            BuildError: this flavour builds for the GPU at hand, and that is another one.
        """
        if FLAVOURS[self.flavour].sms:
            config.num_compute_capabilities = 1
            config.set_compute_capability(getattr(self.module.ComputeCapability, f"SM{sm}"), 0)
        check_gpu(self.flavour, sm)

    def build(self, builder: Any, network: Any, config: Any, file: BinaryIO) -> bool:
        """Writes a plan to `file`; False if there is none.

        Where a builder can, it streams: a plan returned in memory costs one more copy of it.
        """
        if hasattr(builder, "build_serialized_network_to_stream"):
            stream = _stream(self.module, file)
            return bool(builder.build_serialized_network_to_stream(network, config, stream))
        plan = builder.build_serialized_network(network, config)
        if plan is not None:
            file.write(memoryview(plan))
        return plan is not None

    def load_timing_cache(self, config: Any, path: Path | None) -> None:
        """Gives `config` the timings of earlier builds; a no-op for TensorRT for RTX."""
        if path is None or self.flavour == "tensorrt-rtx":
            return
        stored = path.read_bytes() if path.exists() else b""
        config.set_timing_cache(config.create_timing_cache(stored), False)

    def save_timing_cache(self, config: Any, path: Path | None) -> None:
        """Keeps the timings of this build."""
        if path is None or self.flavour == "tensorrt-rtx":
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(bytes(memoryview(config.get_timing_cache().serialize())))
        part.replace(path)


def _stream(trt: Any, file: BinaryIO) -> Any:
    """What a builder writes a plan to."""

    class Stream(trt.IStreamWriter):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)

        def write(self, data: bytes) -> int:
            return file.write(data)

    return Stream()


def load_toolkit(flavour: Flavour) -> Toolkit:
    """Imports a flavour.

    Raises:
        MissingDependencyError: it is not installed, or its libraries cannot be loaded.
    """
    info = FLAVOURS[flavour]
    cause = ""
    for name in info.modules:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            cause = cause or str(error)
        except (ImportError, OSError, RuntimeError) as error:
            raise MissingDependencyError(
                f"{info.title} is installed, but cannot be loaded",
                cause=str(error),
                hint=info.install,
            ) from None
        else:
            return Toolkit(flavour, module, str(module.__version__))
    raise MissingDependencyError(f"{info.title} is not installed", cause=cause, hint=info.install)
