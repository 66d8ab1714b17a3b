"""Doctor on recorded trees of boards, with one fault each, and on trees made to hurt it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.detect import Gpu
from edgekit.doctor import Check, Machine, examine
from edgekit.doctor.device import jetpack_of
from edgekit.doctor.examine import CHECKS
from edgekit.profile import load_profile, profile_names

Files = dict[str, str | bytes]

NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n"
SWAPS = "Filename\tType\tSize\tUsed\tPriority\n"
BOARD: Files = {
    "proc/meminfo": "MemTotal: 7801856 kB\nMemFree: 300000 kB\nMemAvailable: 6900000 kB\n"
    "Cached: 4000000 kB\nHugePages_Total:       0\n",
    "proc/swaps": SWAPS,
    "proc/sys/kernel/osrelease": "5.15.148-tegra\n",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=25W >\n"
    "< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n< POWER_MODEL ID=3 NAME=7W >\n",
    "var/lib/nvpmodel/status": "pmode:0001 fmode:cool\n",
    "usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.6.11"}}',
    "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0": "",
    "usr/bin/python3.10": "",
    "dev/nvmap": "",
    "dev/nvhost-gpu": "",
    "dev/dri/renderD128": "",
    "etc/group": "root:x:0:\nvideo:x:44:ada\nrender:x:104:\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "51250\n",
    "sys/class/thermal/thermal_zone1/type": "tj-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "-256000\n",
    "sys/class/hwmon/hwmon3/oc3_event_cnt": "0\n",
    "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_cur_freq": "1728000\n",
}


def record(root: Path, files: Files) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def on(root: Path, profile: str = "orin-nano-8gb") -> Machine:
    return Machine(
        root=root,
        profile=load_profile(profile),
        profile_why="recorded",
        bundles=root / "bundles",
        python=(3, 10),
        installed={"tensorrt": "10.3.0"}.get,
        port_is_free=lambda port: True,
    )


def rows(machine: Machine) -> dict[str, Check]:
    found = list(examine(machine))
    assert [check.name for check in found] == [name for name, _ in CHECKS]
    assert all(check.reason for check in found)
    return {check.name: check for check in found}


def test_a_healthy_orin_nano(tmp_path: Path) -> None:
    found = rows(on(record(tmp_path, BOARD)))
    # The disk is this machine's.
    bad = {n: c for n, c in found.items() if c.status != "ok" and n != "disk"}
    assert bad == {}
    assert found["jetpack"].reason == "L4T 36.4.3 is JetPack 6.2"
    assert found["power mode"].reason == "25W"
    # 300 MB MemFree under 4 GB of page cache is no shortage.
    assert "6.58 GiB of 7.44 GiB available" in found["memory"].reason


def test_a_healthy_spark(tmp_path: Path) -> None:
    root = record(
        tmp_path,
        {
            **{name: BOARD[name] for name in BOARD if name.startswith(("sys", "usr/bin"))},
            "proc/meminfo": "MemTotal: 127000000 kB\nMemAvailable: 121000000 kB\n",
            "proc/swaps": SWAPS + "/swap.img file 16777212 0 -2\n",
            "proc/sys/kernel/osrelease": "6.17.0-1021-nvidia",
            "proc/driver/nvidia/version": NVRM,
            "usr/local/cuda/version.json": '{"cuda": {"version": "13.0.2"}}',
            "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.14.1": "",
            "dev/nvidiactl": "",
            "dev/nvidia0": "",
        },
    )
    machine = replace(
        on(root, "dgx-spark"),
        gpu=Gpu("NVIDIA GB10", "12.1", 0, 0),
        installed={"tensorrt": "10.14.1"}.get,
    )
    found = rows(machine)
    assert {n for n, c in found.items() if c.status != "ok" and n != "disk"} == set()
    assert "580.95.05" in found["driver"].reason
    assert rows(replace(machine, gpu=None))["driver"].status == "fail"


FAULTS: list[tuple[str, Files, str, str, str]] = [
    ("proc/meminfo", {"proc/meminfo": ""}, "memory", "unknown", ""),
    (
        "reserve",
        {"proc/meminfo": "MemTotal: 7801856 kB\nMemAvailable: 400000 kB\n"},
        "memory",
        "fail",
        "stop other programs",
    ),
    (
        "desktop",
        {"proc/meminfo": "MemTotal: 7801856 kB\nMemAvailable: 4000000 kB\n"},
        "memory",
        "warn",
        "multi-user.target",
    ),
    ("zram", {"proc/swaps": SWAPS + "/dev/zram0 partition 634968 0 5\n"}, "swap", "warn", "zram"),
    (
        "huge",
        {"proc/meminfo": str(BOARD["proc/meminfo"]).replace("0\n", "9000\n")},
        "huge pages",
        "warn",
        "nr_hugepages=0",
    ),
    # The number to go back to 25W is read from this board's own file.
    ("slow mode", {"var/lib/nvpmodel/status": "pmode:0000"}, "power mode", "warn", "nvpmodel -m 1"),
    (
        "ids moved",
        {
            "var/lib/nvpmodel/status": "pmode:0003",
            "etc/nvpmodel.conf": "< POWER_MODEL ID=3 NAME=15W >\n< POWER_MODEL ID=7 NAME=25W >",
        },
        "power mode",
        "warn",
        "nvpmodel -m 7 ",
    ),
    ("no mode", {"var/lib/nvpmodel/status": "?"}, "power mode", "unknown", "nvpmodel -q"),
    (
        "old L4T",
        {"etc/nv_tegra_release": "# R35 (release), REVISION: 4.1"},
        "jetpack",
        "fail",
        "JetPack",
    ),
    ("container", {"etc/nv_tegra_release": ""}, "jetpack", "unknown", "host"),
    (
        "old CUDA",
        {"usr/local/cuda/version.json": '{"cuda": {"version": "11.4"}}'},
        "cuda",
        "fail",
        "cuda-toolkit",
    ),
    ("no CUDA", {"usr/local/cuda/version.json": "[" * 60000}, "cuda", "unknown", "cuda-toolkit"),
    (
        "two TensorRTs",
        {"usr/lib/aarch64-linux-gnu/libnvinfer.so.10.16.2": ""},
        "tensorrt",
        "fail",
        "pip uninstall",
    ),
    (
        "bad kernel",
        {"proc/sys/kernel/osrelease": "6.17.0-1008-nvidia"},
        "kernel",
        "warn",
        "older or a newer",
    ),
    ("hot", {"sys/class/thermal/thermal_zone0/temp": "91000"}, "thermals", "warn", "fan"),
    (
        "over-current",
        {
            "sys/class/hwmon/hwmon3/oc3_event_cnt": "2",
            "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_cur_freq": "242000",
        },
        "clocks",
        "fail",
        "unplug",
    ),
    ("events", {"sys/class/hwmon/hwmon3/oc3_event_cnt": "2"}, "clocks", "warn", "power supply"),
    ("damaged bundle", {"bundles/a/manifest.json": "{"}, "bundles", "fail", ""),
]


@pytest.mark.parametrize(
    ("files", "name", "status", "fix"),
    [pytest.param(*fault[1:], id=fault[0]) for fault in FAULTS],
)
def test_a_fault(tmp_path: Path, files: Files, name: str, status: str, fix: str) -> None:
    check = rows(on(record(tmp_path, {**BOARD, **files})))[name]
    assert check.status == status
    assert fix in check.fix
    assert check.fix or status == "unknown"


def test_python_and_tensorrt_that_do_not_meet(tmp_path: Path) -> None:
    machine = on(record(tmp_path, BOARD))
    assert rows(replace(machine, python=(3, 12)))["python"].status == "warn"
    unseen = rows(replace(machine, installed=lambda name: None))["tensorrt"]
    assert unseen.status == "warn"
    assert "--system-site-packages" in unseen.fix
    (tmp_path / "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0").unlink()
    assert rows(replace(machine, installed=lambda name: None))["tensorrt"].status == "fail"
    old = rows(replace(machine, installed=lambda name: "8.6.2"))["tensorrt"]
    assert (old.status, "older than 10.3" in old.reason) == ("fail", True)


@pytest.mark.parametrize(
    ("mode", "groups", "status"),
    [
        (0o660, {1000}, "fail"),
        (0o660, {1000, 44}, "ok"),
        (0o440, {44}, "ok"),
        (0o666, {1000}, "ok"),
        (0o600, {44}, "fail"),
    ],
)
def test_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, groups: set[int], status: str
) -> None:
    root = record(tmp_path, {**BOARD})
    for name in ("dev/nvhost-gpu", "dev/dri/renderD128"):
        (root / name).unlink()
    (root / "dev/nvmap").chmod(mode)
    real = Path.stat

    def owned(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        info = list(real(path, follow_symlinks=follow_symlinks))
        info[4:6] = [0, 44]  # root:video
        return os.stat_result(info)

    monkeypatch.setattr(Path, "stat", owned)
    machine = replace(on(root), uid=1000, groups=frozenset(groups))
    check = rows(machine)["permissions"]
    assert check.status == status
    if status == "fail":
        assert "needs group video (gid 44)" in check.reason
        assert check.fix.startswith("sudo usermod -aG video")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    machine = replace(on(record(tmp_path, BOARD)), port_is_free=lambda port: port != 8080)
    assert rows(machine)["port"].status == "warn"
    assert rows(replace(machine, port=8081))["port"].status == "ok"


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ((36, 4, 0), "6.1"),
        ((36, 4, 7), "6.2"),
        ((36, 5, 0), "6.2"),
        ((38, 2, 1), "7.0"),
        ((38, 4, 0), "7.1"),
        ((39, 2, 0), "7.2"),
        ((45, 0, 0), "7.2"),
        ((32, 7), "5.0 or older"),
    ],
)
def test_jetpack_of(release: tuple[int, ...], name: str) -> None:
    assert jetpack_of(release) == name


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 300)


def huge_number(path: Path) -> None:
    path.write_text("9" * 200_000)


def loop(path: Path) -> None:
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def digits_of_another_script(path: Path) -> None:
    path.write_text("pmode:٣ ²\nMemAvailable: ² kB\nHugePages_Total: ²\na b ² ²\na b ٣ ٣\n")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "hurt", [garbage, huge_number, loop, folder, pipe, digits_of_another_script, endless]
)
@pytest.mark.parametrize("profile", ["orin-nano-8gb", "dgx-spark", "cpu"])
def test_hostile_trees(tmp_path: Path, hurt: Callable[[Path], None], profile: str) -> None:
    record(tmp_path, {**BOARD, "proc/driver/nvidia/version": NVRM})
    for name in (*BOARD, "proc/driver/nvidia/version"):
        (tmp_path / name).unlink()
        hurt(tmp_path / name)
    found = rows(on(tmp_path, profile))
    assert found["memory"].status == "unknown"
    assert found["thermals"].status == "unknown"


def test_a_folder_without_end(tmp_path: Path) -> None:
    record(tmp_path, BOARD)
    for i in range(5000):
        (tmp_path / f"sys/class/hwmon/x{i}").touch()
    assert rows(on(tmp_path))["clocks"].status in ("ok", "unknown")


@pytest.mark.parametrize("profile", profile_names())
def test_every_profile_on_an_empty_tree(tmp_path: Path, profile: str) -> None:
    found = rows(on(tmp_path, profile))
    assert found["memory"].status == "unknown"
