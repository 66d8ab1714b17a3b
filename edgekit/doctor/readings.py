"""What a machine says of its power mode, clocks and temperatures; None wherever it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from edgekit.doctor.check import Machine

_GPU_CLOCKS = ("17000000.gpu", "17000000.ga10b", "gpu-gpc-0")
"""devfreq nodes: Orin's under two kernels, Thor's."""
_CPU = "sys/devices/system/cpu"


def power_modes(machine: Machine) -> dict[int, str]:
    """nvpmodel's modes by number, which differ from board to board."""
    modes = re.findall(
        r"<\s*POWER_MODEL\s+ID=(\d{1,4})\s+NAME=([\w.-]{1,40})\s*>",
        machine.read("etc/nvpmodel.conf"),
    )
    return {int(number): name for number, name in modes}


def power_mode(machine: Machine) -> str | None:
    """The name of nvpmodel's mode."""
    match = re.match(r"pmode:(\d{1,4})\b", machine.read("var/lib/nvpmodel/status"))
    return power_modes(machine).get(int(match[1])) if match is not None else None


def cpu_mhz(machine: Machine) -> int | None:
    """The clock of CPU 0: cpuinfo_cur_freq is what the hardware does, where scaling_cur_freq is
    only what was asked for; else what /proc/cpuinfo says."""
    khz = machine.number(f"{_CPU}/cpu0/cpufreq/cpuinfo_cur_freq")
    if khz is not None:
        return khz // 1000
    match = re.search(r"^cpu MHz\s*:\s*(\d{1,6})", machine.read("proc/cpuinfo"), re.MULTILINE)
    return int(match[1]) if match is not None else None


def gpu_mhz(machine: Machine) -> int | None:
    """The clock of a Jetson's GPU."""
    for name in _GPU_CLOCKS:
        hertz = machine.number(f"sys/class/devfreq/{name}/cur_freq")
        if hertz is not None:
            return hertz // 1_000_000
    return None


def hottest(machine: Machine) -> tuple[float, str] | None:
    """The hottest thermal zone: degrees Celsius and its name."""
    found: tuple[float, str] | None = None
    for zone in machine.names("sys/class/thermal"):
        if zone.startswith("thermal_zone"):
            value = machine.number(f"sys/class/thermal/{zone}/temp")
            # Zones that are off answer an error or -256 degrees.
            if value is not None and 0 < value < 200_000:
                kind = machine.read(f"sys/class/thermal/{zone}/type")[:40]
                found = max(found or (0.0, ""), (value / 1000, kind or zone))
    return found


def over_current_events(machine: Machine) -> int:
    """Over-current events of a Jetson since boot."""
    return sum(count for name, count in throttle_counts(machine).items() if name.startswith("oc"))


def throttle_counts(machine: Machine) -> dict[str, int]:
    """How often something slowed the clocks down since boot, by what it was; empty where nothing
    counts it."""
    counts: dict[str, int] = {}
    for name, path in _counters(machine):
        count = machine.number(path)
        if count is not None:
            counts[name] = counts.get(name, 0) + count
    return counts


def _counters(machine: Machine) -> Iterator[tuple[str, str]]:
    for folder in machine.names("sys/class/hwmon"):
        for event in ("oc1", "oc2", "oc3"):
            yield event, f"sys/class/hwmon/{folder}/{event}_event_cnt"
    for cpu in machine.names(_CPU):
        if re.fullmatch(r"cpu\d{1,4}", cpu):
            yield "CPU heat", f"{_CPU}/{cpu}/thermal_throttle/core_throttle_count"


def throttles_now(machine: Machine) -> dict[str, bool]:
    """A Jetson's thermal throttles by name, and whether each is on; empty where there are none."""
    found: dict[str, bool] = {}
    for name in machine.names("sys/class/thermal"):
        if name.startswith("cooling_device"):
            kind = machine.read(f"sys/class/thermal/{name}/type")[:40]
            state = machine.number(f"sys/class/thermal/{name}/cur_state")
            if "throttle" in kind and state is not None:
                found[kind] = found.get(kind, False) or state > 0
    return found
