"""Launches compiled kernels through the CUDA driver, on the stream that torch works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.errors import BuildError, MissingDependencyError
from edgekit.kernels.launch import Launch


class Function:
    """One kernel, loaded into the current context from its cubin.

    Args:
        cubin: compiled for this GPU.
        name: the `extern "C"` function.

    Raises:
        MissingDependencyError: cuda-bindings is not installed.
        BuildError: the cubin is for another GPU, or has no such function.
    """

    def __init__(self, cubin: bytes, name: str) -> None:
        self._driver = driver = _driver()
        self.name = name
        self._module = self._check(driver.cuModuleLoadData(cubin))
        self._function = self._check(driver.cuModuleGetFunction(self._module, name.encode()))
        self._shared = 0  # the dynamic shared memory that the driver allows it
        self._config = driver.CUlaunchConfig()
        self._config.blockDimY = self._config.blockDimZ = 1
        # The kernel may start while the one before it ends; it waits where it must (common.cuh).
        # GPUs before sm_90 ignore this.
        overlap = driver.CUlaunchAttribute()
        overlap.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        overlap.value.programmaticStreamSerializationAllowed = 1
        self._config.attrs = [overlap]
        self._config.numAttrs = 1

    def __call__(
        self, launch: Launch, inputs: Sequence[int], outputs: Sequence[int], stream: int
    ) -> None:
        """Enqueues one launch.

        Args:
            inputs, outputs: device addresses, in the kernel's order.
            stream: handle of a CUDA stream.
        """
        driver, config = self._driver, self._config
        if launch.shared > self._shared:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._check(driver.cuFuncSetAttribute(self._function, attribute, launch.shared))
            self._shared = launch.shared
        # Each argument in the first bytes of a word of its own; the driver copies them at once.
        integers = (value & 0xFFFFFFFF for value in launch.integers)
        values = np.array([*inputs, *integers, *outputs], np.uint64)
        places = np.arange(len(values), dtype=np.uint64) * 8 + np.uint64(values.ctypes.data)
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX = launch.block
        config.sharedMemBytes = launch.shared
        config.hStream = stream
        status = driver.cuLaunchKernelEx(config, self._function, places.ctypes.data, 0)
        self._check(status)

    def _check(self, result: tuple[Any, ...]) -> Any:
        status, *values = result
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise BuildError(
                f"CUDA refused kernel {self.name!r}",
                cause=f"{status.name}",
                hint="build the bundle again on this machine",
            )
        return values[0] if values else None


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingDependencyError(
            "the CUDA bindings are not installed",
            cause=str(error),
            hint="pip install 'edgekit-nemotron[cuda]'",
        ) from None
    return driver
