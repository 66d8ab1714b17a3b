"""Which executor a build is for, by what is installed."""

from __future__ import annotations

import pytest

from edgekit import engines
from edgekit.choice import Choice
from edgekit.detect import Gpu
from edgekit.engines import choose_executor, parse_version
from edgekit.profile import Executor, load_profile

BY_PROFILE: Choice[Executor] = Choice("tensorrt", "profile dgx-spark")


@pytest.mark.parametrize(
    ("versions", "sm", "value", "why"),
    [
        ({}, 121, "kernels", "TensorRT is not installed, TensorRT for RTX is not installed"),
        ({"tensorrt-rtx": "1.7.1.116"}, 121, "tensorrt-rtx", "TensorRT for RTX 1.7.1.116"),
        ({"tensorrt-rtx": "1.7.1.116"}, 87, "kernels", "does not build for sm_87"),
        ({"tensorrt-rtx": "1.6.0"}, 121, "kernels", "1.6.0 is older than 1.7"),
        ({"tensorrt": "11.4.0.106"}, 87, "tensorrt", "TensorRT 11.4.0.106 is installed"),
        (
            {"tensorrt": "10.3.0", "tensorrt-rtx": "1.7.1.116"},
            121,
            "tensorrt-rtx",
            "TensorRT for RTX 1.7.1.116 is installed",
        ),
        ({"tensorrt": "10.13.3.9"}, 110, "tensorrt", "TensorRT 10.13.3.9 is installed"),
        ({"tensorrt": "10.3.0"}, 87, "kernels", "TensorRT 10.3.0 is older than 10.9"),
    ],
)
def test_tensorrt_is_whatever_can_be_built(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], sm: int, value: str, why: str
) -> None:
    monkeypatch.setattr(engines, "installed", versions.get)
    monkeypatch.setattr(engines, "gpu_here", lambda: sm)
    choice = choose_executor(BY_PROFILE, sm)
    assert choice.value == value
    assert choice.why.startswith("profile dgx-spark; ")
    assert why in choice.why


def test_tensorrt_is_chosen_on_the_device_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"tensorrt": "10.13.3.9", "tensorrt-rtx": "1.7.1.116"}
    monkeypatch.setattr(engines, "installed", found.get)
    monkeypatch.setattr(engines, "gpu_here", lambda: 90)
    assert choose_executor(BY_PROFILE, 121).value == "tensorrt-rtx"
    choice = choose_executor(BY_PROFILE, 110)
    assert choice.value == "kernels"
    assert "TensorRT builds for sm_110 on such a device only" in choice.why


@pytest.mark.parametrize(
    ("said", "profile", "expected"),
    [
        ("12.1", "cpu", 121),
        (None, "agx-orin-64gb", 87),
        ("[N/A]", "thor-t5000", 110),
        (None, "cpu", None),
    ],
)
def test_the_gpu_at_hand(
    monkeypatch: pytest.MonkeyPatch, said: str | None, profile: str, expected: int | None
) -> None:
    """A Jetson may have no nvidia-smi, or one that does not know."""
    gpu = Gpu("", said, 0, 0) if said else None
    monkeypatch.setattr(engines, "query_gpu", lambda: gpu)
    monkeypatch.setattr(engines, "detect_profile", lambda: Choice(profile, "device tree"))
    assert engines.gpu_here() == expected


def test_what_was_chosen_stays() -> None:
    for value in ("ort", "kernels", "tensorrt-rtx"):
        chosen: Choice[Executor] = Choice(value, "recipe")  # type: ignore[arg-type]
        assert choose_executor(chosen, None) is chosen
    assert load_profile("gpu").defaults.executor == "kernels"


def test_versions_are_their_leading_numbers() -> None:
    assert parse_version("10.13.3.9") == (10, 13, 3, 9)
    assert parse_version("11.4.0rc1") == (11, 4)
