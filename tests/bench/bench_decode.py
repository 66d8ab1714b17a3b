"""Compare edgekit with llama.cpp, and transformers, on the same weights: speed and memory.

    python -m tests.bench.bench_decode BUNDLE_OR_NAME --checkpoint recipes/nano/checkpoint

    python -m tests.bench.bench_decode INT4_BUNDLE --checkpoint recipes/nano/checkpoint --gguf Q4_0

    python -m tests.bench.bench_decode NAME --checkpoint FOLDER --peers xllamacpp,transformers

The checkpoint becomes a GGUF for xllamacpp, F32 or Q4_0; transformers reads it as it is. Each
measurement is a fresh process with one thread on one core; the runtimes alternate, and which goes
first alternates too, because on a shared machine minutes differ by more than runtimes do. Medians
over the processes are shown, and the ratio is the median of the ratios of neighbours.
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
from tests.bench.runners import RUNNERS
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
    ("size on disk", "MiB", "disk_kb", 1 / 1024, False),
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
    return sample | {"disk_kb": disk_kb(model)}


def disk_kb(model: Path) -> float:
    """KiB of a file, or of a folder's files without those in `draft`, which no peer reads."""
    files = [model] if model.is_file() else [f for f in model.rglob("*") if f.is_file()]
    kept = [file for file in files if "draft" not in file.relative_to(model).parts]
    return sum(file.stat().st_size for file in kept) / 1024


def figure(sample: Sample, key: str, factor: float, more: bool) -> float:
    """A table figure of one sample: `factor` units a second, or a value times `factor`."""
    value = float(sample[key])
    return factor / value if more else factor * value


def summarize(samples: dict[str, list[Sample]]) -> list[dict[str, Any]]:
    """One record a table row: medians, ranges, and edgekit's advantage over each peer.

    An advantage above 1 is better.
    """
    rows: list[dict[str, Any]] = []
    for label, unit, key, factor, more in _ROWS:
        values = {
            name: [figure(sample, key, factor, more) for sample in runs]
            for name, runs in samples.items()
        }
        ours = values["edgekit"]
        rows.append(
            {
                "figure": label,
                "unit": unit,
                "higher_is_better": more,
                **{name: median(runs) for name, runs in values.items()},
                "ranges": {name: [min(runs), max(runs)] for name, runs in values.items()},
                "advantage": {
                    name: median(
                        a / b if more else b / a for a, b in zip(ours, theirs, strict=True)
                    )
                    for name, theirs in values.items()
                    if name != "edgekit"
                },
            }
        )
    return rows


def same_tokens(samples: dict[str, list[Sample]]) -> dict[str, int]:
    """How many greedy tokens each peer shares with edgekit before they first differ."""
    first = {name: runs[0]["tokens"] for name, runs in samples.items()}
    ours = first.pop("edgekit")
    shared: dict[str, int] = {}
    for name, theirs in first.items():
        pairs = list(zip(ours, theirs, strict=False))
        shared[name] = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return shared


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
    rows: list[dict[str, Any]],
    samples: dict[str, list[Sample]],
    shared: dict[str, int],
    gguf: str,
) -> None:
    """Print the table and what a reader must know about it."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=80 + 40 * len(shared))
    table = Table(title=f"edgekit and its peers, one thread, xllamacpp's weights {gguf}")
    table.add_column("")
    table.add_column("unit")
    runtimes = [heading for name in samples for heading in (name, "(range)")]
    for heading in (*runtimes, *(f"to {name}" for name in shared)):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [row["figure"], row["unit"]]
        for name in samples:
            low, high = row["ranges"][name]
            cells += [f"{row[name]:.4g}", f"{low:.4g}-{high:.4g}"]
        table.add_row(*cells, *(f"{row['advantage'][name]:.2f}x" for name in shared))
    console.print(table)
    threads = {name: max(run["busy_threads"] for run in runs) for name, runs in samples.items()}
    console.print(f"busy threads: {threads}; above 1.00x edgekit is better")
    console.print(f"greedy tokens in common before the first difference: {shared}")


def peers(text: str) -> list[str]:
    """The names in `--peers`."""
    names = text.split(",")
    known = [name for name in RUNNERS if name != "edgekit"]
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return names


def main() -> None:
    """Command line: measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(prog="tests.bench.bench_decode", description=__doc__)
    parser.add_argument("bundle", help="bundle folder, or the name of a bundle in the store")
    parser.add_argument("--checkpoint", type=Path, required=True, help="its Hugging Face folder")
    parser.add_argument(
        "--peers", type=peers, default=["xllamacpp"], help="xllamacpp, transformers or both"
    )
    parser.add_argument(
        "--gguf", choices=("F32", "Q4_0"), default="F32", help="xllamacpp's weights"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="write every sample here")
    flags = parser.parse_args()
    vocab = json.loads((flags.checkpoint / "config.json").read_text())["vocab_size"]
    samples: dict[str, list[Sample]] = {name: [] for name in ("edgekit", *flags.peers)}
    with tempfile.TemporaryDirectory() as scratch:
        models = {
            "edgekit": find_bundle(flags.bundle, bundles_dir()),
            "transformers": flags.checkpoint,
        }
        if "xllamacpp" in samples:
            gguf = Path(scratch) / "model.gguf"
            models["xllamacpp"] = write_gguf(flags.checkpoint, gguf, flags.gguf)
        for repeat in range(flags.repeats):
            for name in list(samples) if repeat % 2 == 0 else list(samples)[::-1]:
                samples[name].append(run_child(name, models[name], vocab, flags.core))
    rows = summarize(samples)
    shared = same_tokens(samples)
    show(rows, samples, shared, flags.gguf)
    if flags.json:
        record = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(),
            "gguf": flags.gguf,
            "versions": {name: version(name) for name in ("onnxruntime", "numpy", *flags.peers)},
            "rows": rows,
            "common_greedy_tokens": shared,
            "samples": samples,
        }
        flags.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
