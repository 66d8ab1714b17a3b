"""What the running system says about itself: which board it is and how much memory it has.

Memory comes from /proc/meminfo wherever CPU and GPU share it: NVML answers N/A there, and the
CUDA driver counts the page cache as used.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgekit.choice import Choice
from edgekit.errors import MissingDependencyError
from edgekit.profile import DeviceProfile, load_profile, profile_names

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The bytes a plan may spend: `total` in the device, `usable` of them free when idle."""

    total: int
    usable: int
    why: str


def device_memory(profile: DeviceProfile, root: Path = Path("/")) -> DeviceMemory:
    """How much memory there is to plan with.

    Args:
        root: where /proc is, for tests on recorded machines.

    Raises:
        MissingDependencyError: the profile says to ask the machine, which cannot tell.
    """
    memory = profile.memory
    if memory.detect == "meminfo":
        info = read_meminfo(root)
        return DeviceMemory(
            info["MemTotal"], info["MemAvailable"], "MemTotal and MemAvailable of this machine"
        )
    if memory.detect == "nvidia-smi":
        gpu = query_gpu()
        if gpu is None or not gpu.total_mib:
            raise MissingDependencyError(
                f"profile {profile.name!r} needs the size of an NVIDIA card's memory",
                cause="nvidia-smi is missing or does not tell it",
                hint="plan for a board by name: edgekit profiles",
            )
        return DeviceMemory(gpu.total_mib * _MIB, gpu.free_mib * _MIB, f"nvidia-smi: {gpu.name}")
    assert memory.physical_mib is not None
    assert memory.usable_mib is not None
    usable = memory.usable_mib
    return DeviceMemory(
        int(memory.physical_mib.value) * _MIB,
        int(usable.value) * _MIB,
        f"profile {profile.name}: {usable.source or 'not measured'}",
    )


def read_meminfo(root: Path = Path("/")) -> dict[str, int]:
    """The fields of /proc/meminfo that carry a unit, in bytes.

    Raises:
        MissingDependencyError: no such file, or no MemTotal and MemAvailable in it.
    """
    path = root / "proc/meminfo"
    text = read_text(path)
    if not text:
        raise MissingDependencyError(
            f"cannot read {path}", cause="missing, unreadable or empty", hint="edgekit doctor"
        )
    fields = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isascii() and words[0].isdigit():
            fields[name] = int(words[0][:18]) * 1024
    if "MemTotal" not in fields or "MemAvailable" not in fields:
        raise MissingDependencyError(
            f"{path} has no MemTotal and MemAvailable", hint="edgekit runs on Linux"
        )
    return fields


@dataclass(frozen=True, slots=True)
class Gpu:
    """What nvidia-smi says of the first GPU; 0 where it answers N/A, as on unified memory."""

    name: str
    compute_capability: str
    total_mib: int
    free_mib: int


def query_gpu() -> Gpu | None:
    """Asks nvidia-smi, which is absent on machines without an NVIDIA driver."""
    query = "--query-gpu=name,compute_cap,memory.total,memory.free"
    try:
        answer = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_gpu(answer)


def parse_gpu(answer: str) -> Gpu | None:
    """The first line of nvidia-smi's CSV answer, or None when it is none."""
    fields = [part.strip() for part in answer.splitlines()[0].split(",")] if answer.strip() else []
    if len(fields) != 4:
        return None
    total, free = (int(value) if value.isdigit() else 0 for value in fields[2:])
    return Gpu(fields[0], fields[1], total, free)


def detect_profile(root: Path = Path("/"), gpu: Gpu | None = None) -> Choice[str]:
    """The profile of the machine whose file system is at `root`; `cpu` when nothing says more.

    Args:
        gpu: what nvidia-smi said, when the caller knows; it is asked only for the real root.
    """
    profiles = [load_profile(name) for name in profile_names()]
    tree = read_text(root / "proc/device-tree/model")
    compatible = read_text(root / "proc/device-tree/compatible")
    boards = [p for p in profiles if p.detection.soc and p.detection.soc in compatible]
    if boards:
        return _detect_jetson(root, boards, tree, compatible)
    dmi = " ".join(
        read_text(root / "sys/class/dmi/id" / name)
        for name in ("product_name", "product_family", "product_version", "board_name")
    )
    for profile in profiles:
        for mark in profile.detection.dmi:
            if mark.lower() in dmi.lower():
                return Choice(profile.name, f"DMI names {mark!r}")
    if gpu is None and root == Path("/"):
        gpu = query_gpu()
    if gpu is None:
        return Choice("cpu", "no device tree, DMI entry or nvidia-smi names an NVIDIA device")
    for profile in profiles:
        wanted = profile.detection.compute_capability
        # The capability alone is not enough: a discrete card of it has memory of its own.
        if wanted and wanted == gpu.compute_capability and gpu.total_mib == 0 and _is_arm():
            return Choice(profile.name, f"nvidia-smi: {gpu.name}, sm {wanted}, unified memory")
    return Choice("gpu", f"nvidia-smi: {gpu.name}")


def _detect_jetson(
    root: Path, boards: list[DeviceProfile], model: str, compatible: str
) -> Choice[str]:
    places = (
        "proc/device-tree/nvidia,boardids",
        "proc/device-tree/nvidia,dtsfilename",
        "etc/nv_boot_control.conf",
    )
    # Board ids write the module as 3767:0005 or p3767-0005, in any case.
    text = " ".join([compatible, model, *(read_text(root / place) for place in places)]).lower()
    text = text.replace(":", "-")
    for profile in boards:
        for module in profile.detection.modules:
            if module.lower().removeprefix("p") in text:
                return Choice(profile.name, f"the device tree or boot control names {module}")
    named = [p for p in boards if any(m in model for m in p.detection.models)] or boards
    total = read_meminfo(root)["MemTotal"] / _MIB

    def distance(profile: DeviceProfile) -> float:
        size = profile.memory.physical_mib
        # The OS sees less than the module has, never more.
        return abs(size.value - total) + (1e9 if size.value < total else 0) if size else 1e12

    best = min(named, key=distance)
    return Choice(best.name, f"device tree {model or compatible!r} and {total:.0f} MiB of memory")


def _is_arm() -> bool:
    return platform.machine() == "aarch64"


def read_text(path: Path, limit: int = 1 << 16) -> str:
    """The beginning of a file as text, without NULs; empty when there is none to read.

    A pipe without a writer neither blocks nor counts as a file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        data = os.read(fd, limit)
    except OSError:  # a folder, or a sysfs file that answers EIO
        return ""
    finally:
        os.close(fd)
    return data.replace(b"\0", b" ").decode("utf-8", errors="replace").strip()
