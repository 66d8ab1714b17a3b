"""The board, its driver, and whether this user may use it."""

from __future__ import annotations

import os
import re
import stat

from edgekit.doctor.check import Check, Machine, version_tuple

GPU_NODES = (
    "nvidiactl",
    "nvidia0",
    "nvidia-uvm",
    "nvmap",
    "nvgpu",
    "nvhost-gpu",
    "nvhost-ctrl-gpu",
    "nvhost-as-gpu",
)
_L4T = re.compile(r"R(\d{1,4}) \(release\), REVISION: (\d{1,4})\.?(\d{0,4})")


def check_device(machine: Machine) -> Check:
    """Which profile this machine has, and why."""
    profile = machine.profile
    text = f"{profile.title}: {machine.profile_why}"
    return Check("device", "ok", text)


def check_driver(machine: Machine) -> Check:
    """The kernel driver is loaded and nvidia-smi, where boards have a working one, answers."""
    family = machine.profile.family
    version = re.search(
        r"Kernel Module.*?\s(\d{2,4}(?:\.\d{1,4}){1,3})\s",
        machine.read("proc/driver/nvidia/version") + " ",
    )
    if version is not None:
        if machine.gpu is None and family in ("gpu", "spark"):
            return Check(
                "driver",
                "fail",
                f"module {version[1]} is loaded but nvidia-smi does not answer",
                "sudo dmesg | grep -i nvrm, then reboot: module and library may differ",
            )
        return Check("driver", "ok", f"NVIDIA kernel module {version[1]}")
    if family == "jetson":
        if any(name in machine.names("dev") for name in ("nvgpu", "nvhost-gpu", "nvmap")):
            return Check("driver", "ok", "the Tegra GPU's device nodes are there")
        return Check(
            "driver",
            "fail",
            "no GPU device node: the driver is not loaded, or a container hides it",
            "docker run --runtime nvidia ..., or reinstall nvidia-l4t-core on the host",
        )
    if machine.gpu is not None:
        return Check("driver", "ok", f"nvidia-smi: {machine.gpu.name}")
    if family == "cpu":
        return Check("driver", "ok", "no NVIDIA GPU, none needed")
    return Check("driver", "fail", "the NVIDIA driver is not loaded", "sudo modprobe nvidia")


def check_jetpack(machine: Machine) -> Check:
    """L4T is as new as the profile's JetPack needs."""
    release = l4t_release(machine)
    wanted = machine.profile.software.jetpack
    if machine.profile.family != "jetson":
        return Check("jetpack", "ok", "not a Jetson")
    if release is None:
        return Check(
            "jetpack",
            "unknown",
            "/etc/nv_tegra_release names no release; containers often lack the file",
            "run edgekit doctor on the host",
        )
    found = jetpack_of(release)
    text = f"L4T {'.'.join(map(str, release))} is JetPack {found}"
    if version_tuple(found) < version_tuple(wanted):
        return Check(
            "jetpack", "fail", f"{text}, older than {wanted}", "install a newer JetPack image"
        )
    return Check("jetpack", "ok", text)


def l4t_release(machine: Machine) -> tuple[int, ...] | None:
    """(36, 4, 3) from /etc/nv_tegra_release; its BOARD field is generic and not read."""
    match = _L4T.search(machine.read("etc/nv_tegra_release"))
    return tuple(int(part) for part in match.groups() if part) if match else None


def jetpack_of(release: tuple[int, ...]) -> str:
    """The JetPack version of an L4T release; unknown ones count as the newest before them."""
    known = (
        ((39,), "7.2"),
        ((38, 4), "7.1"),
        ((38,), "7.0"),
        ((36, 4, 3), "6.2"),
        ((36, 4), "6.1"),
        ((36,), "6.0"),
        ((35,), "5.1"),
    )
    return next((name for first, name in known if release >= first), "5.0 or older")


def check_permissions(machine: Machine) -> Check:
    """The user may open the GPU's device nodes; groups count by number, as names may lack."""
    places = [f"dev/{name}" for name in GPU_NODES]
    places += [f"dev/dri/{n}" for n in machine.names("dev/dri") if n.startswith("renderD")]
    seen, closed = 0, []
    for place in places:
        try:
            info = (machine.root / place).stat()
        except OSError:
            continue
        if stat.S_ISDIR(info.st_mode):
            continue
        seen += 1
        if not _may_open(info, machine):
            closed.append((place, info.st_gid))
    if closed:
        place, gid = closed[0]
        groups = ",".join(sorted({group_name(machine, gid) for _, gid in closed}))
        return Check(
            "permissions",
            "fail",
            f"/{place} needs group {group_name(machine, gid)} (gid {gid})",
            f"sudo usermod -aG {groups} $USER, then log in again",
        )
    if not seen:
        if machine.profile.family == "cpu":
            return Check("permissions", "ok", "no GPU to open")
        return Check(
            "permissions",
            "unknown",
            "no GPU device node to look at",
            "sudo nvidia-modprobe -u -c 0, or give the container the GPU",
        )
    return Check("permissions", "ok", f"this user may open all {seen} GPU device nodes")


def group_name(machine: Machine, gid: int) -> str:
    """A group's name in /etc/group below the root; its number when it has none."""
    for line in machine.read("etc/group").splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[2] == str(gid):
            return fields[0]
    return str(gid)


def _may_open(info: os.stat_result, machine: Machine) -> bool:
    if machine.uid == 0:
        return True
    mode = info.st_mode
    if info.st_uid == machine.uid:
        return mode & 0o600 == 0o600
    if info.st_gid in machine.groups:
        # nvmap is 0440 on some releases: reading is enough there.
        return bool(mode & 0o040)
    return mode & 0o006 == 0o006
