"""The published Lightning layout, small: NVFP4 experts and head, FP8 Mamba, BF16 attention."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from edgekit.bundle import Bundle
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.graph.nemotron_h import build_step
from edgekit.export.quantization import Declaration, read_declaration
from edgekit.export.reference import ReferenceSession
from edgekit.runtime.executors import open_session
from edgekit.runtime.verify import verify_bundle
from tests.export.corrupt import LIGHTNING_SMALL, change_json
from tests.tools.hf_reference import HfReference
from tests.tools.lightning_quantization import quantized_modules
from tests.tools.synthetic_lightning import write_synthetic_lightning

IDS = np.random.default_rng(0).integers(0, 512, 150).tolist()
SENTINEL = ".\0backbone.pt_name_sentinel"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lightning")
    return write_synthetic_lightning(
        root / "checkpoint", dims=LIGHTNING_SMALL, mtp=True, max_shard_bytes=300_000
    )


@pytest.fixture(scope="module")
def stored(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors as torch reads them."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


def build(folder: Path, output: Path, **changes: Any) -> Bundle:
    request = BuildRequest(folder, output, "cpu", "none", 256, 128, **changes)
    return Bundle.open(build_bundle(request))


@pytest.fixture(scope="module")
def canonical(folder: Path) -> Bundle:
    return build(folder, folder.parent / "canonical", lowering="canonical")


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return build(folder, folder.parent / "ort")


# -- formats


def test_each_module_has_its_own_format(folder: Path) -> None:
    checkpoint = Checkpoint.open(folder)
    quantized: dict[str, str] = dict(quantized_modules(LIGHTNING_SMALL))
    assert checkpoint.formats == {
        module: quantized.get(module, "dense") for module in checkpoint.formats
    }
    found = {
        module: checkpoint.formats[f"backbone.layers.{module}"]
        for module in (
            "0.mixer.in_proj",
            "0.mixer.out_proj",
            "1.mixer.experts.0.up_proj",
            "1.mixer.experts.7.down_proj",
            "1.mixer.shared_experts.up_proj",
            "2.mixer.q_proj",
            "2.mixer.o_proj",
        )
    }
    assert list(found.values()) == ["fp8", "fp8", "nvfp4", "nvfp4", "nvfp4", "dense", "dense"]
    assert checkpoint.formats["lm_head"] == "nvfp4"
    assert checkpoint.declaration is not None
    assert checkpoint.declaration.kv_cache == "FP8"
    assert checkpoint.spec.pattern == "ME*ME"
    assert any(name.startswith("mtp.") for name in checkpoint.tensors)
    used = sum(entry.nbytes for entry in checkpoint.tensors.values())
    assert 0 < checkpoint.nbytes < used  # without mtp.*, input and KV scales


def test_either_file_may_declare_it(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    expected = Checkpoint.open(folder)
    change_json(copy / "config.json", lambda config: config.pop("quantization_config"))
    checkpoint = Checkpoint.open(copy)
    assert checkpoint.formats == expected.formats
    assert checkpoint.declaration == expected.declaration


def test_modelopt_sentinels_are_cleaned(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))

    def add(config: dict[str, Any]) -> None:
        section = config["quantization_config"]
        section["quantized_layers"] = {
            name + SENTINEL: layer for name, layer in section["quantized_layers"].items()
        }
        section["ignore"] = [name + SENTINEL for name in section["ignore"]]

    change_json(copy / "config.json", add)
    assert r"in_proj.\u0000backbone" in (copy / "config.json").read_text()
    assert Checkpoint.open(copy).formats == Checkpoint.open(folder).formats
    assert Checkpoint.open(copy).declaration == Checkpoint.open(folder).declaration


def test_a_uniform_checkpoint_with_wildcards(tmp_path: Path) -> None:
    """The form of Nemotron 3 Nano NVFP4: one algorithm, and a list of what is left out."""
    declaration = {
        "quantization": {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "group_size": 16,
            "exclude_modules": ["lm_head", "backbone.layers.4.mixer.in_proj", "*.layers.5.*"],
        }
    }
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(declaration))
    read = read_declaration(tmp_path)
    assert read is not None
    assert read.kv_cache == "FP8"
    assert {
        module: read.format_of(module)
        for module in (
            "lm_head",
            "backbone.layers.3.mixer.in_proj",
            "backbone.layers.4.mixer.in_proj",
            "backbone.layers.5.mixer.q_proj",
            "backbone.layers.15.mixer.q_proj",
        )
    } == {
        "lm_head": "dense",
        "backbone.layers.3.mixer.in_proj": "nvfp4",
        "backbone.layers.4.mixer.in_proj": "dense",
        "backbone.layers.5.mixer.q_proj": "dense",
        "backbone.layers.15.mixer.q_proj": "nvfp4",
    }


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "modelopt", "quant_algo": None}, Declaration()),
        ({"quant_algo": "FP8", "ignore": None}, Declaration("fp8")),
        (
            {"quant_algo": "FP8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            Declaration("fp8", kv_cache="FP8"),
        ),
    ],
)
def test_short_declarations(tmp_path: Path, section: Any, expected: Declaration) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    assert read_declaration(tmp_path) == expected


def test_no_declaration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert read_declaration(tmp_path) is None


# -- what the model computes


def dense_copy(folder: Path, stored: dict[str, torch.Tensor], output: Path) -> Path:
    """The checkpoint in float32, dequantized by torch: the same function, for transformers."""
    e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    e2m1 = torch.cat([e2m1, -e2m1])
    dense: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        if name.startswith("mtp.") or name.endswith(("_scale", "_scale_2")):
            continue
        if tensor.dtype == torch.uint8:
            codes = torch.stack([tensor & 15, tensor >> 4], dim=-1).flatten(1).long()
            scale = stored[f"{name}_scale"].float() * stored[f"{name}_scale_2"]
            values = e2m1[codes].reshape(*scale.shape, 16) * scale[..., None]
            dense[name] = values.flatten(1)
        elif tensor.dtype == torch.float8_e4m3fn:
            dense[name] = tensor.float() * stored[f"{name}_scale"]
        else:
            dense[name] = tensor.float()
    output.mkdir()
    save_file(dense, output / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(folder / "config.json", output / "config.json")
    change_json(output / "config.json", lambda config: config.pop("quantization_config"))
    return output


def run_bundle(bundle: Bundle) -> npt.NDArray[np.float32]:
    session = open_session(bundle, threads=1)
    rows = [
        session.step(IDS[start : start + 128], logits="all").logits.copy()
        for start in range(0, len(IDS), 128)
    ]
    session.close()
    return np.concatenate(rows)


def test_the_bundle_is_the_reference_is_transformers(
    folder: Path, stored: dict[str, torch.Tensor], bundle: Bundle, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.open(folder)
    session = ReferenceSession(build_step(checkpoint), checkpoint.spec, 256)
    reference = session.step(IDS)["logits"]
    expected = HfReference(dense_copy(folder, stored, tmp_path / "dense")).logits(IDS)
    assert 0.3 < expected.std() < 5
    assert np.abs(reference - expected).max() <= 1e-4
    actual = run_bundle(bundle)
    assert np.abs(actual - reference).max() <= 1e-4
    assert np.abs(actual - expected).max() <= 1e-4


def test_the_bundle_verifies(bundle: Bundle) -> None:
    report = verify_bundle(bundle)
    assert report.ok
    assert report.max_difference < 1e-4
    assert bundle.manifest.weights_format == "float32"


# -- the canonical bundle


def external(model: onnx.ModelProto) -> dict[str, dict[str, str]]:
    return {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }


def as_bytes(tensors: list[torch.Tensor]) -> bytes:
    return b"".join(t.reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors)


def test_packed_bytes_pass_unchanged(canonical: Bundle, stored: dict[str, torch.Tensor]) -> None:
    assert canonical.manifest.lowering == "canonical"
    assert canonical.manifest.weights_format == "bfloat16+fp8+nvfp4"
    model = onnx.load(canonical.file("target.onnx"), load_external_data=False)
    places = external(model)
    weights = canonical.file("weights/weights.bin").read_bytes()
    compared = set()
    experts = "backbone.layers.1.mixer.experts"
    for name, place in places.items():
        assert place["location"] == "weights/weights.bin"
        offset, length = int(place["offset"]), int(place["length"])
        assert offset % 4096 == 0
        data = weights[offset : offset + length]
        if ".experts." in name:
            head, _, tail = name.partition(".experts.")
            wanted = [stored[f"{head}.experts.{e}.{tail}"] for e in range(8)]
        else:
            wanted = [stored[name]]
        assert data == as_bytes(wanted), name
        compared.add(name)
    assert {
        f"{experts}.up_proj.weight",
        f"{experts}.down_proj.weight_scale",
        "lm_head.weight",
        "lm_head.weight_scale",
        "backbone.layers.0.mixer.in_proj.weight",
        "backbone.layers.2.mixer.q_proj.weight",
        "backbone.embeddings.weight",
        "backbone.layers.1.mixer.shared_experts.up_proj.weight",
    } <= compared
    assert not any(name.startswith("mtp.") for name in places)


def test_small_tensors_stay_in_the_graph(
    canonical: Bundle, stored: dict[str, torch.Tensor]
) -> None:
    model = onnx.load(canonical.file("target.onnx"), load_external_data=False)
    inline = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.data_location != onnx.TensorProto.EXTERNAL
    }
    scale = inline["backbone.layers.1.mixer.experts.up_proj.weight_scale_2"]
    names = [f"backbone.layers.1.mixer.experts.{e}.up_proj.weight_scale_2" for e in range(8)]
    assert scale.tolist() == [float(stored[name]) for name in names]
    head = inline["lm_head.weight_scale_2"]
    assert head.shape == ()
    assert float(head) == float(stored["lm_head.weight_scale_2"])


@pytest.mark.parametrize("name", ["target.onnx", "target.commit.onnx"])
def test_canonical_graphs_are_valid_onnx(canonical: Bundle, bundle: Bundle, name: str) -> None:
    """In structure, and that the external data is where the graph says it is."""
    onnx.checker.check_model(canonical.file(name))
    for built, domains in ((canonical, {"", "edgekit"}), (bundle, {"", "com.microsoft"})):
        model = onnx.load(built.file(name))
        assert {node.domain for node in model.graph.node} <= domains
        assert model.producer_name == "edgekit"


def test_step_and_commit_share_their_weights(canonical: Bundle) -> None:
    step, commit = (
        external(onnx.load(canonical.file(name), load_external_data=False))
        for name in ("target.onnx", "target.commit.onnx")
    )
    shared = step.keys() & commit.keys()
    assert "backbone.layers.0.mixer.conv1d.weight" in shared
    assert commit.keys() == shared
    assert all(step[name] == commit[name] for name in shared)
    end = max(int(place["offset"]) + int(place["length"]) for place in step.values())
    assert canonical.file("weights/weights.bin").stat().st_size == end
    canonical.check_hashes()
