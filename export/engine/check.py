"""What speaks against building an engine, found before anything is read or written."""

from __future__ import annotations

from edgekit.engines import (
    FLAVOURS,
    OLDEST_SM,
    Flavour,
    gpu_here,
    installed,
    known_bad,
    parse_version,
)
from edgekit.errors import BuildError, MissingDependencyError


def check_installed(flavour: Flavour, sm: int, formats: frozenset[str] = frozenset()) -> None:
    """Refuses what cannot be built on this machine. Nothing of TensorRT is imported.

    Args:
        formats: of the weights, as far as they are known.

    Raises:
        MissingDependencyError, BuildError: see `check_version` and `check_gpu`; or the flavour is
            not installed.
    """
    info, found = FLAVOURS[flavour], installed(flavour)
    if found is None:
        raise MissingDependencyError(
            f"{info.title} is not installed",
            cause=f"there is no Python module named {info.modules[0]}",
            hint=f"{info.install}; or build with --executor kernels",
        )
    if found != "0":  # a package that does not tell its version: the builder will see
        check_version(flavour, found, sm, formats)
    check_gpu(flavour, sm)


def check_version(flavour: Flavour, version: str, sm: int, formats: frozenset[str]) -> None:
    """Refuses what a version cannot build.

    Raises:
        MissingDependencyError: the version is too old, or known to be bad for this.
        BuildError: it does not build for this GPU, or not this format for it.
    """
    info, found = FLAVOURS[flavour], parse_version(version)
    if found < info.minimum:
        oldest = ".".join(map(str, info.minimum))
        raise MissingDependencyError(
            f"{info.title} {version} is too old",
            cause=f"it lacks {info.needs}; {oldest} has them",
            hint=f"{info.install}; or build with --executor kernels",
        )
    bad = known_bad(flavour, found, sm)
    if bad is not None:
        raise MissingDependencyError(
            f"{info.title} {version} must not be used here: {bad.why}",
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
        if flavour == "tensorrt-rtx" and sm < OLDEST_SM[form]:
            raise BuildError(
                f"{info.title} takes no {form} weights for sm_{sm}",
                cause=f"it has them from sm_{OLDEST_SM[form]} on",
                hint="quantize to int4 instead, with a recipe like nano-int4",
            )


def check_gpu(flavour: Flavour, sm: int) -> None:
    """Refuses another GPU than a flavour builds for.

    Raises:
        BuildError: it builds for the GPU at hand, and that is another one, or there is none.
    """
    if FLAVOURS[flavour].sms:
        return
    here = gpu_here()
    if here != sm:
        elsewhere = "tensorrt-rtx" if sm in FLAVOURS["tensorrt-rtx"].sms else "kernels"
        raise BuildError(
            f"{FLAVOURS[flavour].title} builds for the GPU of this machine, not for sm_{sm}",
            cause=f"this machine has sm_{here}" if here else "this machine has no NVIDIA GPU",
            hint=f"build on the device itself, or with --executor {elsewhere}",
        )
