"""Compare `edgekit serve` with llama.cpp's server on the same weights: 1 and 4 clients, streams.

    python -m tests.bench.bench_serve BUNDLE_OR_NAME --checkpoint recipes/nano/checkpoint

Both servers run at once, one thread each, pinned to the same core; the clients have the others.
They are measured in turns, so the idle one only waits. Each client sends one request after another:
64 prompt tokens, all different, and 128 greedy tokens that no end of text cuts short.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

from edgekit.bundle import find_bundle
from edgekit.model import load_spec
from edgekit.paths import bundles_dir
from tests.bench.bench_decode import ONE_THREAD
from tests.tools.gguf_writer import write_gguf

PROMPT, ANSWER, CLIENTS = 64, 128, (1, 4)

_EDGEKIT = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
from edgekit.cli import main
args = ["--port", "0", "--json", "--threads", "1", "--slots", "4", "--name", "nano"]
sys.exit(main(["serve", sys.argv[2], *args]))
"""
_LLAMA = """
import json, os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[2]
params.n_ctx = 4096
params.n_parallel = 4
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.fit_params = params.warmup = False
params.cache_ram_mib = 0
params.verbosity = 0
server = xllamacpp.Server(params)
print(json.dumps({"address": server.listening_address}), flush=True)
sys.stdin.read()
"""


@contextmanager
def server(code: str, *args: str) -> Iterator[tuple[str, int, int]]:
    """A server in a process of its own: host, port and process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    try:
        assert process.stdout is not None
        address = next(
            json.loads(line)["address"] for line in process.stdout if line.startswith("{")
        )
        host, _, port = address.removeprefix("http://").rpartition(":")
        yield host, int(port), process.pid
    finally:
        process.terminate()
        process.wait(30)


def request(name: str, tokens: list[int], eos: list[int]) -> tuple[str, dict[str, object]]:
    """Path and body of one generation."""
    if name == "edgekit":
        return "/v1/completions", {
            "model": "nano",
            "prompt": tokens,
            "max_tokens": ANSWER,
            "temperature": 0,
            "stream": True,
            "logit_bias": {str(token): -100 for token in eos},
        }
    return "/completion", {
        "prompt": tokens,
        "n_predict": ANSWER,
        "temperature": 0.0,
        "top_k": 1,
        "samplers": ["top_k"],
        "ignore_eos": True,
        "cache_prompt": False,
        "stream": True,
    }


def client(
    where: tuple[str, int], name: str, seed: int, count: int, eos: list[int], out: list[list[float]]
) -> None:
    """Sends requests and notes when what came: start, then each event."""
    rng = random.Random(seed)
    for _ in range(count):
        tokens = [rng.randrange(300, 4000) for _ in range(PROMPT)]
        path, body = request(name, tokens, eos)
        connection = http.client.HTTPConnection(*where)
        times = [time.perf_counter()]
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        times += [time.perf_counter() for line in response if line.startswith(b"data: {")]
        connection.close()
        out.append(times)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    where: tuple[str, int, int], name: str, clients: int, count: int, seed: int, eos: list[int]
) -> dict[str, float]:
    """Tokens a second of all clients, first token and gaps in milliseconds."""
    out: list[list[float]] = []
    threads = [
        threading.Thread(target=client, args=(where[:2], name, seed + i, count, eos, out))
        for i in range(clients)
    ]
    started, cpu = time.perf_counter(), cpu_seconds(where[2])
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    assert len(out) == clients * count
    firsts = [times[1] - times[0] for times in out]
    gaps = sorted(b - a for times in out for a, b in pairwise(times[1:]))
    return {
        "tokens/CPU-s": ANSWER * len(out) / (cpu_seconds(where[2]) - cpu),
        "tokens/s": ANSWER * len(out) / seconds,
        "first ms": 1e3 * median(firsts),
        "gap ms": 1e3 * median(gaps),
        "p95 gap ms": 1e3 * gaps[int(0.95 * len(gaps))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--core", type=int, default=1)
    options = parser.parse_args()
    bundle = find_bundle(options.bundle, bundles_dir())
    eos = [2, 11]
    assert load_spec(options.checkpoint).vocab_size == 4096, "the request is written for nano"
    with tempfile.TemporaryDirectory() as folder:
        gguf = Path(folder) / "model.gguf"
        write_gguf(options.checkpoint, gguf)
        os.sched_setaffinity(0, set(os.sched_getaffinity(0)) - {options.core} or {options.core})
        with (
            server(_EDGEKIT, str(options.core), str(bundle)) as ours,
            server(_LLAMA, str(options.core), str(gguf)) as theirs,
        ):
            where = {"edgekit": ours, "xllamacpp": theirs}
            for clients in CLIENTS:
                found: dict[str, list[dict[str, float]]] = {name: [] for name in where}
                for i in range(options.rounds + 1):
                    for name in list(where)[:: 1 if i % 2 else -1]:
                        one = measure(where[name], name, clients, 2, 100 * i, eos)
                        if i:  # the first round warms up
                            found[name].append(one)
                for key in found["edgekit"][0]:
                    a, b = ([one[key] for one in found[name]] for name in where)
                    ratio = median(x / y for x, y in zip(a, b, strict=True))
                    print(
                        f"{clients} clients, {key}: edgekit {median(a):.2f}, "
                        f"xllamacpp {median(b):.2f}, ratio {ratio:.2f}"
                    )


if __name__ == "__main__":
    main()
