"""Where the Python interfaces of TensorRT and TensorRT for RTX differ, and nothing else.

TensorRT 10 asks for strong typing by a flag that 11 has no choice about, and builds for the GPU at
hand; TensorRT for RTX names the compute capabilities to build for, and its timing caches do
nothing. All the rest of the interface is one.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.engines import FLAVOURS, OLDEST_SM, Flavour, known_bad, parse_version
from edgekit.errors import BuildError, MissingDependencyError


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
        info, found = FLAVOURS[self.flavour], parse_version(self.version)
        if found < info.minimum:
            oldest = ".".join(map(str, info.minimum))
            raise MissingDependencyError(
                f"{info.title} {self.version} is too old",
                cause=f"its parser lacks operators of the standard graph; {oldest} has them",
                hint=info.install,
            )
        bad = known_bad(self.flavour, found, sm, formats)
        if bad is not None:
            raise MissingDependencyError(
                f"{info.title} {self.version} must not be used here: {bad.why}",
                cause=f"source: {bad.source}",
                hint=bad.workaround,
            )
        if info.sms and sm not in info.sms:
            known = ", ".join(f"sm_{known}" for known in info.sms)
            raise BuildError(
                f"{info.title} does not build for sm_{sm}",
                cause=f"it knows {known}",
                hint="build with --executor kernels",
            )
        for form in sorted(formats & OLDEST_SM.keys()):
            if self.flavour == "tensorrt-rtx" and sm < OLDEST_SM[form]:
                raise BuildError(
                    f"{info.title} takes no {form} weights for sm_{sm}",
                    cause=f"it has them from sm_{OLDEST_SM[form]} on",
                    hint="quantize to int4 instead, with a recipe like nano-int4",
                )

    def create_network(self, builder: Any) -> Any:
        """A strongly typed network."""
        flag = getattr(self.module.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        return builder.create_network(0 if flag is None else 1 << int(flag))

    def set_target(self, config: Any, sm: int) -> None:
        """Makes `config` build for a compute capability.

        Raises:
            BuildError: this flavour builds for the GPU at hand, and that is another one.
        """
        if FLAVOURS[self.flavour].sms:
            config.num_compute_capabilities = 1
            config.set_compute_capability(getattr(self.module.ComputeCapability, f"SM{sm}"), 0)
            return
        from edgekit.detect import query_gpu

        gpu = query_gpu()
        here = gpu.compute_capability.replace(".", "") if gpu is not None else None
        if here != str(sm):
            raise BuildError(
                f"TensorRT builds for the GPU of this machine, not for sm_{sm}",
                cause=f"this machine has sm_{here}" if here else "this machine has no NVIDIA GPU",
                hint="build on the device itself, or with --executor tensorrt-rtx",
            )

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
