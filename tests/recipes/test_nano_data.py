"""nano's conversations: the template, the loss pieces and the answers agree."""

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer  # noqa: E402

from edgekit.recipes.nano.chat import Conversation, messages, prompt_text, segments  # noqa: E402
from edgekit.recipes.nano.data import conversation, encode  # noqa: E402
from edgekit.recipes.nano.skills import SKILLS  # noqa: E402

FOLDER = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"


@pytest.fixture(scope="module")
def template():
    return transformers.AutoTokenizer.from_pretrained(FOLDER)


@pytest.mark.parametrize("seed", range(40))
def test_segments_are_the_template_text(template, seed):
    chat = conversation(Random(seed))
    text = template.apply_chat_template(
        messages(chat), tools=chat.tools or None, tokenize=False, add_generation_prompt=False
    )
    assert "".join(piece for piece, _ in segments(chat)) == text
    ids, weights = encode(Tokenizer.from_file(str(FOLDER / "tokenizer.json")), chat)
    assert ids == template.encode(text, add_special_tokens=False)
    assert len(ids) == len(weights)
    assert sum(weights) > 0


@pytest.mark.parametrize("seed", range(40))
def test_prompt_is_the_generation_prompt(template, seed):
    chat = conversation(Random(seed))
    before = Conversation(chat.turns[:-1], chat.system, chat.tools, thinking=False)
    asked = [*messages(before), {"role": "user", "content": chat.turns[-1].user}]
    text = template.apply_chat_template(
        asked,
        tools=chat.tools or None,
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=chat.thinking,
    )
    assert prompt_text(chat) == text


@pytest.mark.parametrize("skill", SKILLS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("held", [False, True], ids=["training", "held out"])
def test_every_answer_is_right(skill, held):
    rng = Random(1)
    for _ in range(60):
        assert all(turn.right(turn.answer) for turn in skill(rng, held))


def test_conversations_repeat_from_a_seed():
    assert conversation(Random(3)) == conversation(Random(3))
