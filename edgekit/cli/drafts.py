"""`edgekit build --draft`: which drafters go into a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgekit.choice import Choice
from edgekit.draft import draft_kind
from edgekit.errors import UsageError
from edgekit.export.draft_checkpoint import FOLDER
from edgekit.export.drafts import DraftRequest
from edgekit.recipe import Recipe
from edgekit.runtime.tokenizer import read_json

NONE = DraftRequest()


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
        if lowering != "ort":
            return Choice(NONE, f"executor {lowering} runs no drafter yet")
        if wanted == "mtp":
            return Choice(DraftRequest(mtp=True), f"recipe {recipe.name}")
        if comes_with:
            return Choice(DraftRequest(inside), "the checkpoint comes with it")
        return Choice(NONE, f"no {wanted or 'draft'} in {inside}; --draft DIR names one")
    if lowering != "ort":
        if list(values) == ["none"]:
            return Choice(NONE, "--draft none")
        raise UsageError(
            f"executor {lowering} runs no drafter yet",
            hint="--draft none, or --executor ort",
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
        kind = draft_kind(read_json(here / "config.json"))
        if value in ("dspark", "dflash") and kind != value:
            raise UsageError(f"--draft {value}: {here} holds a {kind} draft")
        if folder is not None:
            raise UsageError("a bundle holds one draft model, and two were given")
        folder = here
    return Choice(DraftRequest(folder, "mtp" in values), "--draft " + ", ".join(values))


def describe(request: DraftRequest) -> str:
    """The drafters in a word each."""
    kinds = (
        [] if request.folder is None else [draft_kind(read_json(request.folder / "config.json"))]
    )
    return ", ".join([*kinds, *(["mtp"] if request.mtp else [])]) or "none"
