"""Decoding with and without drafts, taking turns in one process on one thread.

    edgekit build nano --name nano-drafts --draft dspark --draft mtp
    python -m tests.bench.bench_speculation BUNDLE [--pairs N] [--tokens N] [--json FILE]

For each kind of prompt, temperature and way of drafting: tokens a second of a clock that counts
this process alone (on a GPU, the wall's), as a ratio to plain decoding of the same prompts in the
same turn; tokens a round; and the share of drafted tokens kept at each position. A second plain way
shows what the machine's noise makes of equals.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from edgekit.bundle import Bundle
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model, load_model

PROMPTS = {
    "talk": ["Hello", "Tell me about rivers.", "What is edgekit?", "How are you today?"],
    "story": ["Write a short story about a dog.", "Tell me a story about a lighthouse."],
    "maths": ["What is 12 + 30?", "What is 7 times 8?", "Which is larger, 9 or 11?"],
    "echo": [
        "Repeat exactly: red green blue red green blue red green blue",
        "Repeat exactly: zq81 kx40 zq81 kx40 vw17 zq81 kx40",
    ],
}
TEMPERATURES = (0.0, 1.0)


@dataclass(slots=True)
class Turn:
    """What one way made of one kind of prompt."""

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    offered: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    def add(self, other: Turn) -> None:
        self.tokens += other.tokens
        self.seconds += other.seconds
        self.rounds += other.rounds
        self.offered = _sum(self.offered, other.offered)
        self.accepted = _sum(self.accepted, other.accepted)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def tokens_a_round(self) -> float:
        return 1 + sum(self.accepted) / self.rounds if self.rounds else 1.0

    @property
    def kept(self) -> list[float]:
        return [a / o for a, o in zip(self.accepted, self.offered, strict=True)]


def ways(bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Plain decoding twice, every drafter at 3 and 7 tokens and at a measured length, and auto."""
    found: dict[str, dict[str, Any]] = {"plain": {}, "plain again": {}}
    for kind in [*(draft.kind for draft in bundle.manifest.drafts), "ngram"]:
        for k in (3, 7, None):
            found[f"{kind} {k or 'auto'}"] = {"speculate": kind, "draft_tokens": k}
    return found


def turn(model: Model, prompts: list[str], temperature: float, tokens: int, clock: Any) -> Turn:
    """Decodes every prompt, from the first token of each answer on."""
    whole = Turn()
    for prompt in prompts:
        params = SamplingParams(temperature=temperature, max_tokens=tokens)
        started = None
        for last in model.chat([{"role": "user", "content": prompt}], params):
            if started is None and last.tokens:
                started = clock()
        assert started is not None
        one = Turn(last.stats.completion_tokens - 1, clock() - started)
        if (stats := last.stats.speculation) is not None:
            one.rounds, one.offered, one.accepted = stats.rounds, stats.offered, stats.accepted
        whole.add(one)
    return whole


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    width = max(len(one), len(other))
    padded = ((*part, *(0,) * (width - len(part))) for part in (one, other))
    return tuple(a + b for a, b in zip(*padded, strict=True))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    bundle = Bundle.open(args.bundle)
    clock = process_time if bundle.manifest.executor == "onnxruntime-cpu" else perf_counter
    models = {name: load_model(args.bundle, threads=1, **how) for name, how in ways(bundle).items()}
    records = []
    for temperature in TEMPERATURES:
        for kind, prompts in PROMPTS.items():
            turns: dict[str, list[Turn]] = {name: [] for name in models}
            for pair in range(args.pairs):
                order = list(models.items())
                for name, model in order[:: 1 if pair % 2 else -1]:
                    model.reset()
                    turns[name].append(turn(model, prompts, temperature, args.tokens, clock))
            for name, found in turns.items():
                ratios = [a.rate / b.rate for a, b in zip(found, turns["plain"], strict=True)]
                whole = Turn()
                for one in found:
                    whole.add(one)
                records.append(
                    {
                        "temperature": temperature,
                        "prompts": kind,
                        "way": name,
                        "rate": median(one.rate for one in found),
                        "ratio": median(ratios),
                        "tokens_a_round": whole.tokens_a_round,
                        "kept": whole.kept,
                        **asdict(whole),
                    }
                )
                shares = " ".join(f"{share:.2f}" for share in whole.kept)
                print(
                    f"T={temperature:.0f} {kind:6s} {name:12s} "
                    f"{median(one.rate for one in found):7.1f} tok/s {median(ratios):5.2f}x plain "
                    f"({min(ratios):.2f}-{max(ratios):.2f}) "
                    f"{whole.tokens_a_round:.2f} tok a round  {shares}",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(records) + "\n")


if __name__ == "__main__":
    main()
