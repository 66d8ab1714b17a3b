"""Measure one runtime in this process, pinned to one core, and print one JSON object.

    python -m tests.bench.measure {edgekit|xllamacpp|transformers} MODEL VOCAB CORE

Times are seconds. Decoding is measured as the difference between generating many tokens and one,
so that prompt, tokenization and call overheads drop out. Every prompt is new, so that no prefix
cache helps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.bench.runners import RUNNERS, Runner

DECODE_PROMPT = 16
DECODE_TOKENS = 128
TTFT_PROMPT = 64
PREFILL_PROMPT = 512
CONTEXT = 1024
WARM_UP = 50
REPEATS = 5


def status_kb(field: str) -> int:
    """A memory field of this process in KiB, `VmRSS` or `VmHWM`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise ValueError(f"/proc/self/status has no {field}")


def thread_ticks() -> dict[str, int]:
    """CPU ticks used so far by each thread of this process."""
    ticks: dict[str, int] = {}
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        ticks[task.name] = int(fields[11]) + int(fields[12])
    return ticks


def busy_threads(before: dict[str, int], after: dict[str, int]) -> int:
    """Threads that did at least a twentieth of the work between two readings."""
    spent = [ticks - before.get(thread, 0) for thread, ticks in after.items()]
    return sum(1 for ticks in spent if ticks > 0.05 * sum(spent))


def prompt(number: int, length: int, vocab: int) -> list[int]:
    """The `number`-th of endless distinct prompts, without special tokens (ids below 64)."""
    return [64 + (131 * number + (29 + number) * i) % (vocab - 64) for i in range(length)]


class Clock:
    """CPU (all threads) and wall seconds since construction."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self) -> tuple[float, float]:
        return time.process_time() - self._cpu, time.perf_counter() - self._wall


def measure(runner: Runner, model: Path, vocab: int) -> dict[str, float | int | list[int]]:
    """All figures of one runtime: seconds, KiB, and the greedy tokens of a fixed prompt."""
    result: dict[str, float | int | list[int]] = {}
    clock = Clock()
    runner.load(model, CONTEXT)
    result["load_cpu_s"], result["load_s"] = clock.read()
    result["rss_loaded_kb"] = status_kb("VmRSS")

    numbers = count(1)

    def timed(length: int, n: int) -> tuple[float, float, int]:
        ids = prompt(next(numbers), length, vocab)
        clock = Clock()
        produced = runner.run(ids, n)
        return *clock.read(), produced

    timed(DECODE_PROMPT, WARM_UP)
    first = [timed(TTFT_PROMPT, 1) for _ in range(REPEATS)]
    result["ttft_cpu_s"], result["ttft_s"] = _medians(first)

    decode: list[tuple[float, float]] = []
    before = thread_ticks()
    for _ in range(REPEATS):
        one_cpu, one_wall, _ = timed(DECODE_PROMPT, 1)
        cpu, wall, produced = timed(DECODE_PROMPT, DECODE_TOKENS + 1)
        if produced > 1:
            steps = produced - 1
            decode.append(((cpu - one_cpu) / steps, (wall - one_wall) / steps))
    result["busy_threads"] = busy_threads(before, thread_ticks())
    result["decode_cpu_s"], result["decode_s"] = _medians(decode)
    result["rss_decode_kb"] = status_kb("VmRSS")

    long = [timed(PREFILL_PROMPT, 1) for _ in range(REPEATS)]
    result["prefill_cpu_s"], result["prefill_s"] = _medians(long)
    result["rss_kb"], result["peak_rss_kb"] = status_kb("VmRSS"), status_kb("VmHWM")
    result["tokens"] = runner.tokens(prompt(0, DECODE_PROMPT, vocab), DECODE_TOKENS)
    return result


def _medians(samples: Sequence[tuple[float, ...]]) -> tuple[float, float]:
    cpu, wall = (sorted(sample[i] for sample in samples) for i in (0, 1))
    return cpu[len(cpu) // 2], wall[len(wall) // 2]


def main() -> None:
    """Command line of the measured process."""
    name, model, vocab, core = sys.argv[1:]
    os.sched_setaffinity(0, {int(core)})
    print(json.dumps(measure(RUNNERS[name](), Path(model), int(vocab))))


if __name__ == "__main__":
    main()
