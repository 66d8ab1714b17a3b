"""What a Jetson draws: the rails that its INA monitors measure, through hwmon.

ina3221   in<n>_label, in<n>_input in millivolts, curr<n>_input in milliamperes, n = 1..3
ina238    power1_input in microwatts: the whole supply of a Thor developer kit
          (forums.developer.nvidia.com 366461)
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.doctor.check import Machine

_HWMON = "sys/class/hwmon"
_WHOLE = ("VDD_IN", "VIN")
"""Rails that all others are behind."""
_SUPPLY = "ina238"


@dataclass(frozen=True, slots=True)
class Rail:
    """A rail's name, and where its power is read: microwatts, or millivolts and milliamperes."""

    name: str
    files: tuple[str, ...]

    def watts(self, machine: Machine) -> float | None:
        """What goes through it now."""
        values = [machine.number(file) for file in self.files]
        if len(values) == 1 and values[0] is not None:
            return values[0] / 1e6
        if len(values) == 2 and values[0] is not None and values[1] is not None:
            return values[0] * values[1] / 1e6
        return None


def power_rails(machine: Machine) -> tuple[Rail, ...]:
    """The rails to add up: the one that supplies the board where it is measured, else all that
    are. Empty without a monitor."""
    found: list[Rail] = []
    for folder in machine.names(_HWMON):
        place = f"{_HWMON}/{folder}"
        monitor = machine.read(f"{place}/name")
        if monitor == _SUPPLY:
            return (Rail(_SUPPLY, (f"{place}/power1_input",)),)
        if monitor == "ina3221":
            for n in (1, 2, 3):
                name = machine.read(f"{place}/in{n}_label")[:40]
                if name and name != "NC":  # not connected
                    files = (f"{place}/in{n}_input", f"{place}/curr{n}_input")
                    found.append(Rail(name, files))
    whole = [rail for rail in found if rail.name in _WHOLE]
    return tuple(whole[:1] or found)


def board_watts(machine: Machine, rails: tuple[Rail, ...]) -> float | None:
    """Their sum; None where there is none or one cannot be read."""
    watts = [rail.watts(machine) for rail in rails]
    if not watts or None in watts:
        return None
    return sum(value for value in watts if value is not None)
