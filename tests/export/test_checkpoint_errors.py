"""A checkpoint that is not as it should be is one clear error: what is wrong, and what to do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgekit.errors import CheckpointError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.graph.nemotron_h import build_step
from edgekit.export.graph.tensors import stored
from edgekit.safetensors import CHUNK, read_header
from tests.export.corrupt import (
    E4M3,
    FILE,
    LIGHTNING_SMALL,
    Tensors,
    change_header,
    change_json,
    change_tensors,
    save,
    set_element,
    write_header,
)
from tests.tools.random_checkpoint import write_random_checkpoint
from tests.tools.synthetic_lightning import write_synthetic_lightning

UP = "backbone.layers.1.mixer.experts.3.up_proj"
SHARED = "backbone.layers.1.mixer.shared_experts.up_proj"
IN_PROJ = "backbone.layers.0.mixer.in_proj"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("originals")
    return {
        "plain": write_random_checkpoint(root / "plain", pattern="ME*-"),
        "sharded": write_random_checkpoint(root / "sharded", pattern="M*", shards=3),
        "mixed": write_synthetic_lightning(root / "mixed", dims=LIGHTNING_SMALL),
    }


@pytest.fixture
def plain(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["plain"], tmp_path / "plain"))


@pytest.fixture
def sharded(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["sharded"], tmp_path / "sharded"))


@pytest.fixture
def mixed(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["mixed"], tmp_path / "mixed"))


def opening(folder: Path, *named: str) -> CheckpointError:
    """The error of opening a folder; it names all of `named` and says what to do."""
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(folder)
    error = caught.value
    for name in named:
        assert name in error.message, error.message
    assert error.hint
    assert "\n" not in error.message
    return error


def test_the_originals_open(originals: dict[str, Path]) -> None:
    for folder in originals.values():
        assert Checkpoint.open(folder).nbytes > 0


# -- the folder and its files


def test_no_weights(plain: Path) -> None:
    (plain / FILE).unlink()
    error = opening(plain, "no model.safetensors", str(plain))
    assert "*.safetensors" in error.hint


def test_weights_that_cannot_be_read(plain: Path) -> None:
    (plain / FILE).unlink()
    (plain / FILE).mkdir()
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read") as caught:
        Checkpoint.open(plain)
    assert caught.value.cause


def test_a_missing_shard(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    error = opening(sharded, "model-00002-of-00003.safetensors is missing", str(sharded))
    assert error.hint == "download the whole checkpoint"


def test_an_index_that_names_the_wrong_shard(sharded: Path) -> None:
    name = "lm_head.weight"

    def swap(index: dict[str, Any]) -> None:
        assert index["weight_map"][name] == "model-00003-of-00003.safetensors"
        index["weight_map"][name] = "model-00001-of-00003.safetensors"

    change_json(sharded / "model.safetensors.index.json", swap)
    opening(sharded, name, "model-00001-of-00003.safetensors", "where the index says it is")


def test_an_index_that_names_a_tensor_no_shard_has(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    shard = "model-00001-of-00003.safetensors"
    change_json(index, lambda data: data["weight_map"].update(ghost=shard))
    opening(sharded, "'ghost' is not in model-00001-of-00003.safetensors")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": 5}}',
        '{"weight_map": {"a": ["b"]}}',
        '{"weight_map": {"a": "../other/model.safetensors"}}',
        "\udcff",
    ],
)
def test_a_corrupt_index(sharded: Path, text: str) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_bytes(text.encode("utf-8", "surrogateescape"))
    opening(sharded, "model.safetensors.index.json is corrupt")


def test_an_index_with_nothing_in_it(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    opening(sharded, "is missing")


# -- truncation and corruption


def test_a_file_cut_anywhere(plain: Path) -> None:
    """In the length field, in the header, in the data: never a traceback, never success."""
    path = plain / FILE
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    cuts = {0, 1, 7, 8, 9, header - 1, header, header + 1, len(data) - 1}
    cuts |= set(np.linspace(0, len(data) - 1, 60, dtype=int).tolist())
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        error = opening(plain, FILE, "truncated")
        assert "download this file again" in error.hint
    path.write_bytes(data)
    Checkpoint.open(plain)


def test_a_file_cut_after_it_was_opened(plain: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(plain)
    path = plain / FILE
    os.truncate(path, path.stat().st_size - 100)
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors ends inside tensor 'lm_head"
    ) as e:
        checkpoint.read("lm_head.weight")
    assert "download this file again" in e.value.hint


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"a": ' + b"1" * 5000 + b"}",
        b"not a header at all",
    ],
)
def test_a_header_that_is_none(plain: Path, header: bytes) -> None:
    write_header(plain / FILE, header, b"\0" * 64)
    error = opening(plain, FILE)
    assert "corrupt" in error.message


def test_a_header_longer_than_its_file(plain: Path) -> None:
    (plain / FILE).write_bytes((10**6).to_bytes(8, "little") + b"{}")
    error = opening(plain, FILE, "truncated or not a safetensors file")
    assert "1000000 bytes in a file of 10" in error.cause


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        "x",
        {},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F3", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": {"0": 4}},
    ],
)
def test_fields_that_no_tensor_has(plain: Path, fields: Any) -> None:
    change_header(plain / FILE, lambda header: header.update({"lm_head.weight": fields}))
    opening(plain, "'lm_head.weight'", FILE, "a header edgekit cannot read")


@pytest.mark.parametrize("offsets", [[0, 8], [4, 0], [0, 0]])
def test_a_length_that_does_not_fit_the_shape(plain: Path, offsets: list[int]) -> None:
    fields = {"dtype": "F32", "shape": [1], "data_offsets": offsets}
    change_header(plain / FILE, lambda header: header.update({"lm_head.weight": fields}))
    error = opening(plain, "'lm_head.weight'", "not what its shape needs")
    assert error.cause == "F32 [1]"


def try_to_read(path: Path) -> None:
    """Reads a header and every tensor it lists; nothing but CheckpointError may come out."""
    try:
        for entry in read_header(path).values():
            assert entry.read().shape == entry.shape
    except CheckpointError as error:
        assert error.hint or error.cause  # noqa: PT017 - success is allowed too


TINY = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b.weight_scale": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [24, 32]},
}


@given(st.data())
def test_any_byte_of_a_file_may_change(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    write_header(path, json.dumps(TINY).encode(), bytes(range(32)))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try_to_read(path)


@given(st.data())
def test_any_byte_of_a_real_header_may_change(
    tmp_path_factory: pytest.TempPathFactory, originals: dict[str, Path], data: st.DataObject
) -> None:
    """From the folder to the graph: what opens is also what the graph writer can use."""
    folder = tmp_path_factory.getbasetemp() / "mixed-fuzzed"
    if not folder.exists():
        shutil.copytree(originals["mixed"], folder)
    original = (originals["mixed"] / FILE).read_bytes()
    length = int.from_bytes(original[:8], "little")
    content = bytearray(original[: 8 + length])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, 8 + length - 1))
        content[at] = data.draw(st.sampled_from(b'0123456789"{}[],:.FUBIE_') | st.integers(0, 255))
    with (folder / FILE).open("r+b") as file:
        file.write(content)
    try:
        build_step(Checkpoint.open(folder))
    except CheckpointError as error:
        assert error.hint  # noqa: PT017 - success is allowed too


@given(st.binary(max_size=200))
@example(b"")
@example((2).to_bytes(8, "little") + b"{}")
@example((2**63).to_bytes(8, "little"))
def test_any_bytes_at_all(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.safetensors"
    path.write_bytes(content)
    try_to_read(path)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 40)
    | st.floats()
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "F8_E4M3", "F64", "I4", 3, None]),
        "shape": st.lists(st.integers(-1, 5) | JSON, max_size=3),
        "data_offsets": st.lists(st.integers(-1, 40) | JSON, max_size=3),
    }
)


@given(JSON | st.dictionaries(st.text(max_size=3), JSON | FIELDS, max_size=3))
def test_any_json_for_a_header(tmp_path_factory: pytest.TempPathFactory, header: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "header.safetensors"
    write_header(path, json.dumps(header).encode(), bytes(40))
    try_to_read(path)


# -- tensors


@pytest.mark.parametrize(
    "name",
    [
        "backbone.embeddings.weight",
        "backbone.layers.0.norm.weight",
        "backbone.layers.0.mixer.A_log",
        "backbone.layers.0.mixer.conv1d.bias",
        "backbone.layers.1.mixer.gate.e_score_correction_bias",
        "backbone.layers.1.mixer.experts.7.down_proj.weight",
        "backbone.layers.1.mixer.shared_experts.up_proj.weight",
        "backbone.layers.2.mixer.k_proj.weight",
        "backbone.layers.3.mixer.up_proj.weight",
        "backbone.norm_f.weight",
        "lm_head.weight",
    ],
)
@pytest.mark.parametrize("damage", ["missing", "shape", "dtype"])
def test_a_tensor_that_is_missing_or_another(plain: Path, name: str, damage: str) -> None:
    def change(tensors: Tensors) -> None:
        array = tensors[name]
        if damage == "missing":
            del tensors[name]
        elif damage == "shape":
            tensors[name] = np.concatenate([array, array])
        else:
            tensors[name] = array.astype(np.uint8)

    change_tensors(plain, change)
    error = opening(plain, f"tensor '{name}")
    said = {"missing": "is missing", "shape": "has shape", "dtype": "uint8"}
    assert said[damage] in f"{error.message} {error.cause}"  # bytes would be nvfp4, with scales


def test_a_wrong_shape_names_both(plain: Path) -> None:
    name = "backbone.layers.2.mixer.k_proj.weight"
    change_tensors(plain, lambda tensors: tensors.update({name: np.zeros((64, 32), np.float32)}))
    error = opening(plain, f"tensor {name!r} has shape [64, 32], not [32, 64]")
    assert "same revision" in error.hint


@pytest.mark.parametrize("code", ["F64", "I32", "I64"])
def test_a_dtype_that_no_graph_holds(plain: Path, code: str) -> None:
    name = "backbone.layers.0.norm.weight"
    length = {"F64": 512, "I32": 256, "I64": 512}[code]
    fields = {"dtype": code, "shape": [64], "data_offsets": [0, length]}
    change_header(plain / FILE, lambda header: header.update({name: fields}))
    opening(plain, repr(name), {"F64": "float64", "I32": "int32", "I64": "int64"}[code])


@pytest.mark.parametrize("count", [16, 10**15])
def test_more_experts_than_there_are(plain: Path, count: int) -> None:
    """Also where config.json is damaged beyond reason: the first missing tensor is enough."""
    change_json(plain / "config.json", lambda config: config.update(n_routed_experts=count))
    opening(plain, "'backbone.layers.1.mixer.experts.8.up_proj.weight' is missing")


# -- quantization


@pytest.mark.parametrize(
    "module", ["lm_head", UP, "backbone.layers.4.mixer.shared_experts.down_proj"]
)
@pytest.mark.parametrize("part", ["weight", "weight_scale", "weight_scale_2"])
def test_a_missing_part_of_nvfp4(mixed: Path, module: str, part: str) -> None:
    change_tensors(mixed, lambda tensors: tensors.pop(f"{module}.{part}"))
    opening(mixed, f"'{module}.{part}' is missing")


def test_a_missing_scale_of_fp8(mixed: Path) -> None:
    change_tensors(mixed, lambda tensors: tensors.pop(f"{IN_PROJ}.weight_scale"))
    error = opening(mixed, f"'{IN_PROJ}.weight_scale' is missing")
    assert "float8_e4m3fn" in error.cause


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (f"{UP}.weight", np.zeros((48, 63), np.uint8), "has shape [48, 63], not [48, 64]"),
        (f"{UP}.weight_scale", np.zeros((48, 4), E4M3), "has shape [48, 4], not [48, 8]"),
        (f"{UP}.weight_scale", np.zeros((48, 8), np.uint8), "holds uint8, not float8_e4m3fn"),
        (f"{UP}.weight_scale_2", np.zeros(48, np.float32), "has shape [48], not a single scale"),
        (f"{UP}.weight_scale_2", np.zeros((), E4M3), "holds float8_e4m3fn, not float32"),
        (f"{IN_PROJ}.weight_scale", np.zeros(1284, np.float32), "not a single scale"),
        (f"{IN_PROJ}.weight_scale", np.zeros((), np.uint8), "holds uint8, not float32"),
        (f"{IN_PROJ}.weight", np.zeros((2, 2), E4M3), "has shape [2, 2], not"),
    ],
)
def test_parts_that_do_not_fit(mixed: Path, name: str, array: Any, message: str) -> None:
    change_tensors(mixed, lambda tensors: tensors.update({name: array}))
    opening(mixed, repr(name), message)


def test_a_scale_of_one_element_is_a_scale(mixed: Path) -> None:
    def change(tensors: Tensors) -> None:
        for name in (f"{UP}.weight_scale_2", f"{IN_PROJ}.weight_scale"):
            tensors[name] = tensors[name].reshape(1)

    change_tensors(mixed, change)
    Checkpoint.open(mixed)


@pytest.mark.parametrize(
    "scale",
    [
        f"{IN_PROJ}.weight_scale",
        f"{UP}.weight_scale",
        f"{UP}.weight_scale_2",
        "lm_head.weight_scale",
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("lowering", ["canonical", "ort"])
def test_a_scale_that_is_not_finite(
    mixed: Path, tmp_path: Path, scale: str, value: float, lowering: Any
) -> None:
    """Found while the weights stream by; what was written until then is gone afterwards."""
    change_tensors(
        mixed, lambda tensors: tensors.update({scale: set_element(tensors[scale], value)})
    )
    Checkpoint.open(mixed)  # headers only: nothing to see yet
    output = tmp_path / "bundles" / "b"
    request = BuildRequest(mixed, output, "cpu", "none", 64, 16, lowering=lowering)
    with pytest.raises(CheckpointError, match="NaN or infinity") as caught:
        build_bundle(request)
    assert repr(scale) in caught.value.message
    assert caught.value.hint
    assert list(output.parent.iterdir()) == []


def test_a_nan_behind_the_first_chunk(tmp_path: Path) -> None:
    """Every chunk is looked at, not the first alone."""
    scale = np.ones((4096, 3 * CHUNK // 4096 // 2), E4M3)
    save(tmp_path, {"x.weight_scale": set_element(scale, np.nan)})
    entry = read_header(tmp_path / FILE)["x.weight_scale"]
    assert entry.nbytes > CHUNK
    chunks = stored("x", [entry]).chunks()
    assert len(next(chunks)) == CHUNK
    with pytest.raises(CheckpointError, match=r"'x\.weight_scale' holds NaN"):
        next(chunks)


def test_declared_quantized_but_stored_dense(plain: Path) -> None:
    declare(plain, quant_algo="NVFP4")
    opening(plain, "backbone.layers.0.mixer.in_proj is stored as dense but declared as nvfp4")


def test_declared_dense_but_stored_quantized(mixed: Path) -> None:
    change_json(
        mixed / "config.json", lambda c: c["quantization_config"]["quantized_layers"].pop("lm_head")
    )
    opening(mixed, "lm_head is stored as nvfp4 but declared as dense")


def test_not_declared_at_all(mixed: Path) -> None:
    change_json(mixed / "config.json", lambda c: c.pop("quantization_config"))
    (mixed / "hf_quant_config.json").unlink()
    opening(mixed, "in_proj is stored as fp8 but declared as dense")


def test_declared_as_another_format(mixed: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["quantization_config"]["quantized_layers"][UP] = {"quant_algo": "FP8"}

    change_json(mixed / "config.json", change)
    opening(mixed, f"{UP} is stored as nvfp4 but declared as fp8")


def declare(folder: Path, **declaration: Any) -> None:
    change_json(
        folder / "config.json", lambda config: config.update(quantization_config=declaration)
    )


@pytest.mark.parametrize("method", ["compressed-tensors", "gptq", "awq", "bitsandbytes", None, 3])
def test_another_quantization_method(plain: Path, method: Any) -> None:
    declare(plain, quant_method=method, quant_algo="FP8")
    error = opening(plain, f"quantization method {method!r} is not supported")
    assert "ModelOpt" in error.cause
    assert "BF16" in error.hint


@pytest.mark.parametrize(
    "algorithm", ["INT4_AWQ", "W4A8_MXFP4_FP8", "FP8_PB_WO", "nvfp4", 4, ["FP8"]]
)
def test_an_unknown_algorithm(plain: Path, algorithm: Any) -> None:
    declare(plain, quant_method="modelopt", quant_algo=algorithm)
    error = opening(plain, f"quantization algorithm {algorithm!r} of the checkpoint")
    assert error.cause == "edgekit reads FP8, NVFP4, W4A16_NVFP4"


def test_an_unknown_algorithm_of_one_layer(mixed: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["quantization_config"]["quantized_layers"][UP] = {"quant_algo": "INT4_AWQ"}

    change_json(mixed / "config.json", change)
    opening(mixed, "'INT4_AWQ'", UP)


@pytest.mark.parametrize(
    "declaration",
    [
        [],
        "FP8",
        {"quant_algo": "MIXED_PRECISION", "quantized_layers": ["lm_head"]},
        {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": "FP8"}},
        {"quant_algo": "FP8", "ignore": [3]},
        {"quant_algo": "FP8", "exclude_modules": 3},
    ],
)
def test_a_corrupt_declaration(plain: Path, declaration: Any) -> None:
    change_json(plain / "config.json", lambda c: c.update(quantization_config=declaration))
    opening(plain, "quantization_config in config.json is corrupt")


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3", '{"quantization": []}'])
def test_a_corrupt_hf_quant_config(plain: Path, text: str) -> None:
    (plain / "hf_quant_config.json").write_text(text)
    opening(plain, "hf_quant_config.json is corrupt")


def test_experts_of_different_formats(mixed: Path, tmp_path: Path) -> None:
    """Each is declared as it is stored, but a layer's experts run as one operator."""

    def change(tensors: Tensors) -> None:
        for part in ("weight_scale", "weight_scale_2"):
            del tensors[f"{UP}.{part}"]
        tensors[f"{UP}.weight"] = np.zeros((48, 128), ml_dtypes.bfloat16)

    change_tensors(mixed, change)
    change_json(
        mixed / "config.json", lambda c: c["quantization_config"]["quantized_layers"].pop(UP)
    )
    building(mixed, tmp_path, "bfloat16, dense, nvfp4, uint8")


def test_experts_of_different_dtypes(plain: Path, tmp_path: Path) -> None:
    name = "backbone.layers.1.mixer.experts.5.up_proj.weight"
    change_tensors(
        plain, lambda tensors: tensors.update({name: tensors[name].astype(ml_dtypes.bfloat16)})
    )
    building(plain, tmp_path, "bfloat16, dense, float32")


def building(folder: Path, tmp_path: Path, found: str) -> None:
    Checkpoint.open(folder)
    request = BuildRequest(folder, tmp_path / "b", "cpu", "none", 64, 16)
    with pytest.raises(CheckpointError) as caught:
        build_bundle(request)
    assert caught.value.message == "the experts of backbone.layers.1.mixer differ in format"
    assert caught.value.cause == f"found {found}"
    assert caught.value.hint == "quantize all experts of a layer alike"
    assert not (tmp_path / "b").exists()


def test_columns_that_are_no_multiple_of_16(tmp_path: Path) -> None:
    """H = 72 makes 4.5 blocks a row."""
    folder = write_random_checkpoint(tmp_path, pattern="-", hidden_size=72, intermediate_size=16)
    module = "backbone.layers.0.mixer.up_proj"

    def change(tensors: Tensors) -> None:
        tensors[f"{module}.weight"] = np.zeros((16, 36), np.uint8)
        tensors[f"{module}.weight_scale"] = np.ones((16, 4), E4M3)
        tensors[f"{module}.weight_scale_2"] = np.ones((), np.float32)

    change_tensors(folder, change)
    declare(
        folder,
        quant_algo="MIXED_PRECISION",
        quantized_layers={module: {"quant_algo": "W4A16_NVFP4"}},
    )
    opening(folder, f"{module} has 72 columns: nvfp4 needs a multiple of 16")
