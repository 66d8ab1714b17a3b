"""Quantizes a draft model by its own rules: `draft.quantize` of a recipe, never the target's.

A DSpark or DFlash draft is a checkpoint folder of its own, which stands alone or as `draft` inside
its target's. Every matrix under its published name may be quantized, except those that are looked
up a row at a time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from edgekit.draft import draft_kind
from edgekit.errors import CheckpointError, EdgekitError
from edgekit.export.draft_checkpoint import FOLDER
from edgekit.export.quantization import read_declaration, stored_format
from edgekit.export.quantize.plan import Numerics, check_width, numerics_of
from edgekit.export.quantize.rules import Rules, read_rules
from edgekit.export.quantize.stream import QuantizeEvent, Source, quantize_stream
from edgekit.recipe import Recipe
from edgekit.safetensors import TensorEntry, read_folder

_LOOKED_UP = ("embed_tokens", "markov_head.markov_w1")


def quantize_draft(
    folder: Path,
    recipe: Recipe,
    out: Path,
    on_event: Callable[[QuantizeEvent], None] = lambda event: None,
) -> Path:
    """The draft as the recipe wants it: itself, or quantized into `out`.

    Args:
        folder: its config.json and safetensors files.
        out: a folder that is new or that an earlier, interrupted call left.

    Raises:
        CheckpointError: it is no draft, or another kind than the recipe's.
        EdgekitError: the recipe's rules for the draft do not fit it.
    """
    source = recipe.draft_source
    if recipe.draft is None or source is None:
        return folder
    tensors = read_folder(folder)
    kind = _kind(folder)
    if kind != recipe.draft.kind:
        raise CheckpointError(
            f"{folder} holds a {kind} draft, and recipe {recipe.name} speculates with "
            f"{recipe.draft.kind}",
            hint="use the draft that belongs to the recipe, or change draft.kind",
        )
    matrices = dict(draft_matrices(tensors))
    if any(stored_format(tensors, module) != "dense" for module in matrices):
        read_declaration(folder)
        return folder
    modules = plan_draft(read_rules(source), matrices)
    kept = (*(name for name in matrices if name not in modules), *_LOOKED_UP)
    return quantize_stream(Source(folder, tensors, kept), modules, out, on_event)


def carry_draft(
    checkpoint: Path, recipe: Recipe, out: Path, on_event: Callable[[QuantizeEvent], None]
) -> None:
    """Takes the draft inside `checkpoint`, if there is one, over into the quantized folder."""
    folder, target = checkpoint / FOLDER, out / FOLDER
    if not (folder / "config.json").is_file() or (target / "config.json").is_file():
        return
    if quantize_draft(folder, recipe, target, on_event) == folder:
        part = out / f"{FOLDER}.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(folder, part)
        part.rename(target)


def plan_draft(rules: Rules, matrices: Mapping[str, int]) -> dict[str, Numerics]:
    """The number format of each quantized matrix, given their columns by module.

    Raises:
        EdgekitError: the rules quantize nothing, or what cannot be quantized.
    """
    for module in _LOOKED_UP:
        if rules.attributes(f"{module}.weight_quantizer", "nn.Embedding") is not None:
            raise EdgekitError(
                f"{rules.where} quantizes {module}",
                cause="its rows are looked up, and edgekit keeps such tables dense",
                hint=f"add the rule {{quantizer_name: '*{module}*', enable: false}} at its end",
            )
    modules: dict[str, Numerics] = {}
    for module, columns in matrices.items():
        attributes = rules.attributes(f"{module}.weight_quantizer", "nn.Linear")
        if attributes is None:
            continue
        numerics = numerics_of(attributes, rules.algorithm)
        if isinstance(numerics, str):
            raise EdgekitError(
                f"{rules.where} cannot quantize {module} of a draft",
                cause=numerics,
                hint="a draft is quantized from its weights alone: NVFP4, FP8 or INT4",
            )
        check_width(module, columns, numerics)
        modules[module] = numerics
    if not modules:
        raise EdgekitError(
            f"{rules.where} quantizes nothing of the draft",
            cause=f"no rule names one of its matrices, for example {next(iter(matrices), 'none')}",
            hint="a draft needs rules of its own, not its target's",
        )
    return modules


def draft_matrices(tensors: Mapping[str, TensorEntry]) -> Iterator[tuple[str, int]]:
    """Modules of a draft that multiply by a matrix, and its columns."""
    for name, entry in tensors.items():
        module = name.removesuffix(".weight")
        if module != name and len(entry.shape) == 2 and module not in _LOOKED_UP:
            yield module, entry.shape[1]


def _kind(folder: Path) -> str:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder} holds no draft that edgekit knows",
            cause=f"{type(error).__name__}: {error}",
            hint="pass the folder of a draft: config.json and *.safetensors",
        ) from None
    return draft_kind(config if isinstance(config, dict) else {})
