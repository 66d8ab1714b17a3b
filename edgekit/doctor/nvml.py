"""The first GPU through NVIDIA's management library, which the driver brings.

Asked through ctypes, because nvidia-smi takes longer to start than many measurements last. Whatever
the library does not answer, as much of it does not on unified memory, is None.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_GPU_SENSOR = 0
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of the clocks event reasons that slow a busy GPU down."""


class Nvml:
    """One GPU.

    Args:
        library: the loaded library; `open_nvml` loads it.

    Raises:
        OSError: it does not start, or finds no GPU.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._device = ctypes.c_void_p()
        if library.nvmlInit_v2() != 0:
            raise OSError("NVML does not start")
        if library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)) != 0:
            library.nvmlShutdown()
            raise OSError("NVML finds no GPU")

    def watts(self) -> float | None:
        """What the GPU draws: a mean over the last second or less, by its generation."""
        milliwatts = self._ask("nvmlDeviceGetPowerUsage", ctypes.c_uint())
        return milliwatts / 1000 if milliwatts is not None else None

    def sm_mhz(self) -> int | None:
        """The clock of the multiprocessors."""
        return self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint(), _SM_CLOCK)

    def memory_mhz(self) -> int | None:
        """The clock of the memory."""
        return self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint(), _MEMORY_CLOCK)

    def celsius(self) -> int | None:
        """The GPU's temperature."""
        return self._ask("nvmlDeviceGetTemperature", ctypes.c_uint(), _GPU_SENSOR)

    def throttles_now(self) -> dict[str, bool]:
        """What may slow the clocks down, and whether it does now; empty where it is not told."""
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
        return (
            {name: bool(bits & bit) for bit, name in _REASONS.items()} if bits is not None else {}
        )

    def close(self) -> None:
        """Ends the use of the library."""
        self._library.nvmlShutdown()

    def _ask(self, function: str, answer: Any, *arguments: int) -> int | None:
        try:
            status = getattr(self._library, function)(
                self._device, *arguments, ctypes.byref(answer)
            )
        except AttributeError:  # a driver without it
            return None
        return int(answer.value) if status == 0 else None


def open_nvml() -> Nvml | None:
    """The first GPU, None where the driver or a GPU is missing."""
    try:
        return Nvml(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError):
        return None
