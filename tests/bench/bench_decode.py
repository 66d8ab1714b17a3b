"""Compare edgekit with llama.cpp on the same weights: speed per CPU-second, and memory.

    python -m tests.bench.bench_decode BUNDLE_OR_NAME --checkpoint recipes/nano/checkpoint

    python -m tests.bench.bench_decode INT4_BUNDLE --checkpoint recipes/nano/checkpoint --peer Q4_0

The checkpoint becomes a GGUF for xllamacpp, F32 or Q4_0. Each measurement is a fresh process with
one thread on one core; the runtimes alternate, and which goes first alternates too, because on a
shared machine minutes differ by more than runtimes do. Medians over the processes are shown, and
the ratio is the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from edgekit.bundle import find_bundle
from edgekit.paths import bundles_dir
from tests.bench.measure import DECODE_TOKENS, PREFILL_PROMPT, TTFT_PROMPT
from tests.tools.gguf_writer import write_gguf

Sample = dict[str, Any]

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# label, unit, key, value of one sample, whether more is better
_ROWS: list[tuple[str, str, str, float, bool]] = [
    (f"decode, {DECODE_TOKENS} tokens", "tok/CPU-s", "decode_cpu_s", 1.0, True),
    ("decode, wall", "tok/s", "decode_s", 1.0, True),
    (f"prefill, {PREFILL_PROMPT} tokens", "tok/CPU-s", "prefill_cpu_s", PREFILL_PROMPT, True),
    ("prefill, wall", "tok/s", "prefill_s", PREFILL_PROMPT, True),
    (f"first token, {TTFT_PROMPT} in", "ms", "ttft_s", 1e3, False),
    ("load, import included", "ms", "load_s", 1e3, False),
    ("peak RSS", "MiB", "peak_rss_kb", 1 / 1024, False),
    ("RSS after load", "MiB", "rss_loaded_kb", 1 / 1024, False),
    ("RSS after decoding", "MiB", "rss_decode_kb", 1 / 1024, False),
    ("RSS at the end", "MiB", "rss_kb", 1 / 1024, False),
]


def run_child(name: str, model: Path, vocab: int, core: int) -> Sample:
    """Measure one runtime in a fresh process."""
    command = [sys.executable, "-m", "tests.bench.measure", name, str(model), str(vocab), str(core)]
    done = subprocess.run(
        command,
        env=os.environ | ONE_THREAD,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-4000:]}")
    sample: Sample = json.loads(done.stdout.splitlines()[-1])
    return sample


def figure(sample: Sample, key: str, factor: float, more: bool) -> float:
    """A table figure of one sample: `factor` units a second, or a value times `factor`."""
    value = float(sample[key])
    return factor / value if more else factor * value


def summarize(samples: dict[str, list[Sample]]) -> list[dict[str, Any]]:
    """One record a table row: medians, ranges, and edgekit's advantage (> 1 is better)."""
    rows: list[dict[str, Any]] = []
    for label, unit, key, factor, more in _ROWS:
        values = {
            name: [figure(sample, key, factor, more) for sample in runs]
            for name, runs in samples.items()
        }
        pairs = zip(values["edgekit"], values["xllamacpp"], strict=True)
        rows.append(
            {
                "figure": label,
                "unit": unit,
                "higher_is_better": more,
                **{name: median(runs) for name, runs in values.items()},
                "ranges": {name: [min(runs), max(runs)] for name, runs in values.items()},
                "advantage": median(a / b if more else b / a for a, b in pairs),
            }
        )
    return rows


def same_tokens(samples: dict[str, list[Sample]]) -> int:
    """How many greedy tokens the two runtimes share before they first differ."""
    ours, theirs = (samples[name][0]["tokens"] for name in ("edgekit", "xllamacpp"))
    pairs = list(zip(ours, theirs, strict=False))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def machine() -> dict[str, Any]:
    """What kind of machine this is; no names or paths."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith(("model name", "CPU part"))
        ),
        "unknown",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
    }


def show(
    rows: list[dict[str, Any]], samples: dict[str, list[Sample]], shared: int, peer: str
) -> None:
    """Print the table and what a reader must know about it."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    table = Table(title=f"edgekit and llama.cpp with {peer} weights, one thread")
    for heading in ("", "unit", "edgekit", "(range)", "xllamacpp", "(range)", "edgekit is"):
        table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
    for row in rows:
        cells = [row["figure"], row["unit"]]
        for name in ("edgekit", "xllamacpp"):
            low, high = row["ranges"][name]
            cells += [f"{row[name]:.4g}", f"{low:.4g}-{high:.4g}"]
        table.add_row(*cells, f"{row['advantage']:.2f}x")
    console.print(table)
    threads = {name: max(run["busy_threads"] for run in runs) for name, runs in samples.items()}
    console.print(f"busy threads: {threads}; above 1.00x edgekit is better")
    console.print(f"greedy tokens in common before the first difference: {shared}")


def main() -> None:
    """Command line: measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="tests.bench.bench_decode", description=__doc__)
    parser.add_argument("bundle", help="bundle folder, or the name of a bundle in the store")
    parser.add_argument("--checkpoint", type=Path, required=True, help="its Hugging Face folder")
    parser.add_argument(
        "--peer", choices=("F32", "Q4_0"), default="F32", help="xllamacpp's weights"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write every sample here")
    flags = parser.parse_args()
    vocab = json.loads((flags.checkpoint / "config.json").read_text())["vocab_size"]
    samples: dict[str, list[Sample]] = {"edgekit": [], "xllamacpp": []}
    with tempfile.TemporaryDirectory() as scratch:
        gguf = write_gguf(flags.checkpoint, Path(scratch) / "model.gguf", flags.peer)
        models = {"edgekit": find_bundle(flags.bundle, bundles_dir()), "xllamacpp": gguf}
        for repeat in range(flags.repeats):
            order = list(models) if repeat % 2 == 0 else list(models)[::-1]
            for name in order:
                samples[name].append(run_child(name, models[name], vocab, flags.core))
    rows = summarize(samples)
    shared = same_tokens(samples)
    show(rows, samples, shared, flags.peer)
    if flags.json:
        record = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(),
            "peer": flags.peer,
            "versions": {name: version(name) for name in ("xllamacpp", "onnxruntime", "numpy")},
            "rows": rows,
            "common_greedy_tokens": shared,
            "samples": samples,
        }
        flags.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
