"""How one model is quantized and built: one folder with a recipe.yaml.

What a recipe leaves out comes from the device profile. Unknown keys are errors.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit.errors import EdgekitError
from edgekit.names import unknown_name
from edgekit.profile import Executor, KvDtype, WeightFormat


class Recipe(BaseModel):
    """One way to build a model. See `load_recipe`.

    Attributes:
        model: the model it was made for, or "any".
        executor: what runs the graph, which decides the lowering; None leaves it to the profile.
        weights: "published" keeps the checkpoint's own formats.
        kv_dtype: of the KV cache; None leaves it to the device profile.
        state_dtype: of the convolution and SSM state.
        context, prefill_chunk: tokens; None leaves them to the device profile.
        snapshots: copies of the recurrent state kept for reuse of a prompt's beginning; None
            leaves it to the memory plan.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    summary: str
    model: str
    executor: Executor | None = None
    weights: Literal["published"] | WeightFormat = "published"
    kv_dtype: KvDtype | None = None
    state_dtype: Literal["float32"] = "float32"
    context: int | None = Field(default=None, gt=0)
    prefill_chunk: int | None = Field(default=None, gt=0)
    snapshots: int | None = Field(default=None, ge=0)


def recipe_names() -> tuple[str, ...]:
    """Every recipe that ships with edgekit, sorted."""
    return tuple(sorted(_recipe_files()))


def load_recipe(name: str) -> Recipe:
    """A recipe by name, or from a file when `name` is a path to a YAML file or its folder.

    Raises:
        UsageError: no such recipe.
        EdgekitError: the file is damaged or has unknown keys.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name).expanduser()
        path = path / "recipe.yaml" if path.is_dir() else path
        if not path.is_file():
            raise EdgekitError(f"no recipe at {path}")
        return parse_recipe(path.read_text(), str(path))
    known = _recipe_files()
    if name not in known:
        raise unknown_name("recipe", name, known, hint="edgekit recipes lists them")
    return parse_recipe(known[name].read_text(), f"recipe {name}")


def parse_recipe(text: str, where: str) -> Recipe:
    """A recipe from YAML text; `where` names it in errors."""
    try:
        values: Any = yaml.safe_load(text)
        return Recipe.model_validate(values)
    except yaml.YAMLError as error:
        raise EdgekitError(f"{where} is not valid YAML", cause=str(error)) from None
    except ValidationError as error:
        causes = [
            f"{'.'.join(map(str, item['loc'])) or 'recipe'}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise EdgekitError(f"{where} is no recipe", cause="\n".join(causes)) from None


def _recipe_files() -> dict[str, Traversable]:
    found = {}
    for folder in files("edgekit").joinpath("recipes").iterdir():
        file = folder.joinpath("recipe.yaml")
        if folder.is_dir() and file.is_file():
            found[folder.name] = file
    return found
