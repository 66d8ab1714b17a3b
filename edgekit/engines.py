"""Engine flavours: TensorRT and TensorRT for RTX, what each can do, and which one a build is for.

What is said here was tried with TensorRT for RTX 1.7.1 on machines without a GPU, unless it names
another source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

from edgekit.choice import Choice
from edgekit.detect import detect_profile, query_gpu
from edgekit.profile import Executor, load_profile

Flavour = Literal["tensorrt", "tensorrt-rtx"]


@dataclass(frozen=True, slots=True)
class FlavourInfo:
    """One flavour.

    Attributes:
        modules: its Python module under the names it comes with.
        packages: distributions that tell its version.
        lowering: the graphs it takes. TensorRT gets edgekit's kernels as plugins, for which
            TensorRT for RTX has no place.
        sms: compute capabilities it builds for anywhere, 121 for 12.1; empty: the GPU at hand.
        minimum: the oldest version that takes such a graph. needs: what an older one lacks.
        install: the command that mends its absence.
    """

    title: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    lowering: Literal["plugin", "standard"]
    sms: tuple[int, ...]
    minimum: tuple[int, ...]
    needs: str
    install: str


FLAVOURS: dict[Flavour, FlavourInfo] = {
    "tensorrt": FlavourInfo(
        "TensorRT",
        ("tensorrt",),
        ("tensorrt", "tensorrt_cu13", "tensorrt_cu13_bindings"),
        "plugin",
        (),
        (10, 9),
        "plugins that an engine carries, and that update state in place",
        "install TensorRT 10.9 or newer: JetPack and DGX OS have it as a package",
    ),
    "tensorrt-rtx": FlavourInfo(
        "TensorRT for RTX",
        ("tensorrt_rtx", "tensorrt_rtx_bindings"),
        ("tensorrt_rtx", "tensorrt_rtx_cu13", "tensorrt_rtx_cu13_bindings"),
        "standard",
        (75, 80, 86, 89, 120, 121),
        (1, 7),
        "operators of the standard graph",
        "pip install 'edgekit-nemotron[tensorrt-rtx]'",
    ),
}

MAX_CHUNK = 512
"""Most tokens of a step of a `standard` engine, unless a person asks for more: its scan takes
memory with their square."""

OLDEST_SM = {"nvfp4": 120, "fp8": 89}
"""Below it TensorRT for RTX refuses a format: "model contains HW-specific datatypes"."""


@dataclass(frozen=True, slots=True)
class KnownBad:
    """A version that must not be used for something.

    Attributes:
        version: its first numbers. sms: where it is bad; empty is everywhere.
    """

    flavour: Flavour
    version: tuple[int, ...]
    sms: tuple[int, ...]
    why: str
    workaround: str
    source: str


KNOWN_BAD: tuple[KnownBad, ...] = (
    KnownBad(
        "tensorrt",
        (10, 14),
        (110,),
        "kernels fail to compile on sm_110",
        "use another version",
        "NVIDIA/TensorRT issue 4830",
    ),
    KnownBad(
        "tensorrt",
        (11, 2, 1),
        (110,),
        "kernels fail to compile on sm_110",
        "use another version",
        "NVIDIA/TensorRT issue 4830",
    ),
)


def known_bad(flavour: Flavour, found: tuple[int, ...], sm: int) -> KnownBad | None:
    """The entry of the table that speaks against a build, if one does."""
    for bad in KNOWN_BAD:
        if (
            bad.flavour == flavour
            and found[: len(bad.version)] == bad.version
            and (not bad.sms or sm in bad.sms)
        ):
            return bad
    return None


def parse_version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 10.13.3.9 is (10, 13, 3, 9)."""
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def installed(flavour: Flavour) -> str | None:
    """The version that can be imported here, None without one. Nothing is imported."""
    info = FLAVOURS[flavour]
    if not any(find_spec(module) for module in info.modules):
        return None
    for package in info.packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "0"


def gpu_here() -> int | None:
    """Compute capability of this machine's GPU, 121 for 12.1.

    On a board whose nvidia-smi does not say it, its profile's.
    """
    gpu = query_gpu()
    said = gpu.compute_capability if gpu is not None else ""
    capability = said if _VERSION.fullmatch(said) else load_profile(detect_profile().value).sm
    return int(capability.replace(".", "")) if capability else None


_VERSION = re.compile(r"\d+\.\d")


def choose_executor(wanted: Choice[Executor], sm: int | None) -> Choice[Executor]:
    """What a build is for, where a profile leaves it at "TensorRT, in whatever form there is".

    Args:
        sm: of the device, 121 for 12.1; None when it is not known.
    """
    if wanted.value != "tensorrt":
        return wanted
    reasons = []
    for flavour, info in FLAVOURS.items():
        found = installed(flavour)
        if found is None:
            reasons.append(f"{info.title} is not installed")
        elif parse_version(found) < info.minimum:
            oldest = ".".join(map(str, info.minimum))
            reasons.append(f"{info.title} {found} is older than {oldest}")
        elif info.sms and sm not in info.sms:
            reasons.append(f"{info.title} does not build for sm_{sm}")
        elif not info.sms and gpu_here() != sm:
            reasons.append(f"{info.title} builds for sm_{sm} on such a device only")
        else:
            return Choice(flavour, f"{wanted.why}; {info.title} {found} is installed")
    return Choice("kernels", f"{wanted.why}; {', '.join(reasons)}")
