"""Power, clocks and throttling of recorded boards, and of a stand-in for NVML."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from edgekit.doctor import nvml, rails, readings
from tests.doctor.test_doctor import BOARD, Files, on, record

HWMON = "sys/class/hwmon"
ORIN_NANO: Files = {
    f"{HWMON}/hwmon1/name": "ina3221\n",
    f"{HWMON}/hwmon1/in1_label": "VDD_IN\n",
    f"{HWMON}/hwmon1/in1_input": "4968\n",
    f"{HWMON}/hwmon1/curr1_input": "1200\n",
    f"{HWMON}/hwmon1/in2_label": "VDD_CPU_GPU_CV\n",
    f"{HWMON}/hwmon1/in2_input": "4968\n",
    f"{HWMON}/hwmon1/curr2_input": "400\n",
    f"{HWMON}/hwmon1/in7_label": "sum of shunt voltages\n",
}
AGX_ORIN: Files = {
    f"{HWMON}/hwmon3/name": "ina3221\n",
    f"{HWMON}/hwmon3/in1_label": "VDD_GPU_SOC\n",
    f"{HWMON}/hwmon3/in1_input": "19000\n",
    f"{HWMON}/hwmon3/curr1_input": "500\n",
    f"{HWMON}/hwmon3/in2_label": "VDD_CPU_CV\n",
    f"{HWMON}/hwmon3/in2_input": "19000\n",
    f"{HWMON}/hwmon3/curr2_input": "100\n",
    f"{HWMON}/hwmon3/in3_label": "VIN_SYS_5V0\n",
    f"{HWMON}/hwmon3/in3_input": "5000\n",
    f"{HWMON}/hwmon3/curr3_input": "900\n",
    f"{HWMON}/hwmon4/name": "ina3221\n",
    f"{HWMON}/hwmon4/in1_label": "NC\n",
    f"{HWMON}/hwmon4/in2_label": "VDDQ_VDD2_1V8AO\n",
    f"{HWMON}/hwmon4/in2_input": "5000\n",
    f"{HWMON}/hwmon4/curr2_input": "200\n",
}
THOR: Files = {
    f"{HWMON}/hwmon0/name": "ina238\n",
    f"{HWMON}/hwmon0/power1_input": "41250000\n",
    f"{HWMON}/hwmon1/name": "ina3221\n",
    f"{HWMON}/hwmon1/in1_label": "VDD_GPU\n",
    f"{HWMON}/hwmon1/in1_input": "5000\n",
    f"{HWMON}/hwmon1/curr1_input": "1000\n",
}


@pytest.mark.parametrize(
    ("files", "names", "watts"),
    [
        (ORIN_NANO, ["VDD_IN"], 4.968 * 1.2),
        (AGX_ORIN, ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"], 16.9),
        (THOR, ["ina238"], 41.25),
        ({}, [], None),
    ],
)
def test_what_a_board_draws(
    tmp_path: Path, files: Files, names: list[str], watts: float | None
) -> None:
    machine = on(record(tmp_path, files))
    found = rails.power_rails(machine)
    assert [rail.name for rail in found] == names
    assert rails.board_watts(machine, found) == (watts and pytest.approx(watts))


def test_a_rail_that_cannot_be_read_leaves_no_sum(tmp_path: Path) -> None:
    machine = on(record(tmp_path, AGX_ORIN | {f"{HWMON}/hwmon3/curr2_input": "error\n"}))
    assert rails.board_watts(machine, rails.power_rails(machine)) is None


def test_clocks_and_throttles_of_a_board(tmp_path: Path) -> None:
    files: Files = BOARD | {
        "sys/class/devfreq/17000000.gpu/cur_freq": "1020000000\n",
        "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
        "sys/class/thermal/cooling_device0/cur_state": "2\n",
        "sys/class/thermal/cooling_device1/type": "gpu-throttle-alert\n",
        "sys/class/thermal/cooling_device1/cur_state": "1\n",
        "sys/class/thermal/cooling_device2/type": "cpu-throttle-alert\n",
        "sys/class/thermal/cooling_device2/cur_state": "0\n",
    }
    machine = on(record(tmp_path, files))
    assert readings.power_mode(machine) == "25W"
    assert readings.cpu_mhz(machine) == 1728
    assert readings.gpu_mhz(machine) == 1020
    assert readings.hottest(machine) == (51.25, "cpu-thermal")
    assert readings.throttles_now(machine) == {
        "gpu-throttle-alert": True,
        "cpu-throttle-alert": False,
    }
    assert readings.throttle_counts(machine) == {"oc3": 0}


def test_a_pc_counts_its_hot_cores_and_tells_its_clock(tmp_path: Path) -> None:
    place = "sys/devices/system/cpu"
    files: Files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU\ncpu MHz\t\t: 2445.406\n",
        f"{place}/cpu0/thermal_throttle/core_throttle_count": "3\n",
        f"{place}/cpu1/thermal_throttle/core_throttle_count": "4\n",
        f"{place}/cpufreq/x": "",
    }
    machine = on(record(tmp_path, files), "cpu")
    assert readings.cpu_mhz(machine) == 2445
    assert readings.throttle_counts(machine) == {"CPU heat": 7}
    assert readings.over_current_events(machine) == 0


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    machine = on(tmp_path)
    assert readings.power_mode(machine) is None
    assert readings.cpu_mhz(machine) is None
    assert readings.gpu_mhz(machine) is None
    assert readings.hottest(machine) is None
    assert readings.throttle_counts(machine) == readings.throttles_now(machine) == {}


class FakeNvml:
    """What the library answers: a value by function name, an int for a status."""

    def __init__(self, **values: int) -> None:
        self.values = values
        self.closed = False

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.closed = True
        return 0

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlDeviceGetHandleByIndex_v2":
            return lambda index, handle: 0
        if name not in self.values:
            raise AttributeError(name)

        def ask(device: object, *arguments: Any) -> int:
            value = self.values[name]
            if value < 0:
                return 3  # not supported
            ctypes.cast(arguments[-1], ctypes.POINTER(ctypes.c_uint))[0] = value
            return 0

        return ask


def test_nvml_tells_power_clocks_heat_and_throttles() -> None:
    library = FakeNvml(
        nvmlDeviceGetPowerUsage=412_500,
        nvmlDeviceGetClockInfo=1980,
        nvmlDeviceGetTemperature=61,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x4 | 0x1,
    )
    gpu = nvml.Nvml(library)
    assert gpu.watts() == 412.5
    assert gpu.sm_mhz() == gpu.memory_mhz() == 1980
    assert gpu.celsius() == 61
    assert [name for name, on_now in gpu.throttles_now().items() if on_now] == ["power cap"]
    gpu.close()
    assert library.closed


def test_what_nvml_does_not_support_is_unknown() -> None:
    gpu = nvml.Nvml(FakeNvml(nvmlDeviceGetPowerUsage=-1))
    assert gpu.watts() is None
    assert gpu.celsius() is None
    assert gpu.throttles_now() == {}


def test_no_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such-library.so")
    assert nvml.open_nvml() is None
