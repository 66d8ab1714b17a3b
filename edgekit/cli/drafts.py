"""`edgekit build --draft`: which drafters go into a bundle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edgekit.budget import DraftNeeds
from edgekit.choice import Choice
from edgekit.draft import DraftRequest, draft_kind, load_draft_spec
from edgekit.errors import UsageError
from edgekit.export.draft_checkpoint import FOLDER
from edgekit.model import load_spec
from edgekit.recipe import Recipe
from edgekit.runtime.tokenizer import read_json
from edgekit.safetensors import TensorEntry, read_folder

NONE = DraftRequest()


RUN_DRAFTS = ("ort", "plugin")
"""The lowerings whose executors run draft models."""


def draft_of(folder: Path) -> str:
    """The kind of the draft in a folder."""
    return draft_kind(read_json(folder / "config.json"))


def choose_drafts(
    values: Sequence[str], checkpoint: Path, recipe: Recipe, lowering: str
) -> Choice[DraftRequest]:
    """What `--draft` asks for, or what the checkpoint comes with when it asks for nothing.

    Args:
        values: of the option: `none`, `mtp`, `dspark` or `dflash` for the draft inside the
            checkpoint, or the folder of a draft.

    Raises:
        UsageError: a value is no draft, or the executor runs none.
    """
    inside = checkpoint / FOLDER
    comes_with = (inside / "config.json").is_file()
    if not values:
        wanted = recipe.draft.kind if recipe.draft is not None else None
        if lowering not in RUN_DRAFTS:
            return Choice(NONE, f"{lowering} runs no draft model yet")
        if lowering == "plugin" and comes_with and draft_of(inside) != "dspark":
            return Choice(NONE, "edgekit's kernels run DSpark only")
        if wanted == "mtp" and lowering == "ort":
            return Choice(DraftRequest(mtp=True), f"recipe {recipe.name}")
        if comes_with:
            return Choice(DraftRequest(inside), "the checkpoint comes with it")
        return Choice(NONE, f"no {wanted or 'draft'} in {inside}; --draft DIR names one")
    if lowering not in RUN_DRAFTS and list(values) != ["none"]:
        raise UsageError(
            f"{lowering} runs no draft model yet",
            hint="--draft none, or --executor ort or kernels",
        )
    if "none" in values and len(values) > 1:
        raise UsageError("--draft none and another --draft contradict each other")
    folder: Path | None = None
    for value in values:
        if value in ("none", "mtp"):
            continue
        here = inside if value in ("dspark", "dflash") else Path(value).expanduser()
        if not (here / "config.json").is_file():
            raise UsageError(
                f"--draft {value}: no draft in {here}",
                cause="a draft is a folder with config.json and *.safetensors",
                hint="--draft DIR, --draft mtp for the checkpoint's own head, or --draft none",
            )
        kind = draft_of(here)
        if value in ("dspark", "dflash") and kind != value:
            raise UsageError(f"--draft {value}: {here} holds a {kind} draft")
        if folder is not None:
            raise UsageError("a bundle holds one draft model, and two were given")
        folder = here
    return Choice(DraftRequest(folder, "mtp" in values), "--draft " + ", ".join(values))


def needs(request: DraftRequest, checkpoint: Path, lowering: str) -> DraftNeeds | None:
    """What the drafters add to the memory plan; of two, both.

    Raises:
        CheckpointError: a draft's config or a header cannot be read.
    """
    found: list[DraftNeeds] = []
    element = 4 if lowering == "ort" else 2
    if request.folder is not None:
        spec = load_draft_spec(request.folder / "config.json")
        shared = ("embed_tokens.", "lm_head.")
        tensors = [e for n, e in read_folder(request.folder).items() if not n.startswith(shared)]
        width = len(spec.target_layer_ids) * spec.hidden_size
        row = spec.kv_bytes_per_token(element)
        size = resident_bytes(tensors, lowering)
        found.append(DraftNeeds(spec.kind, size, spec.sliding_window, row, width))
    if request.mtp:
        model = load_spec(checkpoint)
        tensors = [e for n, e in read_folder(checkpoint).items() if n.startswith("mtp.")]
        row = 2 * model.num_key_value_heads * model.head_dim * element
        size = resident_bytes(tensors, lowering)
        found.append(DraftNeeds("mtp", size, None, row, model.hidden_size))
    if len(found) < 2:
        return found[0] if found else None
    one, other = found
    return DraftNeeds(
        f"{one.kind} and {other.kind}",
        one.weight_bytes + other.weight_bytes,
        None,
        one.row_bytes + other.row_bytes,
        one.tap_width + other.tap_width,
    )


def resident_bytes(tensors: Iterable[TensorEntry], lowering: str) -> int:
    """Bytes of a draft's weights while it runs: as stored, or in float32 for ONNX Runtime."""
    if lowering != "ort":
        return sum(entry.nbytes for entry in tensors)
    total = 0
    for entry in tensors:
        elements = math.prod(entry.shape)
        if entry.dtype == np.uint8:  # two codes a byte
            elements *= 2
        if ".experts." in entry.name and ".up_proj" in entry.name:  # written twice
            elements *= 2
        total += 4 * elements
    return total


def describe(request: DraftRequest) -> str:
    """The drafters in a word each."""
    kinds = (
        [] if request.folder is None else [draft_kind(read_json(request.folder / "config.json"))]
    )
    return ", ".join([*kinds, *(["mtp"] if request.mtp else [])]) or "none"
