"""`edgekit plan`: the memory budget, with no GPU and no weights read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.cli.options import (
    Context,
    Json,
    PrefillChunk,
    RecipeName,
    complete_model,
    complete_profile,
    globals_of,
)
from edgekit.cli.output import Style, out
from edgekit.units import size_text

if TYPE_CHECKING:
    from edgekit.budget import Plan, Verdict

ALL = "all"
_BAR = 24
_COLORS: dict[Verdict, Style] = {"fits": "green", "marginal": "yellow", "does not fit": "red"}


def plan(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            autocompletion=complete_model,
            help="Checkpoint folder, `nano`, or the name of a known model.",
            show_default=False,
        ),
    ],
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="PROFILE",
            autocompletion=complete_profile,
            help="Device profile; `all` compares them; this machine when left out.",
        ),
    ] = None,
    recipe: RecipeName = None,
    context: Context = None,
    prefill_chunk: PrefillChunk = None,
    snapshots: Annotated[
        int | None,
        typer.Option("--snapshots", min=0, metavar="N", help="Copies of the state to keep."),
    ] = None,
    json: Json = False,
) -> None:
    """Show the memory a model needs on a device, item by item.

    Values that nobody set are made smaller until the model fits; each says why it is what it is.
    Exits 1 when the model does not fit, and says what would.
    """
    from edgekit.budget import fit_error
    from edgekit.catalog import catalog
    from edgekit.cli.build import lowering_of
    from edgekit.cli.drafts import choose_drafts, needs
    from edgekit.cli.target import (
        as_recipe_leaves,
        checkpoint_folder,
        plan_for,
        plan_model,
        plans_for_all,
        resolve_target,
    )

    out.json = json
    every = device == ALL
    settings = globals_of(ctx).settings(
        device=None if every else device,
        recipe=recipe,
        context=context,
        prefill_chunk=prefill_chunk,
    )
    described = plan_model(model)
    if every:
        rows = [_summary(item) for item in plans_for_all(settings, model, described)]
        out.table(["profile", "verdict", "needed", "available", "context", "chunk"], rows)
        return
    target = resolve_target(settings, model)
    if model not in catalog():  # a checkpoint, whose weights the recipe may change
        described, _ = as_recipe_leaves(described, target, model)
        folder, lowering = checkpoint_folder(model), lowering_of(None, target.executor.value)
        drafts = choose_drafts((), folder, target.recipe, lowering)
        described = replace(described, draft=needs(drafts.value, folder, lowering))
    result = plan_for(target, described, snapshots)
    if out.json:
        out.json_line({"type": "plan", **plan_record(result)})
    else:
        print_plan(result, target.profile_why)
    if result.headroom < 0:
        error = fit_error(result, described, list(plans_for_all(settings, model, described)))
        error.cause = ""  # the table is on stdout already
        raise error


def plan_record(plan: Plan) -> dict[str, Any]:
    """A plan as JSON; sizes in bytes."""
    choices = ("executor", "kv_dtype", "context", "prefill_chunk", "snapshots")
    return {
        "model": plan.model,
        "profile": plan.profile,
        "verdict": plan.verdict,
        "items": [
            {"name": item.name, "bytes": item.nbytes, "why": item.why} for item in plan.items
        ],
        "needed": plan.needed,
        "available": plan.available,
        "headroom": plan.headroom,
        "total": plan.total,
        "usable": plan.usable,
        "usable_why": plan.usable_why,
        "reserve": plan.reserve,
        "choices": {
            name: {"value": getattr(plan, name).value, "why": getattr(plan, name).why}
            for name in choices
        },
        "notes": list(plan.notes),
    }


def _summary(plan: Plan) -> dict[str, Any]:

    if out.json:
        return {"type": "plan", **plan_record(plan)}
    return {
        "profile": plan.profile,
        "verdict": plan.verdict,
        "needed": size_text(plan.needed),
        "available": size_text(plan.available),
        "context": plan.context.value,
        "chunk": plan.prefill_chunk.value,
    }


def print_plan(plan: Plan, device_why: str) -> None:
    """The plan for people: a line and a bar for each item, then the choices."""

    verdict = out.styled(plan.verdict, _COLORS[plan.verdict], out.stdout)
    out.print(f"{plan.model} on {plan.profile}: {verdict}")
    out.print(out.styled(f"device: {device_why}", "dim", out.stdout))
    out.print("")
    scale = max(plan.available, plan.needed, 1)
    rows = [(item.name, item.nbytes, item.why) for item in plan.items]
    width = max(len(name) for name, _, _ in rows)

    def line(name: str, nbytes: int, why: str, bar: bool = True) -> None:
        filled = "█" * round(_BAR * nbytes / scale) if bar else ""
        text = f"{name:<{width}}  {size_text(nbytes):>10}  {filled:<{_BAR}}  "
        out.print((text + out.styled(why, "dim", out.stdout)).rstrip())

    for row in rows:
        line(*row)
    line("needed", plan.needed, "")
    why = f"{size_text(plan.usable)} usable less {size_text(plan.reserve)} reserve"
    line("available", plan.available, f"{why} ({plan.usable_why})")
    if plan.headroom >= 0:
        line("left", plan.headroom, "")
    else:
        line("short by", -plan.headroom, "", bar=False)
    out.print("")
    for label in ("executor", "kv_dtype", "context", "prefill_chunk", "snapshots"):
        choice = getattr(plan, label)
        text = f"{label.replace('_', ' '):<{width}}  {choice.value!s:>10}  "
        out.print(text + out.styled(choice.why, "dim", out.stdout))
    for note in plan.notes:
        out.print(out.styled(f"note: {note}", "dim", out.stdout))
