"""edgekit's kernels as ahead-of-time plugins of TensorRT (`tensorrt.plugin`, since 10.9).

Every distinct launch of a `plugin` graph is one plugin: its kernel as PTX, its grid and integers as
expressions of the number of tokens, taken from the launch description that every executor evaluates
(`edgekit.kernels.nodes`). The engine carries all of it, so running one needs neither this code nor
a library. What such a plugin cannot do, and what follows:

- Its launch takes no attributes. Nothing raises a kernel's limit of dynamic shared memory above 48
  KiB, and PTX cannot ask for more, so launches stay below it (`check_shared_memory`).
- Its launch has no programmatic dependence: `griddepcontrol` does nothing then.
- Arguments are pointers and 32-bit integers: floats travel as their bits.
- It has no workspace: scratch memory is one of its outputs.
- TensorRT may copy an aliased input first; its output is right either way, if both are bound to one
  address.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from types import GenericAlias
from typing import Any

from edgekit.errors import BuildError
from edgekit.kernels.launch import MAX_SHARED, Kernel
from edgekit.kernels.nodes import DType, form, tokens_at

NAMESPACE = "edgekit"
_COMBINATION = {"float32": "FP32", "bfloat16": "BF16", "int32": "INT32"}

Attributes = Mapping[str, Any]
Compile = Callable[[Kernel], bytes]


def check_shared_memory(launches: Iterable[tuple[str, Attributes]], T: int) -> None:
    """Refuses a graph that takes more shared memory for T tokens than a plugin has.

    Raises:
        BuildError: which operator, how much, and for how many tokens it would fit.
    """
    for op, attributes in launches:
        needed = form(op, attributes, T).launch.shared
        if needed > MAX_SHARED:
            fits = most_tokens([(op, attributes)], T)
            raise BuildError(
                f"{op} takes {needed} bytes of shared memory for {T} tokens",
                cause=f"TensorRT launches a plugin's kernel with {MAX_SHARED} at most",
                hint=f"build the engine for {fits} tokens a step, or with --executor kernels"
                if fits
                else "build with --executor kernels",
            )


def most_tokens(launches: Iterable[tuple[str, Attributes]], most: int) -> int:
    """The largest T up to `most` for which every launch fits, 0 without one."""
    for op, attributes in launches:
        while most and form(op, attributes, most).launch.shared > MAX_SHARED:
            most -= 1
    return most


class PluginLibrary:
    """Registers plugins as they are asked for.

    Args:
        trt: TensorRT's module. plugin: its `plugin` module. compile: a kernel's PTX.
    """

    def __init__(self, trt: Any, plugin: Any, compile: Compile) -> None:
        self._plugin, self._compile = plugin, compile
        self._types = {
            "float32": trt.DataType.FLOAT,
            "bfloat16": trt.DataType.BF16,
            "int32": trt.DataType.INT32,
        }
        self._ptx: dict[Kernel, bytes] = {}

    def operator(self, op: str, attributes: Attributes, inputs: tuple[DType, ...]) -> Any:
        """What `INetworkDefinition.add_plugin` takes, once called with the input tensors.

        Args:
            inputs: their types.
        """
        name = plugin_name(op, attributes, inputs)
        namespace = getattr(self._plugin.op, NAMESPACE, None)
        if namespace is None or not hasattr(namespace, name):
            self._register(name, op, attributes, inputs)
        return getattr(getattr(self._plugin.op, NAMESPACE), name)

    def ptx(self, kernel: Kernel) -> bytes:
        """A kernel's PTX, compiled once."""
        if kernel not in self._ptx:
            self._ptx[kernel] = self._compile(kernel)
        return self._ptx[kernel]

    def _register(
        self, name: str, op: str, attributes: Attributes, inputs: tuple[DType, ...]
    ) -> None:
        plugin, key = self._plugin, f"{NAMESPACE}::{name}"
        Desc = plugin.TensorDesc
        made = form(op, attributes, 1)
        names = [f"in{i}" for i in range(len(inputs))]
        tensors = GenericAlias(tuple, (Desc,) * len(made.outputs))
        types = [*inputs]
        for i, output in enumerate(made.outputs):
            types.append(inputs[made.state[i]] if i in made.state else output.dtype)
        combination = ", ".join(_COMBINATION[dtype] for dtype in types)

        def tokens(descriptions: tuple[Any, ...]) -> Any:
            at = tokens_at(op)
            return descriptions[at[0]].shape_expr[at[1]] if at is not None else 1

        def describe(*given: Any) -> Any:
            found = form(op, attributes, tokens(given))
            return tuple(
                given[found.state[i]].aliased()
                if i in found.state
                else plugin.from_shape_expr(output.shape, self._types[output.dtype])
                for i, output in enumerate(found.outputs)
            )

        def autotune(*given: Any) -> Any:
            return [plugin.AutoTuneCombination(combination, "LINEAR")]

        def implement(*given: Any) -> Any:
            launch = form(op, attributes, tokens(given)).launch
            params = plugin.KernelLaunchParams()
            params.grid_x, params.grid_y, params.grid_z = launch.grid
            params.block_x, params.shared_mem = launch.block, launch.shared
            integers = plugin.SymIntExprs(len(launch.integers))
            for i, value in enumerate(launch.integers):
                integers[i] = plugin.SymInt32(value)
            return launch.kernel.name, self.ptx(launch.kernel), params, integers

        result = GenericAlias(tuple, (str, bytes, plugin.KernelLaunchParams, plugin.SymIntExprs))
        combinations = GenericAlias(list, plugin.AutoTuneCombination)
        plugin.register(key)(_with_signature(describe, names, tensors, annotation=Desc))
        plugin.autotune(key)(_with_signature(autotune, [*names, "outputs"], combinations))
        plugin.aot_impl(key)(_with_signature(implement, [*names, "outputs", "tactic"], result))


def plugin_name(op: str, attributes: Attributes, inputs: tuple[DType, ...]) -> str:
    """A name that differs whenever the plugin does."""
    identity = json.dumps([sorted(attributes.items()), inputs])
    return f"{op}_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _with_signature(
    function: Any, names: list[str], returns: Any, annotation: Any = inspect.Parameter.empty
) -> Any:
    """Gives a function of any number of arguments the signature that TensorRT asks for."""
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
            for name in names
        ],
        return_annotation=returns,
    )
    return function
