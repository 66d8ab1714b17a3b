"""CUDA, TensorRT and Python: present, new enough, and made for each other."""

from __future__ import annotations

import json
import re

from edgekit.doctor.check import Check, Machine, version_tuple

_LIBRARY_FOLDERS = (
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu/nvidia",
    "usr/local/lib",
)
# Reported broken: a kernel and what happens on it.
_BAD_KERNELS = {
    "6.17.0-1008": "the NVIDIA driver dies on it (NVIDIA forum 366026)",
}


def check_cuda(machine: Machine) -> Check:
    """The CUDA toolkit or runtime that the system has, against the profile's floor."""
    wanted = machine.profile.software.cuda
    if machine.profile.family == "cpu":
        return Check("cuda", "ok", "not needed on a CPU")
    found = _cuda_version(machine)
    if found is None:
        return Check(
            "cuda",
            "unknown",
            "no version.json in /usr/local/cuda; kernels come from Python packages then",
            "sudo apt install cuda-toolkit",
        )
    if wanted and version_tuple(found) < version_tuple(wanted):
        return Check(
            "cuda", "fail", f"CUDA {found} is older than {wanted}", "sudo apt install cuda-toolkit"
        )
    return Check("cuda", "ok", f"CUDA {found}")


def _cuda_version(machine: Machine) -> str | None:
    text = machine.read("usr/local/cuda/version.json")
    try:
        version = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return version if isinstance(version, str) and version_tuple(version) else None


def check_tensorrt(machine: Machine) -> Check:
    """libnvinfer is there, new enough, and the Python package is of the same release."""
    if machine.profile.defaults.executor != "tensorrt":
        return Check("tensorrt", "ok", "this device does not use it")
    wanted = machine.profile.software.tensorrt
    library, package = _nvinfer_version(machine), machine.installed("tensorrt")
    if library is None and package is None:
        return Check(
            "tensorrt",
            "fail",
            "no libnvinfer and no Python package tensorrt",
            "sudo apt install python3-libnvinfer",
        )
    if library is not None and package is None:
        return Check(
            "tensorrt",
            "warn",
            f"libnvinfer {library} is there, but Python does not see its package",
            "sudo apt install python3-libnvinfer; python3 -m venv --system-site-packages .venv",
        )
    found = library or package or ""
    if library and package and version_tuple(library)[:2] != version_tuple(package)[:2]:
        return Check(
            "tensorrt",
            "fail",
            f"the Python package is {package}, the library {library}: engines fit one of them",
            "pip uninstall tensorrt, and use the system's python3-libnvinfer",
        )
    if wanted and version_tuple(found) < version_tuple(wanted):
        return Check(
            "tensorrt",
            "fail",
            f"TensorRT {found} is older than {wanted}",
            "sudo apt install --only-upgrade tensorrt",
        )
    return Check("tensorrt", "ok", f"TensorRT {found}")


def _nvinfer_version(machine: Machine) -> str | None:
    """From the library's full name, libnvinfer.so.10.3.0."""
    found = []
    for folder in _LIBRARY_FOLDERS:
        for name in machine.names(folder):
            match = re.fullmatch(r"libnvinfer\.so\.(\d+(?:\.\d+)+)", name)
            if match is not None:
                found.append(match[1])
    return max(found, key=version_tuple, default=None)


def check_python(machine: Machine) -> Check:
    """edgekit's Python is the system's, which system packages are made for."""
    here = ".".join(map(str, machine.python))
    if machine.profile.family != "jetson":
        return Check("python", "ok", f"Python {here}")
    system = [
        name.removeprefix("python")
        for name in machine.names("usr/bin")
        if re.fullmatch(r"python3\.\d{1,2}", name)
    ]
    if not system:
        return Check("python", "unknown", f"Python {here}; the system's was not found")
    if here in system:
        return Check("python", "ok", f"Python {here}, the system's own")
    return Check(
        "python",
        "warn",
        f"Python {here} does not see packages of the system's {', '.join(system)}",
        f"make the virtual environment with /usr/bin/python{system[-1]} --system-site-packages",
    )


def check_kernel(machine: Machine) -> Check:
    """The Linux kernel is none that is known to break the driver."""
    release = machine.read("proc/sys/kernel/osrelease")[:80]
    if not release:
        return Check("kernel", "unknown", "/proc/sys/kernel/osrelease cannot be read")
    for bad, why in _BAD_KERNELS.items():
        if release.startswith(bad):
            return Check(
                "kernel", "warn", f"Linux {release}: {why}", "boot an older or a newer kernel"
            )
    return Check("kernel", "ok", f"Linux {release}")
