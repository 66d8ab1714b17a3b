"""Plugins of TensorRT: NVIDIA's own plugin package is told what the torch executor launches."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.bundle import Bundle
from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.errors import BuildError, MissingDependencyError
from edgekit.export import build as module
from edgekit.export import engines
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.engine import EngineRequest, Profile
from edgekit.export.engine.flavour import Toolkit
from edgekit.export.engine.plugin_network import ARRIVALS_OUT, PluginGraph, read_plugin_graph
from edgekit.export.engine.plugins import (
    check_shared_memory,
    most_tokens,
    plugin_name,
)
from edgekit.export.engines import EngineTarget
from edgekit.export.plugins.compile import compile_kernel, compile_ptx
from edgekit.kernels.attention import LIMITED_KEYS, AttentionLayer, KvCache, attention_prefill
from edgekit.kernels.launch import MAX_SHARED, Kernel, Launch
from edgekit.kernels.linear import linear_step
from edgekit.kernels.linear_prefill import linear_prefill
from edgekit.kernels.moe import MoeLayer, moe_down_step, moe_route_step
from edgekit.kernels.moe_prefill import moe_down_prefill, moe_route_prefill
from edgekit.kernels.nodes import ARRIVALS, form
from edgekit.kernels.weights import Matrix
from edgekit.runtime.executors.plugin_graph import read_graph
from edgekit.runtime.executors.program import Call, Layout, View, arrange, lay_out
from tests.executors.fake_plugin_engine import graph_as_plan
from tests.export.corrupt import LIGHTNING_SMALL
from tests.tools import nvidia_plugins
from tests.tools.random_checkpoint import write_random_checkpoint
from tests.tools.synthetic_lightning import write_synthetic_lightning

CONTEXT, CHUNK = 72, 24
TOKENS = {
    "step": [1, 2, 8],
    "verify": [1, 8],
    "prefill": [9, 300],
    "head": [1, 8],
    "pick": [1, 8],
    "draw": [1, 8],
    "judge": [1, 8],
    "commit": [8],
}
DTYPES = {"float32": "FLOAT", "bfloat16": "BF16", "int32": "INT32"}

needs_nvidia = pytest.mark.skipif(
    nvidia_plugins.missing() is not None, reason=str(nvidia_plugins.missing())
)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")


def build(
    checkpoint: Path,
    output: Path,
    kv_dtype: KvCache = "bfloat16",
    drafts: DraftRequest | None = None,
) -> Bundle:
    request = BuildRequest(
        checkpoint,
        output,
        "jetson-thor",
        "none",
        CONTEXT,
        CHUNK,
        lowering="plugin",
        sm=110,
        engine=EngineTarget("tensorrt", 110),
        kv_dtype=kv_dtype,
        taps=(0, 1),
        drafts=drafts or DraftRequest(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "build_engine", graph_as_plan)
        patch.setattr(module, "check_installed", lambda *what: None)
        return Bundle.open(build_bundle(request))


@pytest.fixture(scope="module", params=["nvfp4", "dense", "e4m3 cache"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("plugins")
    if request.param == "nvfp4":
        dims = replace(LIGHTNING_SMALL, head_dim=32)
        return build(write_synthetic_lightning(root / "checkpoint", dims=dims), root / "bundle")
    checkpoint = write_random_checkpoint(
        root / "checkpoint", pattern="ME*-", dtype="bfloat16", head_dim=32
    )
    kv_dtype: KvCache = "float8_e4m3fn" if request.param == "e4m3 cache" else "bfloat16"
    return build(checkpoint, root / "bundle", kv_dtype)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return nvidia_plugins.environment(tmp_path_factory.mktemp("nvidia"))


def graph_file(bundle: Bundle, kind: str) -> Path:
    name = getattr(bundle.manifest.target, kind)
    assert name is not None
    return bundle.file(name)


def executor_calls(path: Path, graph: PluginGraph, T: int) -> tuple[list[Call], Layout]:
    """What the torch executor launches for T tokens."""
    own = read_graph(path)
    bound = {}
    for name, (dtype, dims) in graph.inputs.items():
        shape = tuple(T if dim == -1 else dim for dim in dims)
        bound[name] = View(None, 0, shape, dtype)
    layout = lay_out(own, T, bound)
    return arrange(own, T, bound, layout, None), layout


@needs_nvidia
@pytest.mark.parametrize("kind", TOKENS)
def test_tensorrt_is_told_what_the_executor_launches(
    bundle: Bundle, environment: dict[str, str], kind: str
) -> None:
    """Kernel, grid, block, shared memory, integers, shapes and types of every launch, with the
    number of tokens as an expression there and as a number here."""
    path = graph_file(bundle, kind)
    graph = read_plugin_graph(path)
    told = nvidia_plugins.record(environment, path, TOKENS[kind])
    for T, network in zip(TOKENS[kind], told, strict=True):
        calls, layout = executor_calls(path, graph, T)
        for call, plugin in zip(calls, network["plugins"], strict=True):
            check_plugin(call, plugin, T, layout)
        check_bindings(network, graph, T, bundle)


@needs_nvidia
def test_so_it_is_for_a_draft(environment: dict[str, str], tmp_path: Path) -> None:
    """nano's DSpark draft, all of its graphs."""
    nano = embedded_checkpoint()
    bundle = build(nano, tmp_path / "bundle", drafts=DraftRequest(nano / "draft"))
    (draft,) = bundle.manifest.drafts
    for name, file in draft.graphs.items():
        path = bundle.file(file)
        graph = read_plugin_graph(path)
        tokens = [1, 8] if any(-1 in dims for _, dims in graph.inputs.values()) else [1]
        told = nvidia_plugins.record(environment, path, tokens)
        for T, network in zip(tokens, told, strict=True):
            calls, layout = executor_calls(path, graph, T)
            assert calls, name
            for call, plugin in zip(calls, network["plugins"], strict=True):
                check_plugin(call, plugin, T, layout)


def check_plugin(call: Call, plugin: dict[str, Any], T: int, layout: Layout) -> None:
    launch = call.launch
    assert [plugin["grid_x"], plugin["grid_y"], plugin["grid_z"]] == list(launch.grid)
    assert [plugin["block_x"], plugin["block_y"], plugin["block_z"]] == [launch.block, 1, 1]
    assert plugin["shared_mem"] == launch.shared
    assert plugin["integers"] == list(launch.integers)
    assert (plugin["kernel"], plugin["ptx"]) == (launch.kernel.name, launch.kernel.key)
    made = form(call.node.op, call.node.attributes, T)
    for i, (output, actual) in enumerate(zip(made.outputs, plugin["outputs"], strict=True)):
        aliased = plugin["aliased"][i]
        assert aliased == made.state.get(i, -1)
        if aliased == -1:
            assert actual == [DTYPES[output.dtype], list(output.shape)]
        else:
            name = call.node.outputs[i]
            assert layout.aliases.get(name, name) in (call.node.inputs[aliased], name)


def check_bindings(network: dict[str, Any], graph: PluginGraph, T: int, bundle: Bundle) -> None:
    """Inputs and outputs are the graph's; every state comes out as it went in."""
    assert list(network["inputs"]) == list(graph.inputs)
    assert set(network["outputs"]) - {ARRIVALS_OUT} == set(graph.outputs) - {ARRIVALS_OUT}
    for name, described in network["outputs"].items():
        source = name.replace("_out", "", 1)
        if source in network["inputs"]:
            assert described == network["inputs"][source]
    counters = [p for p in network["plugins"] if ["INT32", [ARRIVALS]] in p["outputs"]]
    for earlier, later in itertools.pairwise(counters):
        # One after the other: a launch's counters are those that the one before has left.
        at = earlier["outputs"].index(["INT32", [ARRIVALS]])
        assert f"{network['plugins'].index(earlier)}.{at}" in later["reads"]


@needs_nvidia
def test_the_builder_makes_an_engine_of_plugins(
    bundle: Bundle, environment: dict[str, str], tmp_path: Path
) -> None:
    """Up to the call that needs TensorRT: flags, preview feature, profiles, files, report."""
    path = graph_file(bundle, "step")
    asked = EngineRequest(
        "tensorrt", path, tmp_path / "step.plan", 121, (Profile(1, 1, 8),), frozenset(), 0
    )
    report = nvidia_plugins.build(environment, asked)
    assert report["type"] == "done", report
    plan = json.loads(asked.plan.read_text())
    assert plan["profiles"] == 1
    assert report["layers"] == len(plan["plugins"]) == len(read_plugin_graph(path).launches)
    assert report["nbytes"] == asked.plan.stat().st_size
    assert list(tmp_path.iterdir()) == [asked.plan]


@needs_nvidia
def test_another_gpu_than_the_machine_has_is_refused(
    bundle: Bundle, environment: dict[str, str], tmp_path: Path
) -> None:
    asked = EngineRequest(
        "tensorrt",
        graph_file(bundle, "step"),
        tmp_path / "step.plan",
        110,
        (Profile(1, 1, 8),),
        frozenset(),
        0,
    )
    answer = nvidia_plugins.build(environment, asked)
    assert (answer["type"], answer["kind"]) == ("error", "BuildError")
    assert "not for sm_110" in answer["error"]
    assert "this machine has sm_121" in answer["cause"]


def test_a_tensorrt_without_such_plugins_is_refused() -> None:
    """Older than 10.9, or without the parts of its Python package that make them."""
    with pytest.raises(MissingDependencyError, match=r"10\.8\.0 is too old") as caught:
        Toolkit("tensorrt", None, "10.8.0").check(87, frozenset())
    assert "10.9 has them" in caught.value.cause
    assert "10.9 or newer" in caught.value.hint
    bare = Toolkit("tensorrt", SimpleNamespace(__name__="nowhere"), "10.13.3.9")
    with pytest.raises(MissingDependencyError, match="cannot carry edgekit's kernels") as caught:
        bare.plugins()
    assert "nowhere" in caught.value.cause


@pytest.mark.parametrize("kind", ["step", "verify", "head", "commit"])
def test_equal_launches_are_one_plugin(bundle: Bundle, kind: str) -> None:
    graph = read_plugin_graph(graph_file(bundle, kind))
    names = [plugin_name(op, attributes, ("float32",)) for op, attributes in graph.launches]
    distinct = {(op, str(sorted(attributes.items()))) for op, attributes in graph.launches}
    assert len(set(names)) == len(distinct)


LIGHTNING_EXPERTS = MoeLayer(
    up=Matrix(1856, 2688, "nvfp4"),
    down=Matrix(2688, 1856, "nvfp4"),
    n_routed_experts=128,
    num_experts_per_tok=6,
    shared_up=Matrix(3712, 2688, "nvfp4"),
    shared_down=Matrix(2688, 3712, "nvfp4"),
)


@needs_nvcc
@pytest.mark.parametrize(
    "launch",
    [
        linear_step(8, Matrix(10304, 2688, "fp8"), input="float32", output="bfloat16"),
        moe_route_step(8, LIGHTNING_EXPERTS),
        moe_down_step(8, LIGHTNING_EXPERTS),
        moe_route_prefill(512, LIGHTNING_EXPERTS),
        moe_down_prefill(512, LIGHTNING_EXPERTS),
        linear_prefill(512, Matrix(10304, 2688, "fp8"), output="bfloat16"),
        attention_prefill(512, AttentionLayer(32, 2, 128, 0.088), 4096, LIMITED_KEYS),
    ],
    ids=lambda launch: launch.kernel.name,
)
def test_lightnings_kernels_stay_within_the_limit(launch: Launch) -> None:
    """Static shared memory, of which only the compiler knows, counts as well."""
    usage = compile_kernel(launch.kernel, 121).usage
    assert usage is not None
    assert launch.shared + usage.shared <= MAX_SHARED


@needs_nvcc
def test_a_kernel_becomes_ptx() -> None:
    ptx = compile_ptx(Kernel("embed.cu", "embed"), 121).decode()
    assert ".target sm_121" in ptx
    assert ".entry embed(" in ptx


def test_too_much_shared_memory_is_refused() -> None:
    wide = {"N": 64, "K": 4096, "format": "fp8", "group": 64, "norm_groups": 0, "epsilon": 0.0}
    launch = (
        "linear_step",
        wide | {"input": "bfloat16", "output": "float32", "relu2": 0, "residual": 1},
    )
    assert most_tokens([launch], 8) == 5
    check_shared_memory([launch], 5)
    with pytest.raises(BuildError, match=r"linear_step takes .* for 6 tokens") as caught:
        check_shared_memory([launch], 6)
    assert "5 tokens" in caught.value.hint
