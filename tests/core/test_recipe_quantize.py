"""Recipes that quantize: what they name, and what ModelOpt says to their files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from edgekit.errors import EdgekitError
from edgekit.recipe import load_recipe, parse_recipe, recipe_names

QUANTIZING = [name for name in recipe_names() if load_recipe(name).quantize is not None]
WANTED = {
    "lightning-nvfp4",
    "lightning-int4-orin",
    "lightning-spark",
    "nano-nvfp4",
    "nano-int4",
    "nano-fp8",
    "nano-9b-v2-int4",
    "nano-4b-int4",
}
TEXT = """
schema_version: 1
name: mine
summary: one of mine
model: any
weights: int4
quantize:
  file: quantize.yaml
"""


def test_the_recipes_of_the_boards_are_there() -> None:
    assert set(QUANTIZING) >= WANTED


@pytest.mark.parametrize("name", QUANTIZING)
def test_what_is_quantized_is_beside_the_recipe_or_modelopts(name: str) -> None:
    source = load_recipe(name).quantize_source
    if isinstance(source, Path):
        content = yaml.safe_load(source.read_text())
        assert set(content) == {"metadata", "quantize"}
        assert content["metadata"]["recipe_type"] == "ptq"
        first, *_, last = content["quantize"]["quant_cfg"]
        assert first == {"quantizer_name": "*", "enable": False}
        assert last == {"quantizer_name": "mtp.*", "enable": False}
    else:
        assert str(source).startswith("models/nvidia/")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZING)
def test_modelopt_takes_it(name: str) -> None:
    modelopt = pytest.importorskip("modelopt.recipe")
    recipe = load_recipe(name)
    for source in filter(None, (recipe.quantize_source, recipe.draft_source)):
        assert modelopt.load_recipe(str(source)).quantize.quant_cfg


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(TEXT)
    recipe = load_recipe(f"{tmp_path}/")
    with pytest.raises(EdgekitError, match=r"quantize\.yaml, which is not beside it"):
        _ = recipe.quantize_source
    (tmp_path / "quantize.yaml").write_text("")
    assert recipe.quantize_source == tmp_path / "quantize.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("weights: int4\n", ""), "quantize needs weights"),
        (TEXT + "  modelopt: general/ptq/x\n", "either file or modelopt"),
        (TEXT.replace("file: quantize.yaml", "activations: ignored"), "either file or modelopt"),
        (TEXT.replace("quantize.yaml", "../quantize.yaml"), "quantize.file"),
        (TEXT.replace("file: quantize.yaml", "modelopt: /etc/passwd"), "quantize.modelopt"),
        (TEXT + "  calibrate: true\n", "quantize.calibrate"),
        (TEXT + "draft: {kind: dspark}\n", "draft.tokens"),
        (TEXT + "draft: {kind: medusa, tokens: 3}\n", "draft.kind"),
        (TEXT + "state_dtype: float16\n", "state_dtype"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(EdgekitError, match="no recipe") as caught:
        parse_recipe(text, "recipe.yaml")
    assert message in caught.value.cause


def test_the_spark_recipe_says_what_becomes_of_each_published_choice() -> None:
    recipe = load_recipe("lightning-spark")
    assert (recipe.context, recipe.kv_dtype, recipe.state_dtype) == (262144, "bfloat16", "float32")
    assert recipe.draft is not None
    assert (recipe.draft.kind, recipe.draft.tokens) == ("dspark", 7)
