"""Detection on recorded machines: each board, hostile trees, and this machine's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import detect
from edgekit.detect import Gpu, detect_profile, device_memory, parse_gpu, read_meminfo
from edgekit.errors import MissingDependencyError
from edgekit.profile import load_profile


def machine(root: Path, files: dict[str, str | bytes], memory_mib: int = 16000) -> Path:
    """A recorded file system."""
    meminfo = f"MemTotal: {memory_mib * 1024} kB\nMemAvailable: {memory_mib * 900} kB\n"
    for name, content in {"proc/meminfo": meminfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def jetson(model: str, soc: str, **more: str) -> dict[str, str | bytes]:
    return {
        "proc/device-tree/model": model.encode() + b"\0",
        "proc/device-tree/compatible": f"nvidia,board\0nvidia,{soc}\0".encode(),
        **{name.replace("__", "/"): value for name, value in more.items()},
    }


ORIN_NANO = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
ORIN_NX = "NVIDIA Jetson Orin NX Engineering Reference Developer Kit"
AGX_ORIN = "NVIDIA Jetson AGX Orin Developer Kit"
THOR = "NVIDIA Jetson AGX Thor Developer Kit"
BOOT = "etc__nv_boot_control.conf"


@pytest.mark.parametrize(
    ("files", "memory_mib", "expected"),
    [
        (jetson(ORIN_NANO, "tegra234"), 7619, "orin-nano-8gb"),
        (jetson(ORIN_NANO, "tegra234"), 3500, "orin-nano-4gb"),
        (jetson(ORIN_NX, "tegra234"), 7500, "orin-nx-8gb"),
        (jetson(ORIN_NX, "tegra234"), 15500, "orin-nx-16gb"),
        (jetson(AGX_ORIN, "tegra234"), 30600, "agx-orin-32gb"),
        (jetson(AGX_ORIN, "tegra234"), 62800, "agx-orin-64gb"),
        (jetson(THOR, "tegra264"), 125772, "thor-t5000"),
        (jetson("NVIDIA Jetson Thor Developer Kit", "tegra264"), 125772, "thor-t5000"),
        (
            jetson("NVIDIA Jetson", "tegra264", **{BOOT: "TNSPEC 3834-jetson-agx-thor-t4000"}),
            62000,
            "thor-t4000",
        ),
        # A module number beats model and memory, in each way boards write it.
        (jetson("custom carrier", "tegra234", **{BOOT: "TNSPEC 3767-300-0003-N.2"}), 7619, None),
        (
            jetson("carrier", "tegra234", **{"proc__device-tree__nvidia,boardids": "3767:0001:1"}),
            7619,
            "orin-nx-8gb",
        ),
        (
            jetson(
                "carrier",
                "tegra234",
                **{
                    "proc__device-tree__nvidia,dtsfilename": "tegra234-p3768-0000+p3767-0005-nv.dts"
                },
            ),
            7619,
            "orin-nano-8gb",
        ),
        ({"sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n"}, 122000, "dgx-spark"),
        ({"sys/class/dmi/id/product_name": "Dell Pro Max with GB10 FCM1253"}, 122000, "dgx-spark"),
        (
            {
                "sys/class/dmi/id/product_name": "30KLS00000",
                "sys/class/dmi/id/product_version": "ThinkStationPGX",
            },
            122000,
            "dgx-spark",
        ),
        ({"sys/class/dmi/id/product_name": "Standard PC"}, 16000, "cpu"),
        ({}, 16000, "cpu"),
        # A phone's device tree is no Jetson.
        ({"proc/device-tree/compatible": b"qcom,sm8550\0"}, 8000, "cpu"),
        ({"proc/device-tree/compatible": b"\xff\xfe\0\0" * 1000}, 8000, "cpu"),
    ],
)
def test_boards(
    tmp_path: Path, files: dict[str, str | bytes], memory_mib: int, expected: str | None
) -> None:
    found = detect_profile(machine(tmp_path, files, memory_mib))
    assert found.why
    if expected is None:
        assert load_profile(found.value).sm == "8.7"
    else:
        assert found.value == expected


def test_a_desktop_card_is_a_gpu(tmp_path: Path) -> None:
    card = Gpu("NVIDIA GeForce RTX 4090", "8.9", 24564, 24000)
    assert detect_profile(machine(tmp_path, {}), card).value == "gpu"


def test_gb10_is_a_spark_only_with_unified_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "_is_arm", lambda: True)
    root = machine(tmp_path, {})
    assert detect_profile(root, Gpu("NVIDIA GB10", "12.1", 0, 0)).value == "dgx-spark"
    assert detect_profile(root, Gpu("a discrete card", "12.1", 16000, 16000)).value == "gpu"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("NVIDIA H200, 9.0, 143771, 143000\n", Gpu("NVIDIA H200", "9.0", 143771, 143000)),
        ("NVIDIA GB10, 12.1, [N/A], Not Supported\n", Gpu("NVIDIA GB10", "12.1", 0, 0)),
        ("", None),
        ("NVIDIA-SMI has failed because it couldn't communicate", None),
    ],
)
def test_nvidia_smi_answers(answer: str, expected: Gpu | None) -> None:
    assert parse_gpu(answer) == expected


def test_memory_of_a_board_comes_from_its_profile(tmp_path: Path) -> None:
    memory = device_memory(load_profile("orin-nano-8gb"), tmp_path)
    assert memory.total == 8 << 30
    assert memory.usable == 6800 << 20


def test_memory_of_a_cpu_comes_from_the_machine(tmp_path: Path) -> None:
    memory = device_memory(load_profile("cpu"), machine(tmp_path, {}, 1000))
    assert memory.total == 1000 << 20
    assert memory.usable == 900 * 1024 * 1000
    here = device_memory(load_profile("cpu"))
    assert 0 < here.usable <= here.total


def test_meminfo_that_is_missing_or_foreign(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match="cannot read"):
        read_meminfo(tmp_path)
    root = machine(tmp_path, {"proc/meminfo": "MemTotal: lots\nMemFree 3\n"})
    with pytest.raises(MissingDependencyError, match="MemAvailable"):
        read_meminfo(root)


def test_a_card_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "query_gpu", lambda: None)
    with pytest.raises(MissingDependencyError, match="'gpu'"):
        device_memory(load_profile("gpu"))
