"""All checks, one after the other; none can stop the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from edgekit.doctor import device, host, memory, power, software
from edgekit.doctor.check import Check, Machine

CHECKS: tuple[tuple[str, Callable[[Machine], Check]], ...] = (
    ("device", device.check_device),
    ("kernel", software.check_kernel),
    ("driver", device.check_driver),
    ("permissions", device.check_permissions),
    ("jetpack", device.check_jetpack),
    ("cuda", software.check_cuda),
    ("tensorrt", software.check_tensorrt),
    ("python", software.check_python),
    ("memory", memory.check_memory),
    ("huge pages", memory.check_huge_pages),
    ("swap", memory.check_swap),
    ("power mode", power.check_power_mode),
    ("clocks", power.check_clocks),
    ("thermals", power.check_thermals),
    ("disk", host.check_disk),
    ("port", host.check_port),
    ("bundles", host.check_bundles),
)


def examine(machine: Machine) -> Iterator[Check]:
    """One row a check, as they are done; a check that fails itself is an unknown row."""
    for name, check in CHECKS:
        try:
            yield check(machine)
        except Exception as error:  # a machine may be broken in ways nobody thought of
            yield Check(name, "unknown", f"could not be checked: {error or type(error).__name__}")
