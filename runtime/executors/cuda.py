"""Launches compiled kernels through the CUDA driver, on the stream that torch works on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

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

    def __call__(
        self, launch: Launch, inputs: Sequence[int], outputs: Sequence[int], stream: int
    ) -> None:
        """Enqueues one launch.

        Args:
            inputs, outputs: device addresses, in the kernel's order.
            stream: handle of a CUDA stream.
        """
        driver = self._driver
        if launch.shared > self._shared:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._check(driver.cuFuncSetAttribute(self._function, attribute, launch.shared))
            self._shared = launch.shared
        values = (*inputs, *launch.integers, *outputs)
        kinds = (
            *(ctypes.c_void_p for _ in inputs),
            *(ctypes.c_int for _ in launch.integers),
            *(ctypes.c_void_p for _ in outputs),
        )
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block, 1, 1
        config.sharedMemBytes = launch.shared
        config.hStream = stream
        # The kernel may start while the one before it ends; it waits where it must (common.cuh).
        # GPUs before sm_90 ignore this.
        overlap = driver.CUlaunchAttribute()
        overlap.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        overlap.value.programmaticStreamSerializationAllowed = 1
        config.attrs = [overlap]
        config.numAttrs = 1
        self._check(driver.cuLaunchKernelEx(config, self._function, (values, kinds), 0))

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
