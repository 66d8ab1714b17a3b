"""`edgekit bench` seen from outside: records, the table, and what it refuses. Nothing is timed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit import picture
from edgekit.cli import bench_compare, main
from edgekit.runtime.bench import bandwidth
from tests.cli.conftest import Run

QUICK = ("-p", "16", "-n", "4", "--repeats", "2", "--warmup", "0", "--threads", "1")


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "_CPU_BYTES", 1 << 20)


def test_one_record_of_everything(edgekit: Run, nano: Path) -> None:
    done = edgekit("bench", "nano", *QUICK, "-d", "0,32", "--json")
    assert done.code == 0, done.err
    (record,) = done.records
    assert (record["schema_version"], record["type"]) == (1, "bench")
    assert record["bundle"]["name"] == "nano"
    assert record["bundle"]["bytes"] > 40 << 20
    assert record["settings"]["threads"] == 1
    assert record["environment"]["executor"] == "onnxruntime-cpu"
    assert record["environment"]["executor_version"]
    assert record["peak_rss"] > record["bundle"]["bytes"]
    assert record["peak_device"] is None
    assert record["load_seconds"] > 0
    assert record["bandwidth_why"] == "a copy in memory, threads: 1"
    names = [result["test"] for result in record["results"]]
    assert names == ["pp16", "tg4", "pp16 @ d32", "tg4 @ d32"]
    for result in record["results"]:
        speed = result["tokens_per_second"]
        assert len(speed["runs"]) == 2
        assert speed["median"] >= speed["p95"] > 0
        assert result["speculation"] is None
        is_prompt = result["kind"] == "prompt"
        assert (result["first_token_ms"] is not None) == is_prompt
        assert (result["share_of_limit"] is None) == is_prompt
        if not is_prompt:
            share = speed["median"] * result["bytes_per_token"] / record["bandwidth"]
            assert result["share_of_limit"] == pytest.approx(share)
            assert result["token_ms"]["p95"] >= result["token_ms"]["median"]
    shallow, deep = (record["results"][i]["bytes_per_token"] for i in (1, 3))
    assert deep > shallow


def test_a_table_for_people(edgekit: Run, nano: Path) -> None:
    done = edgekit("bench", *QUICK, "--bandwidth", "10")
    assert done.code == 0, done.err
    assert "10.0 GB/s, --bandwidth" in done.out
    assert "power mode   none" in done.out
    heading = next(line for line in done.out.splitlines() if line.startswith("TEST"))
    assert "TOK/S" in heading
    assert "OF LIMIT" in heading
    assert "TOKENS/ROUND" not in heading
    assert [line.split()[0] for line in done.out.splitlines()[-2:]] == ["pp16", "tg4"]
    assert "measuring: 4 of 4 runs" in done.err


def test_drafting_is_reported(edgekit: Run, nano: Path) -> None:
    drafter = "ngram"
    flags = ("-p", "0", "-n", "24", "--repeats", "1", "--warmup", "0", "--threads", "1")
    flags += ("--speculate", drafter, "--draft-tokens", "3")
    record: dict[str, Any] = edgekit("bench", "nano", *flags, "--json").records[0]
    assert record["settings"]["speculate"] == drafter
    (result,) = record["results"]
    drafts = result["speculation"]
    assert drafts["drafter"] == drafter
    assert drafts["rounds"] + drafts["plain_steps"] > 0
    assert 1 <= drafts["tokens_per_round"] <= 4
    assert result["share_of_limit"] is None  # the limit is that of plain decoding
    shown = edgekit("bench", "nano", *flags)
    assert "TOKENS/ROUND" in shown.out
    assert f"tg24: {drafter}, kept by position" in shown.err


@pytest.mark.parametrize("flag", ["--prompt", "--gen", "--depth"])
@pytest.mark.parametrize("value", ["12,x", "", "1,,2", "-4", "1.5", "99999999999999999999"])
def test_a_bad_list_is_a_usage_error(edgekit: Run, nano: Path, flag: str, value: str) -> None:
    done = edgekit("bench", "nano", f"{flag}={value}")
    assert done.code == 2
    assert f"{flag} {value!r} is no list of lengths" in done.err
    assert "hint:" in done.err


def test_what_cannot_be_measured(edgekit: Run, nano: Path) -> None:
    over = edgekit("bench", "nano", "-p", "4000", "-d", "97", "-n", "0")
    assert over.code == 1
    assert "pp4000 @ d97 needs 4097 tokens, the context holds 4096" in over.err
    assert edgekit("bench", "nano", "-p", "0", "-n", "0").code == 2
    missing = edgekit("bench", "mine", "--json")
    assert missing.code == 1
    assert missing.records[0]["error"] == "no bundle 'mine'"
    assert edgekit("bench", "nano", "--repeats", "0").code == 2
    undrafted = edgekit("bench", "nano", "--speculate", "dspark")
    assert undrafted.code == 2
    assert "has no dspark draft" in undrafted.err
    assert edgekit("bench", "nano", "--threads", "9999").code == 2


def test_the_embedded_model_is_built_and_its_memory_is_not_the_models(edgekit: Run) -> None:
    done = edgekit("bench", *QUICK)
    assert done.code == 0, done.err
    assert "peak memory will be the build's" in done.err


# -- beside an earlier record, and as a picture


@pytest.fixture(scope="module")
def kept(built_nano: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A record as `--json` wrote it."""
    path = tmp_path_factory.mktemp("records") / "old.json"
    command = ["bench", str(built_nano), *QUICK, "--json"]
    with path.open("w") as file, contextlib.redirect_stdout(file):
        assert main(command) == 0
    return path.read_text()


def test_figures_beside_an_earlier_record(edgekit: Run, nano: Path, kept: str) -> None:
    old = json.loads(kept)
    old["environment"]["executor_version"] = "1.0"
    old["results"][0]["tokens_per_second"]["median"] = 1e9
    old["peak_rss"] *= 3
    Path("old.json").write_text(json.dumps(old))
    done = edgekit("bench", "nano", *QUICK, "-p", "16,24", "--compare", "old.json", "--json")
    assert done.code == 0, done.err
    (record,) = done.records
    compared = record["compared"]
    assert compared["date"] == old["date"]
    assert list(compared["differs"]) == ["executor_version"]
    assert (compared["only_new"], compared["only_old"]) == (["pp24"], [])
    rows = {row["figure"]: row for row in compared["rows"]}
    assert list(rows) == ["pp16", "pp16, first token", "tg4", "load", "peak memory", "bundle"]
    pp16, new = rows["pp16"], record["results"][0]["tokens_per_second"]["median"]
    assert (pp16["old"], pp16["new"]) == (1e9, new)
    assert pp16["ratio"] == pytest.approx(new / 1e9)  # more tokens a second are better
    assert rows["peak memory"]["ratio"] == pytest.approx(old["peak_rss"] / record["peak_rss"])
    assert rows["bundle"]["ratio"] == 1
    # What is compared is a record again.
    Path("new.json").write_text(done.out)
    shown = edgekit("bench", "nano", *QUICK, "--threads", "2", "--compare", "new.json")
    assert shown.code == 0, shown.err
    assert "FIGURE" in shown.out
    assert "bundle" in shown.out.splitlines()[-1]
    assert shown.out.splitlines()[-1].split()[-1] == "1.00x"
    assert "pp24 is in the old record only" in shown.err
    assert "threads: 1 before, 2 now" in shown.err
    assert "warning" not in shown.err
    other = edgekit("bench", "nano", *QUICK, "--compare", "old.json")
    assert "warning: executor version was 1.0 and is" in other.err


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "it is not one JSON object"),
        ("[" * 100_000, "it is not one JSON object"),
        ("[]", "the file: "),
        ('{"type": "bench", "schema_version": 9}', "schema_version: "),
        ('{"type": "doctor"}', "type: "),
        ("\udcff", "it is no text"),
    ],
)
def test_a_file_that_is_no_record(edgekit: Run, nano: Path, text: str, cause: str) -> None:
    Path("old.json").write_bytes(text.encode(errors="surrogateescape"))
    done = edgekit("bench", "nano", *QUICK, "--compare", "old.json")
    assert done.code == 2
    assert "old.json is no record of a measurement" in done.err
    assert f"cause: {cause}" in done.err
    assert "hint: edgekit bench BUNDLE --json > old.json" in done.err
    assert "measuring" not in done.err


def test_records_that_cannot_be_read(
    edgekit: Run, nano: Path, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = edgekit("bench", "nano", "--compare", "gone.json")
    assert gone.code == 2
    assert "cannot read gone.json" in gone.err
    assert edgekit("bench", "nano", "--compare", ".").code == 2
    Path("old.json").write_text(kept)
    monkeypatch.setattr(bench_compare, "_MOST_BYTES", 10)
    assert "it is too large" in edgekit("bench", "nano", "--compare", "old.json").err


def test_a_roofline(edgekit: Run, nano: Path) -> None:
    pytest.importorskip("matplotlib")
    done = edgekit("bench", "nano", *QUICK, "-d", "0,16", "--plot", "roofline.png")
    assert done.code == 0, done.err
    assert "plot: roofline.png" in done.err
    assert Path("roofline.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in Path().iterdir()] == ["roofline.png"]


def test_a_picture_that_cannot_be_drawn_is_refused_first(
    edgekit: Run, nano: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/b.png", "roofline.jpg", "roofline", "."):
        done = edgekit("bench", "nano", *QUICK, "--plot", name)
        assert done.code == 2
        assert f"--plot {name}" in done.err
        assert "measuring" not in done.err
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    done = edgekit("bench", "nano", *QUICK, "--plot", "roofline.png")
    assert done.code == 3
    assert "--plot needs matplotlib" in done.err
    assert "pip install 'edgekit-nemotron[report]'" in done.err
