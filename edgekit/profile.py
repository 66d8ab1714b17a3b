"""What is true of one board, read from one TOML file.

A board is added by copying a file: its name is the profile's name, and detection, planning and
builds read only its fields. Every number says where it comes from: `source` names a document or
a measurement, `measured = false` says that nobody has run it.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgekit.errors import EdgekitError
from edgekit.names import unknown_name

KvDtype = Literal["float32", "float16", "bfloat16", "float8"]
Executor = Literal["ort", "kernels", "tensorrt", "tensorrt-rtx"]
"""What runs a bundle: ONNX Runtime, edgekit's CUDA kernels node by node, or an engine. A profile's
"tensorrt" is whichever of the last three can be built (`edgekit.engines.choose_executor`)."""

WeightFormat = Literal["fp32", "fp16", "bf16", "fp8", "nvfp4", "int8", "int4"]

DTYPE_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}

_FOLDERS = ("profiles", "jetson/profiles", "spark/profiles")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Part):
    """A number that says where it comes from."""

    value: float = Field(ge=0)
    source: str = ""
    measured: bool = True

    @model_validator(mode="after")
    def _says_where_from(self) -> Self:
        if self.measured and not self.source:
            raise ValueError("needs a source, or measured = false")
        return self


class Detection(_Part):
    """What identifies the board on a running system. Empty: it is never detected."""

    soc: str = ""  # in /proc/device-tree/compatible
    modules: tuple[str, ...] = ()  # part numbers in the device tree or the boot control file
    models: tuple[str, ...] = ()  # in /proc/device-tree/model
    dmi: tuple[str, ...] = ()  # in the DMI product or family names
    compute_capability: str = ""  # with a GPU that shares the CPU's memory


class Memory(_Part):
    """Sizes in MiB. `usable` is free on an idle headless board; `reserve` stays free always.

    `detect` says which sizes the running system knows better: "meminfo" reads /proc/meminfo,
    "nvidia-smi" the memory of a discrete card.
    """

    unified: bool
    physical_mib: Figure | None = None
    usable_mib: Figure | None = None
    reserve_mib: Figure
    runtime_mib: Figure  # the process before weights: interpreter, executor, GPU context
    bandwidth_gb_s: Figure | None = None
    detect: Literal["profile", "meminfo", "nvidia-smi"] = "profile"


class Formats(_Part):
    """Number formats of the weights: what its matrix units compute, and what kernels decode."""

    compute: tuple[WeightFormat, ...]
    weights: tuple[WeightFormat, ...]


class Defaults(_Part):
    """What builds and plans use where nobody chose."""

    recipe: str
    executor: Executor
    context: int = Field(gt=0)
    kv_dtype: KvDtype
    prefill_chunk: int = Field(gt=0)
    slots: int = Field(default=1, ge=1)
    snapshot_budget_mib: int = Field(ge=0)


class Power(_Part):
    """nvpmodel modes by name: their numbers differ from board to board."""

    modes: tuple[str, ...] = ()
    recommended: str = ""
    slow: tuple[str, ...] = ()  # modes that cut the memory clock
    source: str = ""


class Software(_Part):
    """Oldest versions that work; empty where it does not apply."""

    jetpack: str = ""
    tensorrt: str = ""
    cuda: str = ""
    source: str = ""


class DeviceProfile(_Part):
    """One board. See `load_profile`."""

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    family: Literal["cpu", "gpu", "jetson", "spark"]
    sm: str = ""  # compute capability, "8.7"; empty without an NVIDIA GPU
    notes: tuple[str, ...] = ()
    detection: Detection = Detection()
    memory: Memory
    formats: Formats
    defaults: Defaults
    power: Power = Power()
    software: Software = Software()

    @model_validator(mode="after")
    def _has_sizes(self) -> Self:
        sizes = (self.memory.physical_mib, self.memory.usable_mib)
        if self.memory.detect == "profile" and None in sizes:
            raise ValueError("memory needs physical_mib and usable_mib, or a way to detect them")
        return self

    def settings(self) -> dict[str, object]:
        """The defaults that are settings, for `Settings.with_profile`."""
        return {
            "recipe": self.defaults.recipe,
            "context": self.defaults.context,
            "prefill_chunk": self.defaults.prefill_chunk,
        }


def profile_names() -> tuple[str, ...]:
    """Every profile that ships with edgekit, sorted."""
    return tuple(sorted(_profile_files()))


def load_profile(name: str) -> DeviceProfile:
    """A profile by name, or from a TOML file when `name` is a path to one.

    Raises:
        UsageError: no such profile.
        EdgekitError: the file is damaged or has unknown keys.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise EdgekitError(f"no device profile at {path}")
        return parse_profile(path.read_text(), str(path))
    known = _profile_files()
    if name not in known:
        raise unknown_name("device profile", name, known, hint="edgekit profiles lists them")
    return parse_profile(known[name].read_text(), known[name].name)


def parse_profile(text: str, where: str) -> DeviceProfile:
    """A profile from TOML text; `where` names it in errors."""
    try:
        return DeviceProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise EdgekitError(f"{where} is not valid TOML", cause=str(error)) from None
    except ValidationError as error:
        causes = [
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise EdgekitError(
            f"{where} is no device profile", cause="\n".join(causes), hint="edgekit profiles"
        ) from None


def _profile_files() -> dict[str, Traversable]:
    root = files("edgekit")
    found = {}
    for folder in _FOLDERS:
        directory = root.joinpath(folder)
        if directory.is_dir():
            for file in directory.iterdir():
                if file.name.endswith(".toml"):
                    found[file.name.removesuffix(".toml")] = file
    return found
