"""What a measurement ran on: the machine, and what its sensors showed meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from threading import Event, Thread
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

import edgekit
from edgekit.bundle import Bundle
from edgekit.doctor import Machine, rails, readings
from edgekit.doctor.nvml import Nvml

_POWER_SECONDS = 0.1
_LOOK_EVERY = 10
"""Clocks and temperatures are looked at with every tenth reading of power."""

_PACKAGES = {
    "onnxruntime-cpu": ("onnxruntime", "onnxruntime-gpu"),
    "torch-cuda": ("torch",),
    "tensorrt": ("tensorrt", "tensorrt-cu13"),
    "tensorrt-rtx": ("tensorrt-rtx", "tensorrt-rtx-cu13"),
}


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the sensors; None and empty where a machine does not tell."""

    cpu_mhz: int | None
    gpu_mhz: int | None
    memory_mhz: int | None
    celsius: float | None
    throttles: Mapping[str, bool]
    counts: Mapping[str, int]


class Sensors:
    """Clocks, temperatures and power of a machine.

    Args:
        nvml: its NVIDIA GPU; None without one.
    """

    def __init__(self, machine: Machine, nvml: Nvml | None) -> None:
        self._machine, self._nvml = machine, nvml
        self._rails = rails.power_rails(machine)

    def watts(self) -> float | None:
        """The board's rails where they are measured, else what the GPU draws."""
        if self._rails:
            return rails.board_watts(self._machine, self._rails)
        return self._nvml.watts() if self._nvml is not None else None

    @property
    def power_source(self) -> str:
        """Where `watts` come from; empty without any."""
        if self._rails:
            return "+".join(rail.name for rail in self._rails)
        return "NVML, the GPU alone" if self._nvml and self._nvml.watts() is not None else ""

    def look(self) -> Look:
        """Everything else, now."""
        machine, nvml = self._machine, self._nvml
        zone = readings.hottest(machine)
        celsius = [value for value in (zone and zone[0], nvml and nvml.celsius()) if value]
        return Look(
            cpu_mhz=readings.cpu_mhz(machine),
            gpu_mhz=(nvml.sm_mhz() if nvml else None) or readings.gpu_mhz(machine),
            memory_mhz=nvml.memory_mhz() if nvml else None,
            celsius=max(celsius, default=None),
            throttles=readings.throttles_now(machine) | (nvml.throttles_now() if nvml else {}),
            counts=readings.throttle_counts(machine),
        )


@dataclass(slots=True)
class PowerLog:
    """Watts by the time on the clock of `perf_counter`, in order."""

    times: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)

    def joules(self, started: float, ended: float) -> float | None:
        """Energy between two times: the readings in between, and what lines through their
        neighbours say of the ends. None without any reading."""
        if not self.times:
            return None
        inside = [t for t in self.times if started < t < ended]
        times = np.array([started, *inside, ended])
        return float(np.trapezoid(np.interp(times, self.times, self.watts), times))


class Watch:
    """Looks at the sensors from a thread, as long as the `with` block takes."""

    def __init__(self, sensors: Sensors, clock: Callable[[], float] = perf_counter) -> None:
        self._sensors, self._clock = sensors, clock
        self._stop = Event()
        self._thread = Thread(target=self._run, name="sensors", daemon=True)
        self.power = PowerLog()
        self.looks: list[Look] = []

    def __enter__(self) -> Watch:
        self.looks.append(self._sensors.look())
        self._read_power()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._read_power()
        self.looks.append(self._sensors.look())

    def _run(self) -> None:
        ticks = 0
        while not self._stop.wait(_POWER_SECONDS):
            ticks += 1
            self._read_power()
            if ticks % _LOOK_EVERY == 0:
                self.looks.append(self._sensors.look())

    def _read_power(self) -> None:
        watts = self._sensors.watts()
        if watts is not None:
            self.power.times.append(self._clock())
            self.power.watts.append(watts)


def throttling(looks: list[Look]) -> list[str] | None:
    """What slowed the clocks down while somebody looked; None where nothing tells."""
    if not any(look.throttles or look.counts for look in looks):
        return None
    seen = {name for look in looks for name, on in look.throttles.items() if on}
    before, after = looks[0].counts, looks[-1].counts
    seen |= {name for name, count in after.items() if count > before.get(name, 0)}
    return sorted(seen)


def environment_record(
    bundle: Bundle, machine: Machine, sensors: Sensors, looks: list[Look]
) -> dict[str, Any]:
    """The environment as JSON; what could not be read is None."""
    modes = machine.profile.power.modes
    return {
        "edgekit": edgekit.__version__,
        "executor": bundle.manifest.executor,
        "executor_version": _executor_version(bundle.manifest.executor),
        "profile": machine.profile.name,
        "profile_why": machine.profile_why,
        "cpu": cpu_name(machine),
        "gpu": machine.gpu.name if machine.gpu is not None else None,
        "power_mode": readings.power_mode(machine) if modes else "none",
        "cpu_mhz": _range([look.cpu_mhz for look in looks]),
        "gpu_mhz": _range([look.gpu_mhz for look in looks]),
        "memory_mhz": _range([look.memory_mhz for look in looks]),
        "celsius": _range([look.celsius for look in looks]),
        "throttling": throttling(looks),
        "power_source": sensors.power_source or None,
    }


def cpu_name(machine: Machine) -> str | None:
    """The CPU as /proc/cpuinfo has it: a name, on Arm the number of the core's design."""
    text = machine.read("proc/cpuinfo")
    match = re.search(r"^(model name|CPU part)\s*:\s*(.{1,80}?)\s*$", text, re.MULTILINE)
    if match is None:
        return None
    return match[2] if match[1] == "model name" else f"Arm core {match[2]}"


def _range(values: list[Any]) -> list[Any] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else None


def _executor_version(executor: str) -> str | None:
    for package in _PACKAGES.get(executor, ()):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
