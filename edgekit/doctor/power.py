"""Power mode, clocks and temperatures."""

from __future__ import annotations

import re

from edgekit.doctor.check import Check, Machine

HOT_CELSIUS = 85.0
"""Boards slow down above; Jetson's software throttling begins in the nineties."""
_STUCK_KHZ = 300_000


def check_power_mode(machine: Machine) -> Check:
    """The nvpmodel mode by its name: the numbers differ from board to board."""
    power = machine.profile.power
    if not power.modes:
        return Check("power mode", "ok", "this device has no nvpmodel")
    match = re.match(r"pmode:(\d{1,4})\b", machine.read("var/lib/nvpmodel/status"))
    names = {
        int(number): name
        for number, name in re.findall(
            r"<\s*POWER_MODEL\s+ID=(\d{1,4})\s+NAME=([\w.-]{1,40})\s*>",
            machine.read("etc/nvpmodel.conf"),
        )
    }
    mode = names.get(int(match[1])) if match is not None else None
    if mode is None:
        return Check(
            "power mode",
            "unknown",
            "neither /var/lib/nvpmodel/status nor /etc/nvpmodel.conf tells",
            "sudo nvpmodel -q",
        )
    wanted = next((n for n, name in names.items() if name == power.recommended), None)
    change = f"sudo nvpmodel -m {wanted}  # {power.recommended}; it may ask to reboot"
    if mode in power.slow:
        return Check(
            "power mode",
            "warn",
            f"{mode} slows memory, which decoding waits for",
            change if wanted is not None else f"flash the configuration with {power.recommended}",
        )
    return Check("power mode", "ok", mode)


def check_clocks(machine: Machine) -> Check:
    """No CPU core is stuck near its lowest clock, as after an over-current event."""
    events = 0
    for folder in machine.names("sys/class/hwmon"):
        for name in ("oc1", "oc2", "oc3"):
            events += machine.number(f"sys/class/hwmon/{folder}/{name}_event_cnt") or 0
    # scaling_cur_freq shows what was asked for, cpuinfo_cur_freq what the hardware does.
    clock = machine.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_cur_freq")
    if events and clock is not None and clock < _STUCK_KHZ:
        return Check(
            "clocks",
            "fail",
            f"CPU 0 is at {clock // 1000} MHz after {events} over-current events",
            "unplug the board for a minute, then use the power supply it came with",
        )
    if events:
        return Check(
            "clocks",
            "warn",
            f"{events} over-current events since boot",
            "use the power supply that came with the board",
        )
    if clock is None:
        return Check("clocks", "unknown", "this system does not tell the CPU's clock")
    return Check("clocks", "ok", f"CPU 0 at {clock // 1000} MHz, no over-current events")


def check_thermals(machine: Machine) -> Check:
    """The hottest thermal zone."""
    hottest: tuple[float, str] | None = None
    for zone in machine.names("sys/class/thermal"):
        if zone.startswith("thermal_zone"):
            value = machine.number(f"sys/class/thermal/{zone}/temp")
            # Zones that are off answer an error or -256 degrees.
            if value is not None and 0 < value < 200_000:
                kind = machine.read(f"sys/class/thermal/{zone}/type")[:40]
                hottest = max(hottest or (0.0, ""), (value / 1000, kind or zone))
    if hottest is None:
        return Check("thermals", "unknown", "no thermal zone gives a temperature")
    celsius, kind = hottest
    text = f"{kind} is the hottest at {celsius:.0f} °C"
    if celsius >= HOT_CELSIUS:
        return Check("thermals", "warn", f"{text}: clocks go down soon", "sudo jetson_clocks --fan")
    return Check("thermals", "ok", text)
