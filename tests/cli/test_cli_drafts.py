"""Which drafters a build takes, what they add to the plan, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.bundle import Bundle
from edgekit.cli.drafts import choose_drafts, describe, needs
from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.errors import UsageError
from edgekit.runtime.executors.ort_draft import OrtDraft
from tests.cli.conftest import Run
from tests.tools.random_draft import dflash_config, write_random_draft

NANO = embedded_checkpoint()
PLAIN = SimpleNamespace(draft=None, name="nano-bf16")


def chosen(values: tuple[str, ...], lowering: str = "ort", recipe: object = PLAIN) -> DraftRequest:
    return choose_drafts(values, NANO, recipe, lowering).value  # type: ignore[arg-type]


def test_the_draft_that_a_checkpoint_comes_with_is_taken() -> None:
    assert chosen(()) == chosen(("dspark",)) == DraftRequest(NANO / "draft")
    assert chosen((), "plugin") == DraftRequest(NANO / "draft")
    assert chosen((), "standard") == chosen(("none",), "standard") == DraftRequest()
    assert chosen(("dspark", "mtp")) == DraftRequest(NANO / "draft", mtp=True)
    assert describe(chosen(("dspark", "mtp"))) == "dspark, mtp"
    assert describe(chosen(("none",))) == "none"


def test_a_recipe_may_ask_for_the_head() -> None:
    recipe = SimpleNamespace(draft=SimpleNamespace(kind="mtp"), name="x")
    assert chosen((), recipe=recipe) == DraftRequest(mtp=True)


@pytest.mark.parametrize(
    ("values", "lowering", "message"),
    [
        (("dspark",), "standard", "runs no draft model yet"),
        (("none", "mtp"), "ort", "contradict"),
        (("/no/such/folder",), "ort", "no draft in"),
        (("dflash",), "ort", "holds a dspark draft"),
        (("dspark", str(NANO / "draft")), "ort", "two were given"),
    ],
)
def test_what_makes_no_sense_is_refused(
    values: tuple[str, ...], lowering: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        chosen(values, lowering)


def test_kernels_do_not_take_what_they_cannot_run(tmp_path: Path) -> None:
    write_random_draft(tmp_path / "draft", dflash_config())
    choice = choose_drafts((), tmp_path, PLAIN, "plugin")  # type: ignore[arg-type]
    assert (choice.value, choice.why) == (DraftRequest(), "edgekit's kernels run DSpark only")


def test_the_plan_counts_them(edgekit: Run, tmp_path: Path) -> None:
    """As large as the drafter's own arrays are."""
    built = edgekit("build", "nano", "--output", str(tmp_path / "b"), "--context", "1024", "--json")
    assert built.code == 0
    planned = edgekit("build", "nano", "--dry-run", "--context", "1024", "--json")
    record = json.loads(planned.out)
    items = {item["name"]: item["bytes"] for item in record["plan"]["items"]}
    bundle = Bundle.open(tmp_path / "b")
    (graphs,) = bundle.manifest.drafts
    drafter = OrtDraft(bundle, graphs, threads=1)
    assert items["draft KV cache"] == sum(cache.nbytes for cache in drafter.caches.values())
    assert needs(DraftRequest(), NANO, "ort") is None
    assert record["draft"]["value"] == "dspark"
    plan = json.loads(edgekit("plan", "nano", "--context", "1024", "--json").out)
    assert {item["name"]: item["bytes"] for item in plan["items"]} == items


def test_a_bundle_says_how_to_build_it_again(edgekit: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "b")
    edgekit("build", "nano", "--output", out, "--draft", "mtp", "--context", "256")
    bundle = Bundle.open(tmp_path / "b")
    assert [draft.kind for draft in bundle.manifest.drafts] == ["mtp"]
    assert "--draft mtp" in bundle.rebuild_command
    again = edgekit(*bundle.rebuild_command.split()[1:])
    assert again.code == 0
    assert Bundle.open(tmp_path / "b").manifest.draft_values == ("mtp",)
