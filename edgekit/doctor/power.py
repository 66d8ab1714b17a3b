"""Power mode, clocks and temperatures."""

from __future__ import annotations

from edgekit.doctor.check import Check, Machine
from edgekit.doctor.readings import cpu_mhz, hottest, over_current_events, power_mode, power_modes

HOT_CELSIUS = 85.0
"""Boards slow down above; Jetson's software throttling begins in the nineties."""
_STUCK_MHZ = 300


def check_power_mode(machine: Machine) -> Check:
    """The nvpmodel mode by its name: the numbers differ from board to board."""
    power = machine.profile.power
    if not power.modes:
        return Check("power mode", "ok", "this device has no nvpmodel")
    mode = power_mode(machine)
    if mode is None:
        return Check(
            "power mode",
            "unknown",
            "neither /var/lib/nvpmodel/status nor /etc/nvpmodel.conf tells",
            "sudo nvpmodel -q",
        )
    modes = power_modes(machine).items()
    wanted = next((n for n, name in modes if name == power.recommended), None)
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
    events, clock = over_current_events(machine), cpu_mhz(machine)
    if events and clock is not None and clock < _STUCK_MHZ:
        return Check(
            "clocks",
            "fail",
            f"CPU 0 is at {clock} MHz after {events} over-current events",
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
    return Check("clocks", "ok", f"CPU 0 at {clock} MHz, no over-current events")


def check_thermals(machine: Machine) -> Check:
    """The hottest thermal zone."""
    zone = hottest(machine)
    if zone is None:
        return Check("thermals", "unknown", "no thermal zone gives a temperature")
    celsius, kind = zone
    text = f"{kind} is the hottest at {celsius:.0f} °C"
    if celsius >= HOT_CELSIUS:
        return Check("thermals", "warn", f"{text}: clocks go down soon", "sudo jetson_clocks --fan")
    return Check("thermals", "ok", text)
