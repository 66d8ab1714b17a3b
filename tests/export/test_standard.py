"""The `standard` graph, run by ONNX Runtime, equals the NumPy definitions: logits, states, caches,
taps and stash, on every kind of layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from edgekit.export.checkpoint import Checkpoint
from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.nemotron_h import build_commit, build_step
from edgekit.export.graph.tensors import constant
from edgekit.export.lower import standard
from edgekit.export.lower.packing import Source
from edgekit.export.lower.standard_weights import matrix
from edgekit.export.reference import ReferenceSession, run_graph
from edgekit.ops.formats import WeightFormat, dequantize
from tests.executors.cases import CASES, TOLERANCE, random_model
from tests.tools.int4_checkpoint import write_int4_checkpoint

Array = npt.NDArray[Any]
CONTEXT = 448
LENGTHS = (300, 1, 4, 128, 2)
"""Chunks of a sequence, so that all but the first begin with states that are not zero."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standard")


def load(model: ir.Model) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # TensorScatter warns where past and present differ
    data = ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, feeds: dict[str, Array]) -> dict[str, Array]:
    taken = {value.name for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    given = {name: array for name, array in feeds.items() if name in taken}
    return dict(zip(names, session.run(names, given), strict=True))


class StandardSession(ReferenceSession):
    """A sequence run by ONNX Runtime, with caches [1, kv heads, context, head_dim]."""

    def __init__(self, checkpoint: Checkpoint, taps: tuple[int, ...] = ()) -> None:
        canonical = build_step(checkpoint, taps)
        super().__init__(canonical, checkpoint.spec, CONTEXT)
        self.session = load(standard.lower(canonical, checkpoint.spec, CONTEXT, "float32"))

    def step(self, tokens: Any, rows: Any = None, on_progress: Any = None) -> dict[str, Array]:
        state = {
            name: array[None] if "_cache" in name else array for name, array in self._state.items()
        }
        T = len(tokens)
        feeds = {"tokens": np.array(tokens), "rows": np.arange(T) if rows is None else rows}
        outputs = run(self.session, feeds | state | {"length": np.array(self.length)})
        for name in self._state:
            kind, layer = name.split(".")
            out = f"{kind}_out.{layer}"
            outputs[out] = outputs[out][0] if "_cache" in name else outputs[out]
            self._state[name] = outputs[out]
        self.length += T
        return outputs


@pytest.mark.parametrize("name", CASES)
def test_every_output_is_the_references(name: str, root: Path) -> None:
    model = random_model(name, root)
    checkpoint = Checkpoint.open(model.folder)
    taps = tuple(range(len(checkpoint.spec.layers)))
    expected = ReferenceSession(build_step(checkpoint, taps), checkpoint.spec, CONTEXT)
    actual = StandardSession(checkpoint, taps)
    for T in LENGTHS:
        ids = model.ids[expected.length :][:T]
        wanted, got = expected.step(ids), actual.step(ids)
        assert set(got) == set(wanted)
        for output, array in wanted.items():
            assert got[output].shape == array.shape, output
            assert np.abs(got[output] - array).max() <= TOLERANCE, f"{output} after {T} tokens"


@pytest.mark.parametrize("name", ["every-kind", "attention-first", "four-groups"])
def test_commit_replays_rows_into_the_state(name: str, root: Path) -> None:
    checkpoint = Checkpoint.open(random_model(name, root).folder)
    canonical = build_commit(checkpoint)
    assert canonical is not None
    session = load(standard.lower(canonical, checkpoint.spec, CONTEXT, "float32"))
    rng = np.random.default_rng(3)
    for n in (1, 3, 8):
        feeds = {}
        for value in canonical.graph.inputs:
            assert value.shape is not None
            dims = [n if isinstance(dim, ir.SymbolicDim) else int(dim) for dim in value.shape]
            feeds[str(value.name)] = rng.standard_normal(dims).astype(np.float32)
        wanted, got = run_graph(canonical, feeds), run(session, feeds)
        assert set(got) == set(wanted)
        for output, array in wanted.items():
            assert np.abs(got[output] - array).max() <= TOLERANCE, f"{output}, {n} rows"


def test_only_operators_of_onnx_itself(root: Path) -> None:
    checkpoint = Checkpoint.open(random_model("every-kind", root).folder)
    for compute in ("float32", "bfloat16"):
        model = standard.lower(build_step(checkpoint), checkpoint.spec, CONTEXT, compute)
        assert {node.domain for node in model.graph} == {""}
        assert not {"Loop", "Scan", "If"} & {node.op_type for node in model.graph}
        onnx.checker.check_model(ir.to_proto(model), full_check=True)


@pytest.mark.parametrize("experts", [(), (3,)], ids=["matrix", "experts"])
@pytest.mark.parametrize("form", ["dense", "fp8", "nvfp4", "int4"])
def test_weights_mean_what_their_format_says(form: WeightFormat, experts: tuple[int, ...]) -> None:
    """By onnx's own evaluator, which knows four-bit floats; the graph has the bits as stored."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (*experts, 32, 64), np.uint8)
    parts: list[Array] = {
        "dense": [rng.standard_normal((*experts, 32, 64)).astype(ml_dtypes.bfloat16)],
        "fp8": [(codes & 0xF7).view(ml_dtypes.float8_e4m3fn), rng.random(experts, np.float32)],
        "nvfp4": [
            codes,
            rng.integers(1, 126, (*experts, 32, 8), np.uint8).view(ml_dtypes.float8_e4m3fn),
            rng.random(experts, np.float32),
        ],
        "int4": [codes, rng.random((*experts, 32, 4)).astype(np.float16)],
    }[form]
    weights = tuple(constant(f"w.{i}", array) for i, array in enumerate(parts))
    g = GraphBuilder("weights", {"": standard.OPSET}, ir_version=standard.IR_VERSION)
    written = matrix(g, Source(form, weights), ir.DataType.FLOAT)
    scale = written.scale.numpy() if written.scale is not None else np.ones((), np.float32)
    factor = g.const("factor", scale.reshape(-1, *(1,) * len(experts), 1), np.float32)
    values = g.op("Mul", [written.values, factor], "values")
    expected = dequantize(form, *parts)
    g.output(values, "values", ir.DataType.FLOAT, expected.shape)
    evaluator = ReferenceEvaluator(ir.to_proto(g.model()))
    # The last scale is multiplied to the product, in another order than the definition's.
    np.testing.assert_allclose(evaluator.run(None, {})[0], expected, rtol=2.0**-22)
    if form in ("fp8", "nvfp4"):
        name = "w.0.e2m1" if form == "nvfp4" else "w.0"
        stored = g.initializers[name].const_value
        assert stored is not None
        assert stored.tobytes() == parts[0].tobytes()


def test_int4_weights_stay_four_bits(root: Path) -> None:
    dense = random_model("every-kind", root).folder
    checkpoint = Checkpoint.open(write_int4_checkpoint(dense, root / "int4", 32))
    model = standard.lower(build_step(checkpoint), checkpoint.spec, CONTEXT, "float32")
    packed = [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.INT4]
    quantized = [form for form in checkpoint.formats.values() if form == "int4"]
    assert len(packed) == len(quantized) - 2 * 2 * 7  # two stacks of eight experts in two layers
    expected = ReferenceSession(build_step(checkpoint), checkpoint.spec, CONTEXT)
    actual = StandardSession(checkpoint)
    ids = random_model("every-kind", root).ids
    for T in (1, 4, 128):
        wanted, got = expected.step(ids[:T]), actual.step(ids[:T])
        for output, array in wanted.items():
            assert np.abs(got[output] - array).max() <= TOLERANCE, f"{output} after {T} tokens"
