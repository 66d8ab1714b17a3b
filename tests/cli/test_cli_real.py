"""The command line on the embedded model itself, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
from edgekit.cli import main
code = main(sys.argv[1:])
heavy = [n for n in ("torch", "onnx", "onnx_ir", "rich", "prompt_toolkit") if n in sys.modules]
print("loaded:", heavy, file=sys.stderr)
sys.exit(code)
"""


def run(*args: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CODE, "run", *args],
        capture_output=True,
        text=True,
        input=stdin,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=check,
    )


def test_the_same_seed_gives_the_same_text(nano: Path) -> None:
    first, second = (run("nano", "Hello", "--max-tokens", "32", "--seed", "1") for _ in range(2))
    assert first.stdout.strip()
    assert first.stdout == second.stdout


def test_running_loads_no_exporter_and_no_torch(nano: Path) -> None:
    done = run("nano", "Hello", "--max-tokens", "2", "--no-think")
    assert done.stderr.splitlines()[-1] == "loaded: []"


def test_stdin_stats_and_json_add_up(nano: Path) -> None:
    done = run("nano", "--json", "--max-tokens", "8", "--temperature", "0", stdin="Hello\n")
    *events, last = map(json.loads, done.stdout.splitlines())
    tokens = [token for event in events for token in event["tokens"]]
    assert len(tokens) == last["stats"]["completion_tokens"] <= 8
    said = "".join(event["text"] for event in events if event["channel"] == "content")
    assert said == last["text"]
    assert last["stats"]["decode_tokens_per_second"] > 0


def test_a_stop_string_ends_the_answer(nano: Path) -> None:
    plain = run("nano", "Hello", "--max-tokens", "32", "--seed", "1", "--no-think").stdout
    word = plain.split()[1]
    stopped = run(
        "nano", "Hello", "--max-tokens", "32", "--seed", "1", "--no-think", "--stop", word
    ).stdout
    assert word not in stopped
    assert plain.startswith(stopped.rstrip("\n"))


def test_a_chat_in_a_terminal(nano: Path) -> None:
    pexpect = pytest.importorskip("pexpect")
    child = pexpect.spawn(
        sys.executable,
        ["-c", CODE, "run", "nano", "--max-tokens", "24", "--seed", "1", "--stats"],
        env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "OMP_NUM_THREADS": "1"},
        encoding="utf-8",
        timeout=60,
    )
    try:
        child.expect(">>>")
        child.send("Hello\r")
        child.expect("tok/s")
        child.expect(">>>")
        child.send("/regen\r")
        child.expect(r"cached\)")
        child.expect(">>>")
        child.send("/tokens\r")
        child.expect(r"\d+ of 4096 tokens")
        child.send("\x04")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0


def test_the_plan_is_near_the_peak(nano: Path) -> None:
    from edgekit.cli.target import plan_for, plan_model, resolve_target
    from edgekit.settings import load_settings

    text = "the sun is warm and the sky is blue. " * 390
    done = run("nano", "--json", "--max-tokens", "4", "--no-think", stdin=text)
    stats = json.loads(done.stdout.splitlines()[-1])["stats"]
    assert stats["prompt_tokens"] > 3500
    target = resolve_target(load_settings().with_flags(device="cpu"), "nano")
    plan = plan_for(target, plan_model("nano"))
    assert stats["peak_bytes"] == pytest.approx(plan.needed, rel=0.15)


def test_a_bundle_whose_name_has_a_space_runs(nano: Path) -> None:
    (nano.parent / "my nano").symlink_to(nano, target_is_directory=True)
    done = run("my nano", "Hello", "--max-tokens", "4", "--no-think")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(nano: Path) -> None:
    done = run("nano", stdin="word " * 400_000, check=False)
    assert done.returncode == 1
    assert "too long for a context of 4096 tokens" in done.stderr


def test_more_threads_than_cpus(nano: Path) -> None:
    done = run("nano", "Hello", "--threads", "5000", check=False)
    assert done.returncode == 2
    assert "--threads" in done.stderr


def test_bytes_that_are_not_utf8_are_answered(nano: Path) -> None:
    done = run("nano", "Hello \udcff", "--max-tokens", "4", "--no-think")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
