"""`edgekit recipes`."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli.options import Json, complete_recipe
from edgekit.cli.output import out


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            autocompletion=complete_recipe,
            help="Show this one in full.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List recipes, or show one. What a recipe leaves out comes from the device profile."""
    from edgekit.recipe import load_recipe, recipe_names

    out.json = json
    if name is not None:
        record = load_recipe(name).model_dump(mode="json")
        if out.json:
            out.json_line({"type": "recipe", **record})
        else:
            del record["schema_version"]
            out.record(record)
        return
    rows = [
        {"type": "recipe", **load_recipe(known).model_dump(mode="json")} for known in recipe_names()
    ]
    out.table(["name", "model", "executor", "weights", "summary"], rows)
