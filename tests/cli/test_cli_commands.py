"""build, plan, verify, list, show, rm, profiles, recipes and config, seen from outside."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import NANO, Run


def test_build_and_everything_after(edgekit: Run, home: Path) -> None:
    built = edgekit("build", "nano", "--progress", "plain")
    path = home / "data/edgekit/bundles/nano"
    assert built.code == 0, built.err
    assert built.out == f"{path}\n"
    assert "writing weights" in built.err
    assert "hint: edgekit run nano" in built.err

    again = edgekit("build", "nano")
    assert again.code == 2
    assert "--force" in again.err

    listed = edgekit("list", "--json").records
    assert [(row["name"], row["profile"], row["context"]) for row in listed] == [
        ("nano", "cpu", 4096)
    ]
    assert edgekit("ls", "-q").out == "nano\n"
    assert edgekit("list").out.startswith("NAME ")

    shown = edgekit("show", "nano", "--json").records[0]
    assert shown["recipe"] == "nano-bf16"
    assert "weights/weights.bin" in shown["files"]
    assert "weights/weights.bin" in edgekit("show", str(path)).out

    verified = edgekit("verify", "nano", "--json")
    assert verified.code == 0
    assert verified.records[0]["ok"] is True
    assert "verdict" in edgekit("verify", "nano").out

    kept = edgekit("rm", "nano")
    assert kept.code == 2
    assert path.exists()
    removed = edgekit("rm", "nano", "-y")
    assert removed.code == 0
    assert "removed nano" in removed.err
    assert not path.exists()
    assert edgekit("list").out == ""
    assert "hint: edgekit build nano" in edgekit("verify", "nano").err


def test_build_progress_as_json_is_on_stderr(edgekit: Run, tmp_path: Path) -> None:
    result = edgekit(
        "build", "nano", "-o", str(tmp_path / "out"), "--progress", "json", "--json",
        "--context", "512", "--prefill-chunk", "64",
    )  # fmt: skip
    assert result.code == 0
    (record,) = result.records
    assert record["path"] == str(tmp_path / "out")
    assert record["context"] == {"value": 512, "why": "--context"}
    events = [json.loads(line) for line in result.err.splitlines()]
    assert {event["step"] for event in events} >= {"weights", "golden", "finish"}
    assert all(event["type"] == "progress" for event in events)


def test_build_dry_run_builds_nothing_and_says_why(edgekit: Run, home: Path) -> None:
    shown = edgekit("build", "nano", "--device", "orin-nano-8gb", "--dry-run")
    assert shown.code == 0
    assert "orin-nano-8gb" in shown.out
    assert "recipe nano-bf16" in shown.out
    record = edgekit("build", "nano", "--context", "99", "--dry-run", "--json").records[0]
    assert record["context"]["why"] == "--context"
    assert record["plan"]["verdict"] == "fits"
    assert not (home / "data").exists()


def test_build_of_what_is_no_model(edgekit: Run, tmp_path: Path) -> None:
    for word, code, said in (
        ("nanp", 2, "did you mean 'nano'?"),
        ("lightning", 2, "pass its folder"),
        ("/no/such/folder", 2, "does not exist"),
        (str(tmp_path / "home"), 2, "does not exist"),
    ):
        result = edgekit("build", word)
        assert (result.code, said in result.err) == (code, True), result.err
    (tmp_path / "empty").mkdir()
    result = edgekit("build", str(tmp_path / "empty"))
    assert result.code == 1
    assert "config.json" in result.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--device", "orin-nano-8b"], "did you mean 'orin-nano-8gb'?"),
        (["--recipe", "nano-bf61"], "did you mean 'nano-bf16'?"),
        (["--name", "../elsewhere"], "no bundle name"),
        (["--name", "a", "--output", "b"], "give one"),
    ],
)
def test_build_with_wrong_values(edgekit: Run, flags: list[str], said: str) -> None:
    result = edgekit("build", "nano", *flags)
    assert result.code == 2
    assert said in result.err


@pytest.mark.parametrize(
    ("versions", "executor", "why"),
    [
        ({"tensorrt-rtx": "1.7.1"}, "tensorrt-rtx", "TensorRT for RTX 1.7.1 is installed"),
        ({}, "kernels", "TensorRT for RTX is not installed"),
    ],
)
def test_build_for_spark_says_what_with_and_why(
    edgekit: Run,
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str],
    executor: str,
    why: str,
) -> None:
    monkeypatch.setattr("edgekit.engines.installed", versions.get)
    dry_run = ("build", "nano", "--device", "dgx-spark", "--dry-run", "--json")
    record = edgekit(*dry_run).records[0]
    assert record["executor"]["value"] == executor
    assert why in record["executor"]["why"]
    chunk = record["prefill_chunk"]
    assert (chunk["value"] == 512) == (executor == "tensorrt-rtx")
    forced = edgekit(*dry_run, "--executor", "ort").records[0]["executor"]
    assert forced == {"value": "ort", "why": "--executor"}


def test_build_for_a_board_without_a_cuda_compiler(
    edgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.export.plugins.compile.shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    output = tmp_path / "bundle"
    result = edgekit("build", str(NANO), "--device", "thor-t5000", "--output", str(output))
    assert result.code == 3
    assert "executor kernels for sm_110: profile thor-t5000; TensorRT is not" in result.err
    assert "there is no CUDA compiler to build kernels with" in result.err
    assert not output.exists()


def test_build_for_a_gpu_that_is_not_here(edgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.detect.query_gpu", lambda: None)
    monkeypatch.setattr("edgekit.cli.target.query_gpu", lambda: None)
    assert edgekit("build", "nano", "--device", "gpu", "--dry-run").code == 3
    result = edgekit("build", "nano", "--device", "gpu", "--sm", "90", "--dry-run")
    assert result.code == 0
    assert "kernels" in result.out


def test_build_of_what_does_not_fit_shows_the_table(edgekit: Run, tmp_path: Path) -> None:
    config = json.loads((NANO / "config.json").read_text())
    config.update(n_routed_experts=100_000, num_experts_per_tok=4)
    (tmp_path / "huge").mkdir()
    (tmp_path / "huge" / "config.json").write_text(json.dumps(config))
    result = edgekit("build", str(tmp_path / "huge"), "--device", "orin-nano-4gb", "--json")
    assert result.code == 1
    (record,) = result.records
    assert "huge does not fit orin-nano-4gb" in record["error"]
    for word in ("weights", "KV cache", "reserve", "short by"):
        assert word in record["cause"]


def test_plan(edgekit: Run) -> None:
    fits = edgekit("plan", "lightning", "--device", "agx-orin-32gb")
    assert fits.code == 0
    assert "marginal" in fits.out.splitlines()[0]
    assert "weights" in fits.out
    assert "█" in fits.out
    refused = edgekit("plan", "lightning", "--device", "orin-nano-8gb")
    assert refused.code == 1
    assert "short by" in refused.out
    assert "error: " in refused.err
    assert "agx-orin-32gb" in refused.err


def test_plan_for_all_boards(edgekit: Run) -> None:
    rows = edgekit("plan", "lightning", "--device", "all", "--json").records
    verdicts = {row["profile"]: row["verdict"] for row in rows}
    assert verdicts["orin-nx-16gb"] == "does not fit"
    assert verdicts["dgx-spark"] == "fits"
    assert edgekit("plan", "lightning", "--device", "all").out.startswith("PROFILE")


def test_plan_of_a_checkpoint_without_weights(edgekit: Run, tmp_path: Path) -> None:
    shutil.copy(NANO / "config.json", tmp_path / "config.json")
    record = edgekit("plan", str(tmp_path), "--device", "thor-t4000", "--json").records[0]
    assert "no weights here" in record["items"][0]["why"]


def test_plan_reads_settings(edgekit: Run) -> None:
    Path("edgekit.toml").write_text("context = 512\n")
    record = edgekit("plan", "nano", "--json").records[0]
    assert record["choices"]["context"] == {"value": 512, "why": "./edgekit.toml"}


def test_a_damaged_bundle_is_listed_as_a_warning(edgekit: Run, home: Path) -> None:
    folder = home / "data/edgekit/bundles/broken"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    result = edgekit("list")
    assert result.code == 0
    assert "warning:" in result.err
    assert edgekit("show", "broken").code == 1
    (record,) = edgekit("list", "--json").records
    assert record["type"] == "broken"
    assert "edgekit build" in record["hint"]


def test_a_bundle_goes_by_its_folder(edgekit: Run, nano: Path) -> None:
    """`run`, `show` and `rm` take the folder's name, so `list` must print that."""
    (nano.parent / "renamed").symlink_to(nano.resolve(), target_is_directory=True)
    assert {row["name"] for row in edgekit("list", "--json").records} == {"nano", "renamed"}
    assert edgekit("show", "renamed", "--json").records[0]["name"] == "renamed"


def test_verify_of_changed_bytes(edgekit: Run, built_nano: Path, home: Path) -> None:
    copy = home / "data/edgekit/bundles/nano"
    shutil.copytree(built_nano, copy)
    weights = copy / "weights" / "weights.bin"
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(content)
    result = edgekit("verify", "nano")
    assert result.code == 1
    assert "weights.bin" in result.err


def test_profiles(edgekit: Run) -> None:
    result = edgekit("profiles")
    assert "dgx-spark" in result.out
    assert "this machine:" in result.err
    rows = edgekit("profiles", "--json").records
    assert sum(row["detected"] for row in rows) == 1
    shown = edgekit("profiles", "orin-nano-4gb")
    assert "not measured" in shown.out
    assert "datasheet" in shown.out
    assert edgekit("profiles", "orin-nano-4gb", "--json").records[0]["sm"] == "8.7"
    assert edgekit("profiles", "orin-nano-5gb").code == 2


def test_recipes(edgekit: Run) -> None:
    assert "nano-bf16" in edgekit("recipes").out
    assert edgekit("recipes", "nano-bf16", "--json").records[0]["executor"] == "ort"
    assert "did you mean 'published'?" in edgekit("recipes", "publisht").err


def test_config(edgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("edgekit.toml").write_text("temperature = 0.5\n")
    monkeypatch.setenv("EDGEKIT_SEED", "3")
    rows = {row["setting"]: row for row in edgekit("config", "--json").records}
    assert rows["temperature"]["origin"] == "./edgekit.toml"
    assert (rows["seed"]["value"], rows["seed"]["origin"]) == (3, "EDGEKIT_SEED")
    assert rows["context"]["origin"].startswith("profile ")
    assert rows["stats"]["origin"] == "default"
    assert edgekit("config", "temperature").out == "0.5\n"
    assert edgekit("config", "top_p").out == "\n"
    shown = edgekit("config")
    assert "./edgekit.toml" in shown.out
    assert "edgekit.toml: read" in shown.err
    assert "did you mean 'temperature'?" in edgekit("config", "temprature").err
    unread = edgekit("--no-config", "config", "temperature")
    assert unread.out == "\n"
