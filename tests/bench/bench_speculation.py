"""Decoding with and without drafts, taking turns in one process on one thread.

    python -m tests.bench.bench_speculation BUNDLE [--pairs N]

Prints tokens a CPU-second of each way over the same greedy answers. A second plain way shows what
the machine's noise makes of equals.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model, load_model

PROMPTS = {
    "talk": ["Hello", "Tell me about rivers.", "What is edgekit?", "How are you today?"],
    "echo": [
        "Repeat exactly: red green blue red green blue red green blue",
        "Repeat exactly: zq81 kx40 zq81 kx40 vw17 zq81 kx40",
    ],
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain again": {},
    "n-gram, 3": {"speculate": "ngram", "draft_tokens": 3},
    "n-gram, 7": {"speculate": "ngram", "draft_tokens": 7},
    "n-gram, auto": {"speculate": "auto"},
}


def rate(model: Model, prompts: list[str]) -> tuple[float, float]:
    """Tokens a CPU-second after the first of each answer, and tokens a verify step."""
    params = SamplingParams(temperature=0.0, max_tokens=160)
    tokens = seconds = kept = rounds = 0.0
    for prompt in prompts:
        started = None
        for last in model.chat([{"role": "user", "content": prompt}], params):
            if started is None and last.tokens:
                started = process_time()
        assert started is not None
        seconds += process_time() - started
        tokens += last.stats.completion_tokens - 1
        if (stats := last.stats.speculation) is not None:
            kept += sum(stats.accepted)
            rounds += stats.rounds
    return tokens / seconds, 1 + kept / rounds if rounds else 1.0


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    models = {name: load_model(args.bundle, threads=1, **how) for name, how in WAYS.items()}
    for kind, prompts in PROMPTS.items():
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
        for pair in range(args.pairs):
            turn = list(models.items())
            for name, model in turn[:: 1 if pair % 2 else -1]:
                model.reset()
                rates[name].append(rate(model, prompts))
        for name, found in rates.items():
            ratios = [a / b for (a, _), (b, _) in zip(found, rates["plain"], strict=True)]
            print(
                f"{kind:5s} {name:14s} {median(r for r, _ in found):7.1f} tok/CPU-s "
                f"{median(ratios):5.2f}x plain ({min(ratios):.2f}-{max(ratios):.2f}) "
                f"{found[-1][1]:.2f} tokens a verify step"
            )


if __name__ == "__main__":
    main()
