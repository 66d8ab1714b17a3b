"""Which way a checkpoint is quantized, and ModelOpt's way end to end where it is installed."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import (
    BuildError,
    CheckpointError,
    EdgekitError,
    MissingDependencyError,
    UsageError,
)
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize import QuantizeEvent, foresee, process, quantize_checkpoint
from edgekit.export.quantize.calibration import DEFAULT_TEXTS, MAX_TEXTS, read_texts
from edgekit.export.quantize.mend import mend
from edgekit.recipe import Recipe, load_recipe
from tests.tools.lightning_quantization import LIGHTNING
from tests.tools.random_checkpoint import write_random_checkpoint
from tests.tools.synthetic_lightning import write_synthetic_lightning

NANO = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"
needs_modelopt = pytest.mark.skipif(find_spec("modelopt") is None, reason="ModelOpt is not here")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_random_checkpoint(
        tmp_path_factory.mktemp("tiny"), pattern="MEM*E", dtype="bfloat16", vocab_size=4096
    )
    shutil.copyfile(NANO / "tokenizer.json", folder / "tokenizer.json")
    return folder


def calibrated(name: str) -> Recipe:
    recipe = load_recipe(name)
    assert recipe.quantize is not None
    changed = recipe.quantize.model_copy(update={"activations": "calibrated"})
    result = recipe.model_copy(update={"quantize": changed})
    result._folder = recipe._folder
    return result


def test_weights_alone_need_no_modelopt(tiny: Path, tmp_path: Path) -> None:
    choice = foresee(tiny, load_recipe("nano-int4")).way
    assert choice.value == "numpy"
    out = quantize_checkpoint(tiny, load_recipe("nano-int4"), tmp_path / "out")
    assert out == tmp_path / "out"
    assert foresee(out, load_recipe("nano-int4")).way.value == "unchanged"


@pytest.mark.parametrize("name", ["nano-int4", "nano-nvfp4", "nano-fp8", "published"])
def test_the_size_is_known_beforehand(tiny: Path, tmp_path: Path, name: str) -> None:
    expected = foresee(tiny, load_recipe(name)).nbytes
    out = quantize_checkpoint(tiny, load_recipe(name), tmp_path / "out")
    assert Checkpoint.open(out).nbytes == expected


def test_what_is_published_stays(tiny: Path, tmp_path: Path) -> None:
    assert quantize_checkpoint(tiny, load_recipe("published"), tmp_path / "out") == tiny
    assert not (tmp_path / "out").exists()


def test_a_folder_like_lightnings_goes_straight_through(tmp_path: Path) -> None:
    from dataclasses import replace

    dims = replace(LIGHTNING, pattern="ME*", hidden_size=64, vocab_size=256, n_routed_experts=8)
    folder = write_synthetic_lightning(tmp_path / "lightning", dims=dims)
    for recipe in ("nano-nvfp4", "lightning-int4-orin"):
        choice = foresee(folder, load_recipe(recipe)).way
        assert choice.value == "unchanged"
        assert "2 fp8, 19 nvfp4" in choice.why
        assert quantize_checkpoint(folder, load_recipe(recipe), tmp_path / "out") == folder


def test_calibration_takes_modelopt(tiny: Path, tmp_path: Path) -> None:
    assert foresee(tiny, calibrated("nano-nvfp4")).way.value == "modelopt"
    choice = foresee(tiny, load_recipe("nano-fp8"), tmp_path / "texts.txt").way
    assert (choice.value, choice.why) == ("modelopt", "--calib")
    with pytest.raises(EdgekitError, match="cannot calibrate INT4"):
        foresee(tiny, calibrated("nano-int4"))
    with pytest.raises(UsageError, match="nothing to calibrate"):
        foresee(tiny, load_recipe("published"), tmp_path / "texts.txt")


@pytest.mark.skipif(find_spec("modelopt") is not None, reason="ModelOpt is installed")
def test_without_modelopt_the_extra_is_named(tiny: Path, tmp_path: Path) -> None:
    for recipe in (calibrated("nano-nvfp4"), load_recipe("lightning-nvfp4")):
        with pytest.raises(MissingDependencyError) as caught:
            quantize_checkpoint(tiny, recipe, tmp_path / "out")
        assert "[quantize]" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_process_that_dies_is_reported(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.sys, "executable", "false")
    with pytest.raises(BuildError, match="ModelOpt failed") as caught:
        process.run_modelopt(tiny, "x", tiny / "out", None, lambda done, total: None)
    assert "activations: ignored" in caught.value.hint


@needs_modelopt
@pytest.mark.slow
@pytest.mark.parametrize("name", ["lightning-nvfp4", "nano-nvfp4", "nano-fp8"])
def test_modelopts_folder_has_the_bytes_of_ours(tiny: Path, tmp_path: Path, name: str) -> None:
    """The whole of ModelOpt, its export too, against the stream; experts are really quantized."""
    events: list[QuantizeEvent] = []
    theirs = quantize_checkpoint(tiny, calibrated(name), tmp_path / "theirs", events.append)
    ours = quantize_checkpoint(tiny, load_recipe(name), tmp_path / "ours")
    a, b = Checkpoint.open(theirs), Checkpoint.open(ours)
    assert a.formats == b.formats
    for tensor in b.tensors:
        if "gate" not in tensor:  # transformers keeps routers in float32
            assert a.tensors[tensor].read().tobytes() == b.tensors[tensor].read().tobytes(), tensor
    assert "\\u0000" not in (theirs / "config.json").read_text()
    assert "\\u0000" not in (theirs / "hf_quant_config.json").read_text()
    report = json.loads((theirs / process.REPORT).read_text())
    assert (report["texts"], report["experts"]) == (len(DEFAULT_TEXTS), 16)
    assert events[-1].done == events[-1].total
    assert report["unreached"] == {}
    if name == "lightning-nvfp4":
        scales = [n for n in a.tensors if n.endswith(("input_scale", "k_scale", "v_scale"))]
        assert len(scales) == 6


@needs_modelopt
@pytest.mark.slow
def test_mtp_and_unreached_experts(tiny: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "source"
    shutil.copytree(tiny, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["mtp.layers.0.mixer.q_proj.weight"] = tensors["lm_head.weight"][:7].clone()
    save_file(tensors, folder / "model.safetensors")
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n')
    recipe, calib = load_recipe("nano-fp8"), tmp_path / "texts.jsonl"
    out = quantize_checkpoint(folder, recipe, tmp_path / "out", calib=calib)
    carried = Checkpoint.open(out).read("mtp.layers.0.mixer.q_proj.weight")
    expected = Checkpoint.open(folder).read("lm_head.weight")[:7]
    np.testing.assert_array_equal(carried, expected)
    report = json.loads((out / process.REPORT).read_text())
    assert report["unreached"]


SENTINEL = ".\0backbone.pt_name_sentinel"
MODULES = {"lm_head", "b.0.in_proj", *(f"b.1.experts.{e}.up_proj" for e in range(11))}


def test_names_are_mended_and_experts_named_one_by_one() -> None:
    layer = {"quant_algo": "FP8"}
    declared = {
        "quantized_layers": {f"b.0.in_proj{SENTINEL}": layer, f"b.1.experts{SENTINEL}": layer},
        "config_groups": {"group_0": {"targets": [f"b.1.experts{SENTINEL}"]}},
        "ignore": [f"lm_head{SENTINEL}", "mtp*"],
        "config_groups_of_one": {"group_0": {"targets": ["Linear"]}},
        "producer": {"name": "modelopt"},
    }
    mended = mend(declared, MODULES)
    experts = [f"b.1.experts.{e}.up_proj" for e in range(11)]
    assert list(mended["quantized_layers"]) == ["b.0.in_proj", *experts]
    assert mended["config_groups"]["group_0"]["targets"] == experts
    assert mended["config_groups_of_one"]["group_0"]["targets"] == ["Linear"]
    assert mended["ignore"] == ["lm_head", "mtp*"]
    assert mended["producer"] == {"name": "modelopt"}


def test_a_layer_no_tensor_belongs_to() -> None:
    with pytest.raises(CheckpointError, match=r"'b\.7\.in_proj', which no tensor"):
        mend({"ignore": [f"b.7.in_proj{SENTINEL}"]}, MODULES)


def test_calibration_files(tmp_path: Path) -> None:
    assert read_texts(None) == list(DEFAULT_TEXTS)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "two"}\n')
    assert read_texts(tmp_path / "a.jsonl") == ["one", "two"]
    (tmp_path / "a.txt").write_text("one\nline\n\n\n two ")
    assert read_texts(tmp_path / "a.txt") == ["one\nline", "two"]
    (tmp_path / "many.txt").write_text("word\n\n" * (MAX_TEXTS + 5))
    assert len(read_texts(tmp_path / "many.txt")) == MAX_TEXTS
    lines = '{"text": "word"}\n' * MAX_TEXTS + "no JSON, and never reached"
    (tmp_path / "many.jsonl").write_text(lines)
    assert len(read_texts(tmp_path / "many.jsonl")) == MAX_TEXTS
    (tmp_path / "b.jsonl").write_text('{"prompt": "one"}\n')
    (tmp_path / "empty.txt").write_text("\n\n")
    for name in ("b.jsonl", "empty.txt", "missing.txt"):
        with pytest.raises(UsageError):
            read_texts(tmp_path / name)
