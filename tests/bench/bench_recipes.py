"""What quantizing costs nano: exact match by skill and logits, each recipe against BF16.

    python -m tests.bench.bench_recipes [--per-skill 24] [--json FILE]

Every recipe is built and answers the same held-out questions greedily through the runtime. The
loss is paired: only questions that one of the two answers rightly count. KL is that of the next
token's distribution, BF16 to quantized, over the answers that BF16 gave.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgekit.cli import main as edgekit
from edgekit.recipes.nano.chat import Conversation, Turn, prompt_text
from edgekit.recipes.nano.evaluate import FREE_TEXT, LIMIT, skill_cases
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model, load_model

RECIPES = ("nano-bf16", "nano-fp8", "nano-nvfp4", "nano-int4")
Case = tuple[str, Turn, str]


def cases(count: int, seed: int = 11) -> list[Case]:
    """Skill, turn and prompt of held-out questions, thinking every other time."""
    found = []
    for number, (name, turns) in enumerate(skill_cases(count, seed)):
        for i, turn in enumerate(turns):
            if turn.key and turn.skill not in FREE_TEXT:
                asked = Conversation(turns[: i + 1], thinking=number % 2 == 0)
                found.append((name, turn, prompt_text(asked)))
    return found


def answers(model: Model, asked: Sequence[Case]) -> tuple[list[bool], list[list[int]]]:
    """Whether each answer is right, and its tokens."""
    params = SamplingParams(temperature=0.0, max_tokens=LIMIT)
    right, tokens = [], []
    for _, turn, prompt in asked:
        text, spoken = "", []
        before = model.tokenizer.encode(prompt, special=True)
        reasons = prompt.rstrip().endswith("<think>")
        for event in model.generate(before, params, start_in_reasoning=reasons):
            spoken += event.tokens
            if event.channel == "content":
                text += event.text
        right.append(turn.right(text.strip()))
        tokens.append(spoken)
    return right, tokens


def log_probabilities(model: Model, prompt: str, answer: list[int]) -> np.ndarray:
    """log p [answer tokens, vocabulary] of each answer token's place."""
    model.reset()
    before = model.tokenizer.encode(prompt, special=True)
    tokens = [*before, *answer[:-1]]
    rows = []
    for start in range(0, len(tokens), 64):
        output = model.session.step(tokens[start : start + 64], logits="all")
        rows.append(output.logits.astype(np.float64))
    model.session.reset()
    logits = np.concatenate(rows)[len(before) - 1 :]
    logits -= logits.max(axis=-1, keepdims=True)
    result: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Builds, asks and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-skill", type=int, default=24)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    asked = cases(arguments.per_skill)
    print(f"{len(asked)} questions")
    records, base, spoken, expected = [], [], [], []
    sample = asked[:: max(1, len(asked) // 60)]
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / recipe
            command = ["build", "nano", "--device", "cpu", "--recipe", recipe]
            if edgekit([*command, "--output", str(output)]):
                raise SystemExit(1)
            with load_model(output, threads=1) as model:
                right, tokens = answers(model, asked)
                if recipe == RECIPES[0]:
                    base, spoken = right, tokens
                said = [spoken[asked.index(case)] for case in sample]
                logs = [
                    log_probabilities(model, c[2], s) for c, s in zip(sample, said, strict=True)
                ]
        expected = expected or logs
        divergence = [
            np.sum(np.exp(p) * (p - q), axis=-1) for p, q in zip(expected, logs, strict=True)
        ]
        records.append(_record(recipe, asked, base, right, np.concatenate(divergence)))
        record = records[-1]
        print(
            f"{recipe:12} right {record['right']:.1%}  lost {record['lost']:+.1f} points "
            f"+- {record['interval']:.1f}  KL {record['kl']:.5f}"
        )
        worst = sorted(record["skills"].items(), key=lambda item: item[1])[:6]
        print(
            "             " + ", ".join(f"{name} {change:+d}" for name, change in worst if change)
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1))


def _record(
    recipe: str, asked: Sequence[Case], base: list[bool], right: list[bool], kl: np.ndarray
) -> dict:
    change = np.array(right, float) - np.array(base, float)
    by_skill: dict[str, int] = defaultdict(int)
    for (name, _, _), one in zip(asked, change, strict=True):
        by_skill[name] += int(one)
    return {
        "recipe": recipe,
        "questions": len(asked),
        "right": float(np.mean(right)),
        "lost": -100 * float(change.mean()),
        "interval": 100 * 1.96 * float(change.std() / np.sqrt(len(change))),
        "kl": float(kl.mean()),
        "skills": dict(by_skill),
    }


if __name__ == "__main__":
    main()
