"""Score a nano checkpoint on held-out phrasings and items, on the CPU.

    python -m edgekit.recipes.nano.evaluate [--checkpoint DIR] [--per-skill N] [--docs DIR]

Prints exact match per skill (with and without thinking), valid tool calls, the share of answers
that stop by themselves, bits per byte on held-out documentation, and sample conversations.
"""

import argparse
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from edgekit.recipes.nano.chat import Conversation, Turn, call_text, prompt_text
from edgekit.recipes.nano.checkpoint import load_checkpoint
from edgekit.recipes.nano.generate import reply
from edgekit.recipes.nano.model import NemotronH
from edgekit.recipes.nano.prepare import CHECKPOINT
from edgekit.recipes.nano.skills import SKILLS
from edgekit.recipes.nano.skills.tools import HELD_TOOLS, TOOLS, tool_turn

SAMPLES = [
    ["Hello", "What can you do?", "What is the capital of France?", "And its currency?",
     "Thanks, bye!"],
    ["Hi, I am Maria.", "What is edgekit?", "How do I start a server?", "What is my name?"],
    ["What is a neural network?", "What is 17 + 25?", "Tell me a joke.",
     "Write a short sentence about a cat."],
    ["Tell me a story about a fox.", "How much memory does the Jetson Orin Nano have?",
     "And the DGX Spark?"],
    ["Why is the sky blue?", "What is the symbol of gold?", "Who was Greta Novak?",
     "You are great."],
]  # fmt: skip
FREE_TEXT = {"fact", "joke", "story", "poem", "sentence"}  # only stopping counts


def skill_cases(count: int, seed: int) -> list[tuple[str, list[Turn]]]:
    """Held-out turns by skill function."""
    rng = Random(seed)
    return [(s.__name__, s(rng, True)) for s in SKILLS for _ in range(count)]


def evaluate_skills(
    model: NemotronH, tokenizer: Tokenizer, count: int, seed: int
) -> dict[str, dict[str, float]]:
    """Share of right answers and of self-stopped answers by skill, thinking on and off.

    Every linked turn is asked with the right answers before it.
    """
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, (name, turns) in enumerate(skill_cases(count, seed)):
        thinking = number % 2 == 0
        for i in range(len(turns)):
            chat = Conversation(turns[: i + 1], thinking=thinking)
            got = reply(model, tokenizer, prompt_text(chat))
            mode = "thinking" if thinking else "direct"
            if turns[i].key and turns[i].skill not in FREE_TEXT:
                scores[name][mode].append(float(turns[i].right(got.answer)))
            scores[name]["stopped"].append(float(got.stopped))
    return {k: {m: sum(v) / len(v) for m, v in row.items()} for k, row in scores.items()}


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
) -> dict[str, float]:
    """Valid calls, exact calls, and right answers from results; seen tools and unseen tools."""
    rng = Random(seed)
    hits: dict[str, list[float]] = defaultdict(list)
    for i in range(count):
        unseen = i % 4 == 3
        tool = rng.choice(HELD_TOOLS if unseen else TOOLS)
        others = rng.sample([t for t in TOOLS if t is not tool], 1)
        schemas = [t.schema() for t in rng.sample([tool, *others], 2)]
        turn = tool_turn(rng, tool, not unseen)
        chat = Conversation([turn], tools=schemas, thinking=i % 2 == 0)
        got = reply(model, tokenizer, prompt_text(chat))
        group = "unseen tool" if unseen else "tool"
        assert turn.call
        hits[f"{group}: valid call"].append(float(parses(got.call, tool.schema())))
        hits[f"{group}: exact call"].append(float(got.call == call_text(turn.call).strip()))
        if not unseen:  # the wording of an unseen tool's answer is free
            final = prompt_text(chat) + _call_and_result(chat, turn)
            right = turn.right(reply(model, tokenizer, final).answer)
            hits["tool: answer from the result"].append(float(right))
    return {k: sum(v) / len(v) for k, v in hits.items()}


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
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    nats = 0.0
    for start in range(0, len(ids) - 1, window):
        piece = torch.tensor([ids[start : start + window + 1]])
        nats += functional.cross_entropy(
            model(piece[:, :-1])[0], piece[0, 1:], reduction="sum"
        ).item()
    return nats / math.log(2) / len(text.encode())


def transcript(
    model: NemotronH, tokenizer: Tokenizer, questions: list[str], thinking: bool
) -> list[str]:
    """A conversation, as the model really answers it."""
    turns: list[Turn] = []
    lines = []
    for question in questions:
        asked = Turn("chat", question, "", "")
        chat = Conversation([*turns, asked], thinking=thinking)
        got = reply(model, tokenizer, prompt_text(chat))
        turns.append(Turn("chat", question, got.answer, got.thought))
        thought = f"  ({got.thought})" if got.thought else ""
        lines += [f"> {question}", f"{got.answer}{thought}" + ("" if got.stopped else " [cut]")]
    return lines


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--per-skill", type=int, default=40)
    parser.add_argument("--docs", type=Path, help="folder with docs.heldout.txt")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = load_checkpoint(args.checkpoint).eval()
    tokenizer = Tokenizer.from_file(str(args.checkpoint / "tokenizer.json"))
    for i, questions in enumerate(SAMPLES):
        print(f"--- conversation {i + 1}, thinking {'on' if i % 2 == 0 else 'off'}")
        print("\n".join(transcript(model, tokenizer, questions, i % 2 == 0)), flush=True)
    numbers: dict[str, Any] = {}
    if args.docs:
        text = (args.docs / "docs.heldout.txt").read_text(encoding="utf-8")
        numbers["bits per byte"] = bits_per_byte(model, tokenizer, text)
        print(f"bits per byte on held-out documentation: {numbers['bits per byte']:.3f}")
    numbers["tools"] = evaluate_tools(model, tokenizer, 2 * args.per_skill, args.seed)
    for name, value in numbers["tools"].items():
        print(f"{name:32s} {value:6.1%}", flush=True)
    numbers["skills"] = evaluate_skills(model, tokenizer, args.per_skill, args.seed)
    column: Callable[[dict[str, float], str], str] = lambda row, k: (  # noqa: E731
        f"{row[k]:8.1%}" if k in row else "       -"
    )
    print(f"{'skill':16s} thinking   direct  stopped")
    for name, row in numbers["skills"].items():
        print(
            f"{name:16s} {column(row, 'thinking')} {column(row, 'direct')} {column(row, 'stopped')}"
        )
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
