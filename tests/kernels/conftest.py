"""Each kernel test runs on the emulator, and on the GPU where there is one."""

from __future__ import annotations

import shutil
from types import ModuleType

import pytest

from tests.tools import emulator, gpu


@pytest.fixture(params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> ModuleType:
    """A module with `run(launch, inputs, outputs)`."""
    if request.param == "emulator":
        if shutil.which("g++") is None:
            pytest.skip("no g++ to compile the emulator with")
        return emulator
    return _gpu()


@pytest.fixture
def on_gpu() -> ModuleType:
    """`backend` for sizes that take the emulator minutes."""
    return _gpu()


def _gpu() -> ModuleType:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    return gpu


@pytest.fixture
def needs_nvcc() -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
