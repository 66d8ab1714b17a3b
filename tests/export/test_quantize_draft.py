"""nano's DSpark draft quantized by its own rules: alone, inside a checkpoint, resumed, refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import CheckpointError, EdgekitError
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantization import read_declaration, resolve
from edgekit.export.quantize import QuantizeEvent, quantize_checkpoint, quantize_draft
from edgekit.export.quantize.draft import draft_matrices, plan_draft
from edgekit.export.quantize.rules import read_rules
from edgekit.ops.formats import dequantize
from edgekit.recipe import Recipe, load_recipe, parse_recipe
from edgekit.safetensors import read_folder

NANO = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"
RECIPES = NANO.parents[1]
DRAFT = NANO / "draft"
QUANTIZED = {
    "fc",
    "markov_head.markov_w2",
    *(f"layers.{i}.mlp.{p}_proj" for i in (0, 1) for p in ("gate", "up", "down")),
}


def recipe_with(folder: Path, rules: Path, kind: str = "dspark") -> Recipe:
    """A recipe that leaves the target alone and quantizes the draft by `rules`."""
    shutil.copyfile(rules, folder / "rules.yaml")
    text = "schema_version: 1\nname: mine\nsummary: mine\nmodel: any\n"
    text += f"draft: {{kind: {kind}, tokens: 7, quantize: {{file: rules.yaml}}}}\n"
    return parse_recipe(text, "recipe.yaml", folder)


def test_the_published_layout(tmp_path: Path) -> None:
    """fc, FFN and markov_w2 NVFP4, all else byte for byte; both declarations say so."""
    out = quantize_draft(DRAFT, load_recipe("nano-nvfp4"), tmp_path / "out")
    before, after = read_folder(DRAFT), read_folder(out)
    declaration = read_declaration(out)
    formats = {module: resolve(declaration, after, module) for module, _ in draft_matrices(before)}
    assert {module for module, form in formats.items() if form == "nvfp4"} == QUANTIZED
    assert {form for module, form in formats.items() if module not in QUANTIZED} == {"dense"}
    for module in QUANTIZED:
        parts = [
            after[f"{module}.{p}"].read() for p in ("weight", "weight_scale", "weight_scale_2")
        ]
        weight = before[f"{module}.weight"].read().astype(np.float32)
        error = np.linalg.norm(dequantize("nvfp4", *parts) - weight) / np.linalg.norm(weight)
        assert error < 0.1
    for name, entry in before.items():
        if name.removesuffix(".weight") not in QUANTIZED:
            assert after[name].read().tobytes() == entry.read().tobytes()
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == ["Qwen3DSparkModel"]
    assert config["quantization_config"]["quant_algo"] == "W4A16_NVFP4"
    assert "markov_head.markov_w1" in config["quantization_config"]["ignore"]


def test_a_quantized_draft_stays(tmp_path: Path) -> None:
    recipe = load_recipe("nano-nvfp4")
    out = quantize_draft(DRAFT, recipe, tmp_path / "out")
    assert quantize_draft(out, recipe, tmp_path / "again") == out
    assert not (tmp_path / "again").exists()
    assert quantize_draft(DRAFT, load_recipe("nano-int4"), tmp_path / "again") == DRAFT


@pytest.mark.parametrize("name", ["nano-nvfp4", "nano-int4"])
def test_inside_a_checkpoint_it_keeps_its_own_rules(tmp_path: Path, name: str) -> None:
    """With rules of its own, by those; without, as it is, whatever becomes of the target."""
    source = tmp_path / "source"
    shutil.copytree(NANO, source)
    out = quantize_checkpoint(source, load_recipe(name), tmp_path / "out")
    assert set(Checkpoint.open(out).formats.values()) > {"dense"}
    alone = quantize_draft(DRAFT, load_recipe(name), tmp_path / "alone")
    for file in ("model.safetensors", "config.json"):
        assert (out / "draft" / file).read_bytes() == (alone / file).read_bytes()
    for name_, entry in Checkpoint.open(source).tensors.items():
        if name_.startswith("mtp."):  # the other draft, part of the target's file
            assert read_folder(out)[name_].read().tobytes() == entry.read().tobytes()
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    quantize_checkpoint(source, load_recipe(name), out)
    assert times == {path: path.stat().st_mtime_ns for path in out.rglob("*")}


def test_a_stopped_draft_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "edgekit.export.quantize.stream.quantize_stream.__kwdefaults__",
        {"shard_bytes": 10**9, "flush_bytes": 100_000},
    )
    recipe = load_recipe("nano-nvfp4")
    whole = quantize_draft(DRAFT, recipe, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(event: QuantizeEvent) -> None:
        if event.done > event.total // 2:
            raise StopError

    with pytest.raises(StopError):
        quantize_draft(DRAFT, recipe, tmp_path / "stopped", stop)
    assert json.loads((tmp_path / "stopped" / "quantize.json").read_text())["offset"] > 0
    assert not (tmp_path / "stopped" / "config.json").exists()
    out = quantize_draft(DRAFT, recipe, tmp_path / "stopped")
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize("rules", ["nano-fp8", "lightning-int4-orin", "nano-9b-v2-nvfp4"])
def test_a_targets_rules_are_refused(tmp_path: Path, rules: str) -> None:
    recipe = recipe_with(tmp_path, RECIPES / rules / "quantize.yaml")
    with pytest.raises(EdgekitError, match="quantizes nothing of the draft") as caught:
        quantize_draft(DRAFT, recipe, tmp_path / "out")
    assert "not its target's" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_tables_are_not_quantized(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        "metadata: {recipe_type: ptq, description: all}\n"
        "quantize:\n  algorithm: max\n  quant_cfg:\n"
        "    - {quantizer_name: '*weight_quantizer', cfg: {num_bits: e4m3, axis: null}}\n"
    )
    with pytest.raises(EdgekitError, match="quantizes embed_tokens"):
        plan_draft(read_rules(tmp_path / "all.yaml"), {"fc": 64})


def test_groups_that_do_not_divide() -> None:
    source = load_recipe("nano-nvfp4").draft_source
    assert source is not None
    with pytest.raises(EdgekitError, match="do not divide the 40 columns of fc"):
        plan_draft(read_rules(source), {"fc": 40})


def test_what_is_no_draft(tmp_path: Path) -> None:
    recipe = load_recipe("nano-nvfp4")
    with pytest.raises(CheckpointError, match="is no draft that edgekit knows"):
        quantize_draft(NANO, recipe, tmp_path / "out")
    other = recipe_with(tmp_path, RECIPES / "nano-nvfp4" / "draft.yaml", kind="dflash")
    with pytest.raises(CheckpointError, match="holds a dspark draft"):
        quantize_draft(DRAFT, other, tmp_path / "out")


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ("{kind: mtp, tokens: 3, quantize: {file: d.yaml}}", "part of its target's checkpoint"),
        (
            "{kind: dspark, tokens: 3, quantize: {file: d.yaml, activations: calibrated}}",
            "from its weights alone",
        ),
    ],
)
def test_drafts_that_no_recipe_can_ask_for(draft: str, message: str) -> None:
    text = f"schema_version: 1\nname: mine\nsummary: mine\nmodel: any\ndraft: {draft}\n"
    with pytest.raises(EdgekitError) as caught:
        parse_recipe(text, "recipe.yaml")
    assert message in caught.value.cause


def test_lightnings_draft_has_the_same_rules() -> None:
    spark, nano = (load_recipe(name).draft_source for name in ("lightning-spark", "nano-nvfp4"))
    assert isinstance(spark, Path)
    assert isinstance(nano, Path)
    assert spark.read_bytes() == nano.read_bytes()
