"""edgekit's plugins, run through NVIDIA's own `tensorrt.plugin` without TensorRT.

`python -m tests.tools.nvidia_plugins GRAPH TOKENS...`, in the environment that `environment` makes,
adds a `plugin` graph to a network that only records, for each number of tokens, and prints what
TensorRT would be told, as JSON. With an `EngineRequest` on stdin instead, the engine's builder
runs, whose "plan" is that JSON. NVIDIA's package is real: its decorators, its checks, its plugin
class and its builder's configuration. Stand-ins are the network, the expressions, which here are
numbers, the compiler and the GPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgekit.export.engine.request import EngineRequest
from edgekit.kernels.launch import Kernel

_LIBRARIES = {
    "libnvinfer.so.11": "libtensorrt_rtx.so.1",
    "libnvonnxparser.so.11": "libtensorrt_onnxparser_rtx.so.1",
}
_EMPTY = "int initLibNvInferPlugins(void* logger, const char* space) { return 1; }"


def missing() -> str | None:
    """What keeps NVIDIA's package from being imported here."""
    for module in ("tensorrt_bindings", "tensorrt_rtx_libs"):
        if find_spec(module) is None:
            return f"{module} is not installed"
    return None if shutil.which("gcc") else "there is no gcc"


def environment(folder: Path) -> dict[str, str]:
    """An environment where `import tensorrt` is TensorRT's package over other libraries."""
    (folder / "tensorrt").symlink_to(_folder_of("tensorrt_bindings"))
    for name, target in _LIBRARIES.items():
        (folder / name).symlink_to(_folder_of("tensorrt_rtx_libs") / target)
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        str(folder / "libnvinfer_plugin.so.11"),
    ]
    subprocess.run(command, input=_EMPTY, text=True, check=True)
    return {**os.environ, "PYTHONPATH": f"{folder}:{Path.cwd()}", "LD_LIBRARY_PATH": str(folder)}


def _folder_of(module: str) -> Path:
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def record(environment: dict[str, str], graph: Path, tokens: list[int]) -> list[dict[str, Any]]:
    """What the network of a graph is told, for each number of tokens."""
    words = [sys.executable, "-m", "tests.tools.nvidia_plugins", str(graph), *map(str, tokens)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def build(environment: dict[str, str], request: EngineRequest) -> dict[str, Any]:
    """Runs the builder's process on a request for TensorRT; its last answer."""
    words = [sys.executable, "-m", "tests.tools.nvidia_plugins"]
    done = subprocess.run(
        words,
        input=request.to_json(),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# -- in that environment


class Number:
    """A dimension: TensorRT's expression, but known."""

    def __init__(self, value: int) -> None:
        self.value = value

    def is_constant(self) -> bool:
        return False


class Argument:
    """TensorRT's `ISymExpr`."""


class Tensor:
    """TensorRT's `ITensor`."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        self.name, self.dtype, self.shape = "", dtype, shape


class Numbers:
    """TensorRT's expression builder."""

    def __init__(self, trt: Any) -> None:
        operations = trt.DimensionOperation
        self._apply = {
            operations.SUM: lambda a, b: a + b,
            operations.SUB: lambda a, b: a - b,
            operations.PROD: lambda a, b: a * b,
            operations.FLOOR_DIV: lambda a, b: a // b,
        }

    def constant(self, value: int) -> Number:
        return Number(value)

    def operation(self, operation: Any, first: Number, second: Number) -> Number:
        return Number(self._apply[operation](first.value, second.value))


class Slots:
    """Whatever TensorRT has filled: launch parameters, or arguments."""

    def __init__(self) -> None:
        self.items: dict[int, Any] = {}

    def __setitem__(self, index: int, value: Any) -> None:
        self.items[index] = value


class Recorder:
    """A network that asks each plugin what TensorRT asks when it builds."""

    def __init__(self, trt: Any, tokens: int) -> None:
        self._trt, self._tokens = trt, tokens
        self.plugins: list[dict[str, Any]] = []
        self.inputs: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.outputs: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._made_by: dict[int, str] = {}
        self._declared: dict[str, tuple[int, ...]] = {}

    num_layers = 0

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, index: int) -> Any:
        name = list(self.inputs)[index]
        return SimpleNamespace(name=name, shape=self._declared[name])

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_output(self, index: int) -> Any:
        return SimpleNamespace(name=list(self.outputs)[index])

    def add_input(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Tensor:
        known = tuple(self._tokens if dim == -1 else dim for dim in shape)
        self.inputs[name] = (dtype.name, known)
        self._declared[name] = shape
        return Tensor(dtype, known)

    def mark_output(self, tensor: Tensor) -> None:
        self.outputs[tensor.name] = (tensor.dtype.name, tensor.shape)

    def told(self) -> dict[str, Any]:
        return {"plugins": self.plugins, "inputs": self.inputs, "outputs": self.outputs}

    def add_plugin(self, create: Any, *, aot: bool) -> Any:
        assert aot
        trt, builder = self._trt, Numbers(self._trt)
        tensors, _, plugin = create(trt.QuickPluginCreationRequest.STRICT_AOT)
        types = plugin.get_output_data_types(
            [tensor.dtype for tensor in tensors], [len(tensor.shape) for tensor in tensors]
        )
        expressions = [[Number(dim) for dim in tensor.shape] for tensor in tensors]
        shapes = plugin.get_output_shapes(expressions, [], builder)
        made = [
            Tensor(dtype, tuple(dim.value for dim in shape))
            for dtype, shape in zip(types, shapes, strict=True)
        ]
        described = [_describe(trt, tensor) for tensor in (*tensors, *made)]
        supported = plugin.get_supported_format_combinations(described, len(tensors))
        assert [one.type for one in supported] == [one.desc.type for one in described]
        assert {one.format for one in supported} == {trt.TensorFormat.LINEAR}
        split = len(tensors)
        plugin.configure_plugin(described[:split], described[split:])
        assert plugin.get_valid_tactics() == []
        plugin.set_tactic(0)
        params, arguments = Slots(), Slots()
        plugin.get_launch_params(expressions, described, split, params, arguments, builder)
        plain = [one.desc for one in described]
        kernel, ptx = plugin.get_kernel(plain[:split], plain[split:])
        values = {name: vars(params)[name].expr.value for name in _PARAMETERS}
        sizes = [arguments.items[i] for i in range(len(arguments.items))]
        assert all(size.dtype == trt.PluginArgDataType.INT32 for size in sizes)
        self.plugins.append(
            {
                **values,
                "kernel": kernel,
                "ptx": ptx.decode(),
                "integers": [size.expr.value for size in sizes],
                "outputs": [(tensor.dtype.name, tensor.shape) for tensor in made],
                "aliased": [plugin.get_aliased_input(i) for i in range(len(made))],
                "reads": [self._made_by.get(id(tensor), "") for tensor in tensors],
            }
        )
        for i, tensor in enumerate(made):
            self._made_by[id(tensor)] = f"{len(self.plugins) - 1}.{i}"
        return Layer(made)


class Layer:
    def __init__(self, outputs: list[Tensor]) -> None:
        self._outputs = outputs
        self.name = ""

    def get_output(self, index: int) -> Tensor:
        return self._outputs[index]


_PARAMETERS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_mem")


def _describe(trt: Any, tensor: Tensor) -> Any:
    described = trt.DynamicPluginTensorDesc()
    plain = trt.PluginTensorDesc()
    plain.type, plain.dims, plain.format = tensor.dtype, tensor.shape, trt.TensorFormat.LINEAR
    described.desc = plain
    described.min = described.max = described.opt = tensor.shape
    return described


def main() -> None:
    """Records the graph that the command line names, or builds what stdin asks for."""
    answers = os.fdopen(os.dup(1), "w")
    import tensorrt as trt

    trt.IDimensionExpr, trt.ISymExpr, trt.ITensor = Number, Argument, Tensor
    trt.DimsExprs = lambda length: [None] * length
    if len(sys.argv) == 1:
        build_here(trt)
        return
    os.dup2(2, 1)  # TensorRT's log goes to stderr
    import tensorrt.plugin as plugin

    from edgekit.export.engine.plugin_network import add_graph, read_plugin_graph
    from edgekit.export.engine.plugins import PluginLibrary

    library = PluginLibrary(trt, plugin, key_as_ptx)
    graph = read_plugin_graph(Path(sys.argv[1]))
    for tokens in map(int, sys.argv[2:]):
        network = Recorder(trt, tokens)
        add_graph(network, trt, library, graph)
        answers.write(json.dumps(network.told()) + "\n")
    answers.close()


def key_as_ptx(kernel: Kernel, sm: int = 0) -> bytes:
    """Compiles nothing."""
    return kernel.key.encode()


def build_here(trt: Any) -> None:
    """Runs the builder's process with a builder whose plans are what networks are told."""
    from edgekit.export.engine import check, worker

    real, flags = trt.Builder, trt.NetworkDefinitionCreationFlag
    names: list[str] = []

    class Builder:
        def __init__(self, log: Any) -> None:
            self._real = real(log)
            self.create_builder_config = self._real.create_builder_config
            self.create_optimization_profile = self._real.create_optimization_profile

        def create_network(self, chosen: int) -> Recorder:
            assert chosen & 1 << int(flags.PREFER_AOT_PYTHON_PLUGINS)
            assert chosen & 1 << int(flags.STRONGLY_TYPED)
            return Recorder(trt, 1)

        def build_serialized_network(self, network: Recorder, config: Any) -> bytes:
            assert config.get_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03)
            names.extend([*network.inputs, *network.outputs])
            profiles = config.num_optimization_profiles
            return json.dumps({**network.told(), "profiles": profiles}).encode()

    class Runtime:
        def __init__(self, log: Any) -> None:
            pass

        def deserialize_cuda_engine(self, plan: bytes) -> Any:
            layers = len(json.loads(plan)["plugins"])
            return SimpleNamespace(
                num_io_tensors=len(names), num_layers=layers, get_tensor_name=names.__getitem__
            )

    trt.Builder, trt.Runtime = Builder, Runtime
    worker.compile_ptx = key_as_ptx
    check.gpu_here = lambda: 121
    worker.main()


if __name__ == "__main__":
    main()
