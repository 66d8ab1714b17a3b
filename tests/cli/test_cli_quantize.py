"""`edgekit build` with a recipe that quantizes: the stream into the cache, then the bundle."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from edgekit.errors import EdgekitError
from edgekit.export import quantize
from edgekit.export.quantize import foresee, process
from edgekit.recipe import load_recipe
from tests.cli.conftest import NANO, Run


@pytest.mark.parametrize(
    ("recipe", "weights"), [("nano-int4", "float32+int4"), ("nano-nvfp4", "float32")]
)
def test_a_recipe_quantizes_and_the_bundle_verifies(
    edgekit: Run, home: Path, recipe: str, weights: str
) -> None:
    built = edgekit("build", "nano", "--device", "cpu", "--recipe", recipe, "--name", "small")
    assert built.code == 0, built.err
    assert "quantizing" in built.err
    bundle = Bundle.open(Path(built.out.strip()))
    assert bundle.manifest.recipe == recipe
    assert bundle.manifest.weights_format == weights
    assert edgekit("verify", "small").code == 0
    assert list((home / "cache" / "edgekit" / "quantized").iterdir()) == []


def test_a_stopped_build_keeps_what_it_quantized(
    edgekit: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("build", "nano", "--device", "cpu", "--recipe", "nano-fp8", "--name", "small")
    with monkeypatch.context() as patch:
        patch.setattr("edgekit.export.build.compute_golden", lambda *_: 1 / 0)
        assert edgekit(*command).code == 5
    (kept,) = (home / "cache" / "edgekit" / "quantized").iterdir()
    before = (kept / "config.json").stat().st_mtime_ns
    seen = []
    original = quantize.quantize_checkpoint

    def spy(*args: object) -> Path:
        folder = original(*args)  # type: ignore[arg-type]
        seen.append((folder / "config.json").stat().st_mtime_ns)
        return folder

    monkeypatch.setattr("edgekit.export.quantize.quantize_checkpoint", spy)
    assert edgekit(*command).code == 0
    assert seen == [before]


@pytest.mark.parametrize("missed", [{}, {"model.layers.1.mixer.experts": [3, 5]}])
def test_experts_that_calibration_did_not_reach_are_named(
    edgekit: Run, home: Path, monkeypatch: pytest.MonkeyPatch, missed: dict[str, list[int]]
) -> None:
    """With a stand-in for ModelOpt that quantizes as edgekit does and reports `missed`."""

    def stand_in(checkpoint: Path, source: str, out: Path, *_: object) -> None:
        quantize.quantize_checkpoint(checkpoint, load_recipe("nano-fp8"), out)
        report = {"texts": 1, "tokens": 9, "experts": 96, "unreached": missed}
        (out / process.REPORT).write_text(json.dumps(report))

    monkeypatch.setattr(quantize, "run_modelopt", stand_in)
    (home / "texts.txt").write_text("a text")
    command = ("build", "nano", "--device", "cpu", "--recipe", "nano-fp8", "--name", "small")
    built = edgekit(*command, "--calib", str(home / "texts.txt"))
    assert built.code == 0, built.err
    assert ("did not reach 2 of 96 experts" in built.err) == bool(missed)
    assert ("model.layers.1.mixer.experts: 3, 5" in built.err) == bool(missed)
    assert ("--calib FILE" in built.err) == bool(missed)


def test_what_a_build_cost_is_said(edgekit: Run) -> None:
    command = ("build", "nano", "--device", "cpu", "--recipe", "nano-int4", "--name", "small")
    (record,) = edgekit(*command, "--json").records
    assert record["seconds"] > 0
    resident = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    assert 20 << 20 < record["peak_bytes"] <= resident << 10
    # beside heavier tests the peak of the process is theirs
    assert re.search(r"at most [0-9.]+ [MG]iB used", edgekit(*command, "--force").err)


def test_the_memory_plan_counts_quantized_weights(edgekit: Run) -> None:
    """On a board whose kernels read int4, what a BF16 checkpoint takes is what becomes of it."""
    flags = ("--device", "agx-orin-64gb", "--dry-run", "--json")
    weights = {}
    for recipe in ("published", "nano-9b-v2-int4"):  # no experts in its rules: Mamba and lm_head
        (record,) = edgekit("build", str(NANO), *flags, "--recipe", recipe).records
        ways = {"published": "unchanged", "nano-9b-v2-int4": "numpy"}
        assert record["quantize"]["value"] == ways[recipe]
        assert record["quantize"]["why"]
        (item,) = (item for item in record["plan"]["items"] if item["name"] == "weights")
        weights[recipe] = item["bytes"]
    before = foresee(NANO, load_recipe("published")).nbytes
    after = foresee(NANO, load_recipe("nano-9b-v2-int4")).nbytes
    assert weights == {"published": before, "nano-9b-v2-int4": after}
    assert after < 0.7 * before


def test_plan_counts_what_build_would(edgekit: Run) -> None:
    flags = ("--device", "agx-orin-64gb", "--recipe", "nano-9b-v2-int4", "--json")
    (planned,) = edgekit("plan", str(NANO), *flags).records
    (built,) = edgekit("build", str(NANO), *flags, "--dry-run").records
    assert planned["items"] == built["plan"]["items"]


@pytest.mark.parametrize("kind", ["float8", "float16"])
def test_a_cache_that_nothing_reads_is_refused(edgekit: Run, home: Path, kind: str) -> None:
    recipe = home / "recipe.yaml"
    recipe.write_text(
        f"schema_version: 1\nname: mine\nsummary: mine\nmodel: any\nkv_dtype: {kind}\n"
    )
    spark = ("dgx-spark", "--sm", "121", "--executor")
    for device in (("cpu",), (*spark, "tensorrt"), (*spark, "kernels")):
        built = edgekit("build", "nano", "--recipe", str(recipe), "--device", *device, "--dry-run")
        if kind == "float8" and device[-1] != "cpu":
            assert built.code == 0, built.err
            continue
        assert built.code == 2
        assert f"asks for a {kind} KV cache" in built.err
        assert "kv_dtype: bfloat16" in built.err


@pytest.mark.parametrize("changed", ["rules.yaml", "draft.yaml", "texts.txt", "checkpoint/draft/x"])
def test_what_a_stopped_build_left_is_not_taken_for_another(
    edgekit: Run, home: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """The rules, the draft's, the texts or the draft changed: the next build starts afresh."""
    shutil.copytree(NANO, home / "checkpoint")
    (home / "checkpoint" / "draft").mkdir(exist_ok=True)
    for file in ("texts.txt", "draft.yaml", "checkpoint/draft/x"):
        (home / file).write_text("a text")
    rules = load_recipe("nano-fp8").quantize_source
    assert isinstance(rules, Path)
    shutil.copyfile(rules, home / "rules.yaml")
    (home / "recipe.yaml").write_text(
        "schema_version: 1\nname: mine\nsummary: mine\nmodel: any\nweights: fp8\nexecutor: ort\n"
        "quantize: {file: rules.yaml}\n"
        "draft: {kind: dspark, tokens: 7, quantize: {file: draft.yaml}}\n"
    )
    folders = []

    def stop(checkpoint: Path, recipe: object, out: Path, *_: object) -> None:
        folders.append(out)
        raise EdgekitError("stopped")

    monkeypatch.setattr(quantize, "quantize_checkpoint", stop)
    command = ("build", str(home / "checkpoint"), "--recipe", str(home / "recipe.yaml"))
    command += ("--device", "cpu", "--calib", str(home / "texts.txt"))
    for _ in range(2):
        assert edgekit(*command).code == 1
    text = (home / changed).read_text()
    (home / changed).write_text(text + "\n# changed\n")
    assert edgekit(*command).code == 1
    assert folders[0] == folders[1] != folders[2]
