"""Training conversations and batches of tokens.

Conversations mix the skills at random from a seed, so the training text is endless and
reproducible. A chat row begins where a conversation begins and is filled without padding.
"""

from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Value
from pathlib import Path
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from edgekit.recipes.nano.chat import Conversation, Turn, segments
from edgekit.recipes.nano.skills import SKILLS
from edgekit.recipes.nano.skills.base import is_held_phrasing
from edgekit.recipes.nano.skills.casual import casual
from edgekit.recipes.nano.skills.common import echo
from edgekit.recipes.nano.skills.invented import invented_tool
from edgekit.recipes.nano.skills.tools import TOOLS, tool_turn

SYSTEMS = [
    "You are a helpful assistant.", "You are nano, a small model.",
           "You are a friendly assistant.", "Answer briefly.",
    "You are a helpful AI assistant. Answer in short sentences.", "Be kind and brief.",
           "You are nano.",
    "You are an assistant that runs on a small device.", "Please answer in English.",
           "You are edgekit's demo model.",
]  # fmt: skip
TOOL_SHARE = 0.17
INVENTED_SHARE = 0.6
DOCS_WEIGHT = 0.5
PERSONAL = ("memory", "not told", "copy")


def _plain_turns(rng: Random, wanted: int) -> list[Turn]:
    skills, weights = list(SKILLS), list(SKILLS.values())
    turns: list[Turn] = []
    while len(turns) < wanted:
        made = rng.choices(skills, weights)[0](rng, False)
        if made[0].skill == "not told" and any(t.skill in PERSONAL for t in turns):
            continue
        if made[0].skill == "memory" and len(made) > 1 and rng.random() < 0.6:
            between = rng.choices(skills, weights)[0](rng, False)  # something in between
            made[1:1] = [t for t in between if t.skill not in PERSONAL]
        turns += [_informal(rng, turn) for turn in made]
        if rng.random() < 0.03 and len(turns[-1].user) < 100:
            turns.append(echo(rng, turns[-1], False))
    return turns


def _informal(rng: Random, turn: Turn) -> Turn:
    """The turn as people type it, but never in words kept for the evaluation."""
    for _ in range(8):
        user = casual(rng, turn.user, turn.call is not None or turn.skill == "copy")
        if not is_held_phrasing(user):
            return replace(turn, user=user)
    return turn


def conversation(rng: Random) -> Conversation:
    """One training conversation."""
    thinking = rng.random() < 0.5
    system = rng.choice(SYSTEMS) if rng.random() < 0.25 else ""
    if rng.random() < TOOL_SHARE:
        count = rng.randrange(1, 4)
        tools = [
            invented_tool(rng) if rng.random() < INVENTED_SHARE else rng.choice(TOOLS)
            for _ in range(count)
        ]
        tools = list({tool.name: tool for tool in tools}.values())
        turns: list[Turn] = []
        for _ in range(rng.randrange(1, 5)):
            if rng.random() < 0.75:
                turns.append(_informal(rng, tool_turn(rng, rng.choice(tools), False)))
            else:
                turns += _plain_turns(rng, 1)
        return Conversation(turns, system, [t.schema() for t in tools], thinking)
    length = rng.choice([1, 1, 1, 2, 2, 3, 4, 6])
    return Conversation(_plain_turns(rng, length), system, [], thinking)


def encode(tokenizer: Tokenizer, chat: Conversation) -> tuple[list[int], list[float]]:
    """Token ids and the loss weight of each token."""
    ids: list[int] = []
    weights: list[float] = []
    for text, weight in segments(chat):
        piece = tokenizer.encode(text, add_special_tokens=False).ids
        ids += piece
        weights += [weight] * len(piece)
    return ids, weights


class Rows(IterableDataset[tuple[Tensor, Tensor]]):
    """Endless rows of ``length + 1`` tokens and the weights of their ``length`` targets.

    A row is documents with probability ``share`` (shared with the worker processes, so that the
    trainer can change it) and conversations otherwise.
    """

    def __init__(self, tokenizer: Path, docs: Path, length: int, seed: int) -> None:
        self.tokenizer, self.docs = tokenizer, docs
        self.length, self.seed = length, seed
        self.share = Value("d", 0.0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        info = get_worker_info()
        worker = info.id if info else 0
        rng = Random(self.seed * 1000 + worker)
        tokenizer = Tokenizer.from_file(str(self.tokenizer))
        docs = np.fromfile(self.docs, dtype=np.uint16)
        while True:
            row, weights = self._row(rng, tokenizer, docs)
            yield torch.tensor(row, dtype=torch.int32), torch.tensor(weights[1:])

    def _row(
        self, rng: Random, tokenizer: Tokenizer, docs: "np.ndarray[tuple[int], np.dtype[np.uint16]]"
    ) -> tuple[list[int], list[float]]:
        size = self.length + 1
        if rng.random() < self.share.value:
            start = rng.randrange(len(docs) - size)
            return docs[start : start + size].tolist(), [DOCS_WEIGHT] * size
        row: list[int] = []
        weights: list[float] = []
        while len(row) < size:
            ids, more = encode(tokenizer, conversation(rng))
            row += ids
            weights += more
        return row[:size], weights[:size]
