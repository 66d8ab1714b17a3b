"""`edgekit bench` seen from outside: records, the table, and what it refuses. Nothing is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
