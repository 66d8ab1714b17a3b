"""Held-out prompts in the recipe's own mixture: phrasings and items that training never shows."""

from dataclasses import dataclass
from random import Random

from tokenizers import Tokenizer

from edgekit.recipes.nano.chat import Conversation, prompt_text
from edgekit.recipes.nano.data import TOOL_SHARE
from edgekit.recipes.nano.skills import SKILLS
from edgekit.recipes.nano.skills.tools import HELD_TOOLS, TOOLS, tool_turn


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids up to the assistant's turn, and the skill asked for."""

    skill: str
    ids: list[int]


def _conversation(rng: Random, thinking: bool) -> tuple[str, Conversation]:
    if rng.random() < TOOL_SHARE:
        tool, *others = rng.sample(HELD_TOOLS if rng.random() < 0.25 else TOOLS, 2)
        turn = tool_turn(rng, tool, True)
        schemas = [t.schema() for t in (tool, *others)]
        return "tools", Conversation([turn], tools=schemas, thinking=thinking)
    skill = rng.choices(list(SKILLS), list(SKILLS.values()))[0]
    turns = skill(rng, True)
    return skill.__name__, Conversation(turns[: rng.randint(1, len(turns))], thinking=thinking)


def held_out_prompts(tokenizer: Tokenizer, count: int, seed: int) -> list[Prompt]:
    """``count`` prompts, half of them with thinking."""
    rng = Random(seed)
    prompts = []
    for i in range(count):
        skill, chat = _conversation(rng, i % 2 == 0)
        ids = tokenizer.encode(prompt_text(chat), add_special_tokens=False).ids
        prompts.append(Prompt(skill, ids))
    return prompts
