"""Score a nano checkpoint on held-out phrasings and items.

    python -m edgekit.recipes.nano.evaluate [--checkpoint DIR] [--per-skill N] [--device cuda]

Prints exact match per skill (with and without thinking), valid tool calls, the share of answers
that stop by themselves, bits per byte on held-out documentation, and sample conversations.
"""

import argparse
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from edgekit.recipes.nano.chat import Conversation, Turn, call_text, prompt_text
from edgekit.recipes.nano.checkpoint import load_checkpoint
from edgekit.recipes.nano.generate import replies
from edgekit.recipes.nano.model import NemotronH
from edgekit.recipes.nano.prepare import CHECKPOINT
from edgekit.recipes.nano.questions import LIMIT, questions
from edgekit.recipes.nano.skills.tools import HELD_TOOLS, TOOLS, Tool, tool_turn

SAMPLES = [
    ["Hello", "What can you do?", "What is the capital of France?", "And its currency?",
     "Thanks, bye!"],
    ["Hi, I am Maria and I have a dog.", "What is edgekit?", "How do I start a server?",
     "What is my name?", "And my pet?"],
    ["hey nano whats up", "my name is Zorvik and i live in Oslo. what is 12 x 7?",
     "where do i live",
     "you are useless", "sorry, you are ok"],
    ["Tell me a story about a fox.", "How much memory does the Jetson Orin Nano have?",
     "And the DGX Spark?", "Can I run the 30B model on the Orin Nano?"],
    ["Why is the sky blue?", "What is the symbol of gold? And its atomic number?",
     "Who was Greta Novak?", "Spell banana backwards.", "You are great."],
    ["Is it a good idea to learn Python?", "What should I cook tonight?", "Tell me a joke.",
     "I do not get it.", "Write a poem about the moon."],
    ["What is a neural network?", "Tell me more.", "What is 347 + 586?",
     "What day is 5 days after Thursday?", "Sort pear, apple, kiwi, banana."],
    ["I feel lonely today", "do you have friends?", "Can you play football with me?",
     "What's the capital of Mordovania?", "good night"],
]  # fmt: skip

Scores = dict[str, dict[str, list[float]]]


def evaluate_skills(
    model: NemotronH, tokenizer: Tokenizer, count: int, seed: int
) -> tuple[Scores, list[str]]:
    """Right answers and self-stopped answers by skill, thinking on and off; and the wrong answers.

    Every linked turn is asked with the right answers before it.
    """
    asked = questions(count, seed)
    scores: Scores = defaultdict(lambda: defaultdict(list))
    wrong: list[str] = []
    answers = replies(model, tokenizer, [question.prompt for question in asked], LIMIT)
    for question, got in zip(asked, answers, strict=True):
        if question.checked:
            right, turn = question.right(got.answer), question.turn
            mode = "thinking" if question.thinking else "direct"
            scores[question.skill][mode].append(float(right))
            if not right:
                wrong.append(f"{question.skill}: {turn.user!r} -> {got.answer!r} ({got.thought})"
                             f" wanted {turn.key!r}"[:600])  # fmt: skip
        scores[question.skill]["stopped"].append(float(got.stopped))
    return scores, wrong


def parses(call: str, schema: dict[str, Any]) -> bool:
    """True for a well-formed call of the tool with its required parameters."""
    function = schema["function"]
    match = re.fullmatch(
        r"<tool_call>\n<function=([^>]+)>\n((?:<parameter=[^>]+>\n.*?\n</parameter>\n)*)"
        r"</function>\n</tool_call>",
        call, re.DOTALL,
    )  # fmt: skip
    if not match or match[1] != function["name"]:
        return False
    given = set(re.findall(r"<parameter=([^>]+)>", match[2]))
    return given == set(function["parameters"]["required"])


def evaluate_tools(
    model: NemotronH, tokenizer: Tokenizer, count: int, seed: int
) -> tuple[dict[str, list[float]], list[str]]:
    """Valid calls, exact calls, and right answers from results; seen tools and unseen tools."""
    rng = Random(seed)
    cases: list[tuple[str, Tool, Turn, Conversation]] = []
    for i in range(count):
        unseen = i % 2 == 1
        tool = rng.choice(HELD_TOOLS if unseen else TOOLS)
        others = rng.sample([t for t in TOOLS if t is not tool], 1)
        schemas = [t.schema() for t in rng.sample([tool, *others], 2)]
        turn = tool_turn(rng, tool, True)
        chat = Conversation([turn], tools=schemas, thinking=i % 4 < 2)
        cases.append(("unseen tool" if unseen else "tool", tool, turn, chat))
    prompts = [prompt_text(chat) for *_, chat in cases]
    calls = replies(model, tokenizer, prompts, LIMIT)
    after = [p + _call_and_result(c[3], c[2]) for p, c in zip(prompts, cases, strict=True)]
    answers = replies(model, tokenizer, after, LIMIT)
    hits: dict[str, list[float]] = defaultdict(list)
    wrong: list[str] = []
    for (group, tool, turn, _), got, answer in zip(cases, calls, answers, strict=True):
        assert turn.call
        exact = got.call == call_text(turn.call).strip()
        hits[f"{group}: valid call"].append(float(parses(got.call, tool.schema())))
        hits[f"{group}: exact call"].append(float(exact))
        hits[f"{group}: stopped"] += [float(got.stopped), float(answer.stopped)]
        if group == "tool":  # the wording of an unseen tool's answer is free
            hits["tool: answer from the result"].append(float(turn.right(answer.answer)))
        if not exact:
            wrong.append(f"{group}: {turn.user!r} -> {got.call or got.answer!r}")
    return hits, wrong


def _call_and_result(chat: Conversation, turn: Turn) -> str:
    call = turn.call
    assert call
    think = f"{call.thought}</think>" if chat.thinking else ""
    opening = "\n" if chat.thinking else "</think>"
    return (
        f"{think}\n{call_text(call)}<|im_end|>\n<|im_start|>user\n<tool_response>\n{call.result}\n"
        f"</tool_response>\n<|im_end|>\n<|im_start|>assistant\n<think>{opening}"
    )


@torch.no_grad()
def bits_per_byte(model: NemotronH, tokenizer: Tokenizer, text: str, window: int = 1024) -> float:
    """Bits per byte of the text, read in windows."""
    device = model.lm_head.weight.device
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    nats = 0.0
    for start in range(0, len(ids) - 1, window):
        piece = torch.tensor([ids[start : start + window + 1]], device=device)
        logits = model(piece[:, :-1])[0].float()
        nats += functional.cross_entropy(logits, piece[0, 1:], reduction="sum").item()
    return nats / math.log(2) / len(text.encode())


def transcripts(model: NemotronH, tokenizer: Tokenizer, samples: list[list[str]]) -> Iterator[str]:
    """Conversations, as the model really answers them; every second one without thinking."""
    turns: list[list[Turn]] = [[] for _ in samples]
    lines: list[list[str]] = [[] for _ in samples]
    for step in range(max(map(len, samples))):
        live = [i for i, questions in enumerate(samples) if step < len(questions)]
        prompts = []
        for i in live:
            asked = Turn("chat", samples[i][step], "", "")
            prompts.append(prompt_text(Conversation([*turns[i], asked], thinking=i % 2 == 0)))
        for i, got in zip(live, replies(model, tokenizer, prompts, LIMIT), strict=True):
            question = samples[i][step]
            turns[i].append(Turn("chat", question, got.answer, got.thought))
            thought = f"  ({got.thought})" if got.thought else ""
            end = "" if got.stopped else " [cut]"
            lines[i] += [f"> {question}", f"{got.answer}{thought}{end}"]
    for i, shown in enumerate(lines):
        yield f"--- conversation {i + 1}, thinking {'on' if i % 2 == 0 else 'off'}"
        yield from shown


def percent(values: list[float]) -> str:
    """The mean and how many cases it comes from."""
    return f"{sum(values) / len(values):6.1%} ({len(values)})" if values else "free text"


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--tokenizer", type=Path, default=CHECKPOINT / "tokenizer.json")
    parser.add_argument("--per-skill", type=int, default=80)
    parser.add_argument("--docs", type=Path, help="folder with docs.heldout.txt")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the numbers and wrong answers here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("high")
    model = load_checkpoint(args.checkpoint).eval().to(args.device)
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    for line in transcripts(model, tokenizer, SAMPLES):
        print(line, flush=True)
    numbers: dict[str, Any] = {}
    if args.docs:
        text = (args.docs / "docs.heldout.txt").read_text(encoding="utf-8")
        numbers["bits per byte"] = bits_per_byte(model, tokenizer, text)
        print(f"bits per byte on held-out documentation: {numbers['bits per byte']:.3f}")
    tools, wrong_calls = evaluate_tools(model, tokenizer, 2 * args.per_skill, args.seed)
    for name, hits in tools.items():
        print(f"{name:32s} {percent(hits)}", flush=True)
    skills, wrong = evaluate_skills(model, tokenizer, args.per_skill, args.seed)
    for name, row in skills.items():
        print(f"{name:14s} thinking {percent(row['thinking'])}  direct {percent(row['direct'])}"
              f"  stopped {percent(row['stopped'])}")  # fmt: skip
    for mode in ("thinking", "direct", "stopped"):
        means = [sum(r[mode]) / len(r[mode]) for r in skills.values() if r[mode]]
        every = [x for r in skills.values() for x in r[mode]]
        print(f"{mode}: mean of skills {sum(means) / len(means):.1%}, all cases {percent(every)}")
    if args.json:
        shown = {n: {m: [sum(v), len(v)] for m, v in r.items()} for n, r in skills.items()}
        numbers |= {"tools": {n: [sum(v), len(v)] for n, v in tools.items()}, "skills": shown,
                    "wrong": [*wrong_calls, *wrong]}  # fmt: skip
        args.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
