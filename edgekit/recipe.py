"""How one model is quantized and built: one folder with a recipe.yaml.

What a recipe leaves out comes from the device profile. Unknown keys are errors. Quantization
itself is NVIDIA ModelOpt's own YAML, unchanged: a file beside recipe.yaml, or the name of a recipe
that ModelOpt ships. ModelOpt refuses keys it does not know, so the rest is here.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from edgekit.errors import EdgekitError
from edgekit.names import unknown_name
from edgekit.profile import Executor, KvDtype, WeightFormat


class Quantize(BaseModel):
    """Which weights are quantized, and how. Exactly one of `file` and `modelopt`.

    Attributes:
        file: a ModelOpt recipe beside recipe.yaml.
        modelopt: a recipe in ModelOpt's own library, by its path there without `.yaml`.
        activations: "ignored" quantizes weights alone, from the weights alone; "calibrated" also
            measures the scales of activations and of the KV cache, which takes ModelOpt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+\.ya?ml$")
    modelopt: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")
    activations: Literal["ignored", "calibrated"] = "ignored"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.modelopt is None):
            raise ValueError("give either file or modelopt")
        return self


class Draft(BaseModel):
    """The draft model a recipe speculates with.

    Attributes:
        kind: which drafter.
        tokens: proposed a step.
        quantize: how, for a draft that is not quantized; the target's rules never apply to it.
            None leaves it as it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["dspark", "dflash", "mtp"]
    tokens: int = Field(ge=1, le=7)
    quantize: Quantize | None = None

    @model_validator(mode="after")
    def _from_weights_alone(self) -> Self:
        if self.quantize is not None and self.kind == "mtp":
            raise ValueError("an mtp head is part of its target's checkpoint and stays as it is")
        if self.quantize is not None and self.quantize.activations == "calibrated":
            raise ValueError("a draft is quantized from its weights alone: activations: ignored")
        return self


class Recipe(BaseModel):
    """One way to build a model. See `load_recipe`.

    Attributes:
        model: the model it was made for, or "any".
        executor: what runs the graph, which decides the lowering; None leaves it to the profile.
        weights: "published" keeps the checkpoint's own formats; else what most of them become.
        quantize: how, for a checkpoint that is not quantized; one that is stays as it is.
        kv_dtype: of the KV cache; None leaves it to the device profile.
        state_dtype: of the convolution and SSM state.
        context, prefill_chunk: tokens; None leaves them to the device profile.
        snapshots: copies of the recurrent state kept for reuse of a prompt's beginning; None
            leaves it to the memory plan.
        draft: speculation; None is none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    summary: str
    model: str
    executor: Executor | None = None
    weights: Literal["published"] | WeightFormat = "published"
    quantize: Quantize | None = None
    kv_dtype: KvDtype | None = None
    state_dtype: Literal["float32"] = "float32"
    context: int | None = Field(default=None, gt=0)
    prefill_chunk: int | None = Field(default=None, gt=0)
    snapshots: int | None = Field(default=None, ge=0)
    draft: Draft | None = None

    _folder: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _weights_follow_from_quantize(self) -> Self:
        if self.quantize is not None and self.weights == "published":
            raise ValueError("quantize needs weights: the format most of them become")
        return self

    @property
    def quantize_source(self) -> Path | str | None:
        """The ModelOpt recipe: a file, a name in ModelOpt's library, or None.

        Raises:
            EdgekitError: the file is not beside recipe.yaml.
        """
        return self._source(self.quantize)

    @property
    def draft_source(self) -> Path | str | None:
        """The same for the draft model."""
        return self._source(self.draft.quantize if self.draft is not None else None)

    def _source(self, quantize: Quantize | None) -> Path | str | None:
        if quantize is None or quantize.file is None:
            return quantize.modelopt if quantize is not None else None
        path = (self._folder or Path()) / quantize.file
        if not path.is_file():
            raise EdgekitError(
                f"recipe {self.name} names {quantize.file}, which is not beside it",
                hint=f"write {path}, or remove `quantize`",
            )
        return path


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
        return parse_recipe(path.read_text(), str(path), path.parent)
    known = _recipe_files()
    if name not in known:
        raise unknown_name("recipe", name, known, hint="edgekit recipes lists them")
    file = Path(str(known[name]))
    return parse_recipe(known[name].read_text(), f"recipe {name}", file.parent)


def parse_recipe(text: str, where: str, folder: Path | None = None) -> Recipe:
    """A recipe from YAML text; `where` names it in errors, `folder` holds its other files."""
    try:
        values: Any = yaml.safe_load(text)
        recipe = Recipe.model_validate(values)
        recipe._folder = folder
        return recipe
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
