"""`edgekit build --report`: tables, JSON and a picture, or one clear error before anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit import picture
from edgekit.export import quantize
from edgekit.export.quantize import process
from edgekit.recipe import load_recipe
from edgekit.recipes.nano.skills import arithmetic, countries, letters
from tests.cli.conftest import Run

BUILD = ("build", "nano", "--device", "cpu", "--name", "small", "--report")


@pytest.fixture(autouse=True)
def few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.recipes.nano.questions.SKILLS", [countries, letters, arithmetic])


def test_a_report_in_json_and_in_the_bundle(edgekit: Run) -> None:
    pytest.importorskip("matplotlib")
    built = edgekit(*BUILD, "--recipe", "nano-nvfp4", "--json")
    assert built.code == 0, built.err
    (record,) = built.records
    report, bundle = record["report"], Path(record["path"])
    assert Path(report["plot"]).read_bytes().startswith(b"\x89PNG")
    assert json.loads((bundle / "report.json").read_text())["recipe"] == "nano-nvfp4"
    by_name = {layer["name"]: layer for layer in report["layers"]}
    assert by_name["lm_head"]["format"] == "nvfp4"
    assert 0.05 < by_name["lm_head"]["rms"] < 0.12
    assert len(report["weights"]) > len(report["layers"])
    assert {error["format"] for error in report["formats"]} == {"nvfp4", "fp8"}
    assert report["calibration"] is None
    quality = report["quality"]
    assert quality["questions"] >= 18
    assert quality["reference_right"] > 0.8
    assert 0 < quality["kl"] < 0.02
    assert edgekit("verify", "small").code == 0
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["small"]


def test_what_is_published_has_nothing_to_report(edgekit: Run) -> None:
    pytest.importorskip("matplotlib")
    built = edgekit(*BUILD, "--recipe", "nano-bf16")
    assert built.code == 0, built.err
    assert "nothing was quantized" in built.err
    assert not (Path(built.out.strip()) / "report.png").exists()


def test_without_matplotlib_nothing_is_built(
    edgekit: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    built = edgekit(*BUILD, "--recipe", "nano-int4")
    assert built.code == 3
    assert "pip install 'edgekit-nemotron[report]'" in built.err
    assert not list((home / "data").rglob("manifest.json"))


def test_tables_for_people(edgekit: Run) -> None:
    pytest.importorskip("matplotlib")
    built = edgekit(*BUILD, "--recipe", "nano-int4")
    assert built.code == 0, built.err
    lines = built.out.splitlines()
    assert Path(lines[0]).is_dir()
    assert "RMS ERROR" in lines[1]
    assert any(line.startswith("lm_head ") for line in lines)
    assert any(line.startswith("lost ") and "points" in line for line in lines)
    assert any(line.startswith("KL ") for line in lines)


def test_what_calibration_saw_is_reported(edgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for ModelOpt; the note lies in its folder, which a build removes."""
    pytest.importorskip("matplotlib")
    saw = {"texts": 1, "tokens": 9, "experts": 96, "unreached": {"model.layers.1": [3]}}

    def stand_in(checkpoint: Path, source: str, out: Path, *_: object) -> None:
        quantize.quantize_checkpoint(checkpoint, load_recipe("nano-fp8"), out)
        (out / process.REPORT).write_text(json.dumps(saw))

    monkeypatch.setattr(quantize, "run_modelopt", stand_in)
    Path("texts.txt").write_text("a text")
    built = edgekit(*BUILD, "--recipe", "nano-fp8", "--calib", "texts.txt", "--json")
    assert built.code == 0, built.err
    assert built.records[-1]["report"]["calibration"] == saw
