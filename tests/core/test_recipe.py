"""Recipes: every file loads, and what is wrong is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import EdgekitError, UsageError
from edgekit.recipe import load_recipe, parse_recipe, recipe_names

TEXT = """
schema_version: 1
name: mine
summary: one of mine
model: any
"""


def test_every_recipe_loads_under_its_folder_name() -> None:
    names = recipe_names()
    assert {"nano-bf16", "published"} <= set(names)
    for name in names:
        assert load_recipe(name).name == name


def test_the_embedded_recipe() -> None:
    recipe = load_recipe("nano-bf16")
    assert (recipe.model, recipe.executor, recipe.weights) == ("nano", "ort", "published")
    assert (recipe.kv_dtype, recipe.context) == ("float32", 4096)


def test_what_a_recipe_leaves_out_is_none() -> None:
    recipe = load_recipe("published")
    assert (recipe.executor, recipe.kv_dtype, recipe.context) == (None, None, None)


def test_an_unknown_name_gives_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe("nano-bf61")
    assert "'nano-bf16'" in caught.value.hint


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(TEXT)
    assert load_recipe(str(tmp_path / "recipe.yaml")).name == "mine"
    assert load_recipe(f"{tmp_path}/").name == "mine"
    with pytest.raises(EdgekitError, match="no recipe at"):
        load_recipe(str(tmp_path / "other.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT + "contxt: 3\n", "contxt"),
        (TEXT + "executor: cuda\n", "executor"),
        (TEXT + "context: 0\n", "context"),
        (TEXT.replace("version: 1", "version: 2"), "schema_version"),
        ("- a list", "recipe"),
        ("", "recipe"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(EdgekitError, match="no recipe") as caught:
        parse_recipe(text, "recipe.yaml")
    assert message in caught.value.cause


def test_yaml_that_is_none() -> None:
    with pytest.raises(EdgekitError, match="not valid YAML"):
        parse_recipe("a: [", "recipe.yaml")


def test_yaml_cannot_run_code() -> None:
    with pytest.raises(EdgekitError, match="not valid YAML"):
        parse_recipe("!!python/object/apply:os.getcwd []", "recipe.yaml")
