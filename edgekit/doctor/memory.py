"""Memory: what is available, and what swap does to it."""

from __future__ import annotations

from edgekit.detect import read_meminfo
from edgekit.doctor.check import Check, Machine
from edgekit.units import size_text

_MIB = 1 << 20


def check_memory(machine: Machine) -> Check:
    """MemAvailable against the profile's reserve and what its idle board has.

    MemFree is not used: the page cache counts as used there, and goes when memory is asked for.
    """
    info = read_meminfo(machine.root)
    available, total = info["MemAvailable"], info["MemTotal"]
    text = f"{size_text(available)} of {size_text(total)} available"
    cached = info.get("Cached", 0)
    if cached:
        text += f", page cache {size_text(cached)}"
    reserve = int(machine.profile.memory.reserve_mib.value) * _MIB
    if available < reserve:
        return Check(
            "memory",
            "fail",
            f"{text}: less than the {size_text(reserve)} that stay free for the system",
            "stop other programs: ps aux --sort=-rss | head",
        )
    usable = machine.profile.memory.usable_mib
    if usable is not None and available < 0.75 * usable.value * _MIB:
        return Check(
            "memory",
            "warn",
            f"{text}: an idle board has about {size_text(int(usable.value) * _MIB)}",
            "sudo systemctl set-default multi-user.target, then reboot: no desktop",
        )
    return Check("memory", "ok", text)


def check_huge_pages(machine: Machine) -> Check:
    """Pages set aside are nobody's until asked for by name."""
    count = 0
    for line in machine.read("proc/meminfo").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "HugePages_Total:" and words[1].isdecimal():
            count = int(words[1][:12])
    if count:
        return Check(
            "huge pages",
            "warn",
            f"{count} huge pages are set aside and lost to models",
            "sudo sysctl -w vm.nr_hugepages=0",
        )
    return Check("huge pages", "ok", "none set aside")


def check_swap(machine: Machine) -> Check:
    """zram takes from the memory that models need; any swap in use slows the rest."""
    text = machine.read("proc/swaps")
    if not text:
        return Check("swap", "unknown", "/proc/swaps cannot be read")
    zram = disk = used = 0
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 4 or not (fields[2].isdecimal() and fields[3].isdecimal()):
            continue
        if "zram" in fields[0]:
            zram += int(fields[2][:15]) * 1024
        else:
            disk += int(fields[2][:15]) * 1024
        used += int(fields[3][:15]) * 1024
    found = f"zram {size_text(zram)}, disk {size_text(disk)}, in use {size_text(used)}"
    if zram and machine.profile.memory.unified:
        return Check(
            "swap",
            "warn",
            f"{found}: zram is taken from the GPU's own memory",
            "sudo systemctl disable --now nvzramconfig",
        )
    if used > 1 << 30:
        return Check("swap", "warn", f"{found}: memory was short", "stop other programs")
    return Check("swap", "ok", found if zram or disk else "none")
