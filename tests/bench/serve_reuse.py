"""What prefix reuse is worth behind the API, and what an idle server takes.

    python -m tests.bench.serve_reuse BUNDLE_OR_NAME [--speculate ngram]

Time to the first token of turn 10 against turn 1 with as many new tokens; the same question behind
a system prompt of about 2 000 tokens cold, in a new conversation, and after a restart; CPU time of
a server that nobody asks for a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from edgekit.bundle import find_bundle
from edgekit.paths import bundles_dir

NEW, TURNS, REPEATS, IDLE_SECONDS = 120, 10, 5, 60
WORDS = "the sun is warm and the sky is blue and the grass is green today ".split()  # noqa: SIM905

_CODE = "import sys; from edgekit.cli import main; sys.exit(main(['serve', *sys.argv[1:]]))"


@contextmanager
def server(bundle: Path, *args: str) -> Iterator[tuple[httpx2.Client, int]]:
    """A server and its process id."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _CODE,
            str(bundle),
            "--port",
            "0",
            "--json",
            "--threads",
            "1",
            "--name",
            "nano",
            *args,
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with httpx2.Client(base_url=address, timeout=300) as client:
            yield client, process.pid
    finally:
        process.terminate()
        process.wait(60)


def ask(client: httpx2.Client, messages: list[dict[str, str]]) -> tuple[float, str, int, int]:
    """Milliseconds to the first token, the answer, tokens computed and reused."""
    body: dict[str, Any] = {"model": "nano", "messages": messages, "temperature": 0, "stream": True}
    body |= {"max_tokens": 24, "stream_options": {"include_usage": True}}
    body["chat_template_kwargs"] = {"enable_thinking": False}
    started, first, text, usage = time.perf_counter(), 0.0, "", {}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            said = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if said and not first:
                first = 1e3 * (time.perf_counter() - started)
            text += said or ""
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return first, text, usage["prompt_tokens"] - cached, cached


def padded(client: httpx2.Client, messages: list[dict[str, str]], computed: int, tag: str) -> str:
    """A question that makes a prompt of so many tokens beyond the `computed` ones."""
    count = NEW // 2
    while True:
        text = " ".join([tag, *(WORDS * 20)[:count]])
        body = {"model": "nano", "messages": [*messages, {"role": "user", "content": text}]}
        answer = client.post("/v1/messages/count_tokens", json=body).json()
        missing = NEW - (answer["input_tokens"] - computed)
        if missing <= 0:
            return text
        count += max(1, missing // 2)


def turns(client: httpx2.Client) -> tuple[float, float, float, float]:
    """(first ms, new tokens) of turn 1 and of turn 10, medians over conversations."""
    found: list[tuple[float, int, float, int]] = []
    for repeat in range(REPEATS + 1):
        messages: list[dict[str, str]] = []
        computed = 0
        for turn in range(TURNS):
            question = padded(client, messages, computed, f"{repeat} {turn}")
            messages.append({"role": "user", "content": question})
            ms, text, new, cached = ask(client, messages)
            if turn == 0:
                first = (ms, new)
            messages.append({"role": "assistant", "content": text})
            computed = new + cached
        if repeat:
            found.append((*first, ms, new))
    a, b, c, d = (median(column) for column in zip(*found, strict=True))
    return a, b, c, d


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--speculate", default="off")
    options = parser.parse_args()
    bundle = find_bundle(options.bundle, bundles_dir())
    args = ("--speculate", options.speculate, "--slots", "2", "--prefix-cache", "64")
    with tempfile.TemporaryDirectory() as folder:
        kept = (*args, "--prefix-dir", folder)
        system = {"role": "system", "content": " ".join(WORDS * 133)}
        question = {"role": "user", "content": "Hello"}
        other = {"role": "user", "content": "What is a byte?"}
        cold = []
        with server(bundle, *kept) as (client, pid):
            ask(client, [other])
            one, new_one, ten, new_ten = turns(client)
            print(
                f"turn 1: {one:.1f} ms for {new_one:.0f} new tokens; turn 10: {ten:.1f} ms for "
                f"{new_ten:.0f}; ratio {ten / one:.2f}"
            )
            for i in range(3):
                named = {**system, "content": f"{i} {system['content']}"}
                cold.append(ask(client, [named, question]))
            warm = [ask(client, [named, {**other, "content": f"{i}?"}]) for i in range(5)]
            print(
                f"system prompt: {median(c[0] for c in cold):.1f} ms for {cold[0][2]} tokens; "
                f"shared: {median(w[0] for w in warm):.1f} ms for {warm[0][2]}"
            )
            stat = Path(f"/proc/{pid}/stat")
            before = sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13]))
            time.sleep(IDLE_SECONDS)
            ticks = sum(map(int, stat.read_text().rsplit(")", 1)[1].split()[11:13])) - before
            share = ticks / os.sysconf("SC_CLK_TCK") / IDLE_SECONDS
            print(f"idle: {100 * share:.2f} % of a core over {IDLE_SECONDS} s")
        with server(bundle, *kept) as (client, _):
            ms, _, new, _ = ask(client, [named, other])
            print(f"first request after a restart: {ms:.1f} ms for {new} tokens")


if __name__ == "__main__":
    main()
