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
from edgekit.recipes.nano.skills.base import (  # noqa: E402
    ask,
    is_held_phrasing,
    load,
    phrase,
    phrasings,
)
from edgekit.recipes.nano.skills.casual import casual  # noqa: E402
from edgekit.recipes.nano.skills.frames import parsed, reframed  # noqa: E402
from edgekit.recipes.nano.skills.maths import solve  # noqa: E402

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


def test_no_phrasing_is_both_for_training_and_for_the_evaluation():
    for entry in load("phrasings").values():
        assert not [text for text in entry["ask"] if is_held_phrasing(text)]
        assert all(is_held_phrasing(text) for text in entry.get("held", ()))
        assert set(entry) <= {"ask", "held"}


def test_the_evaluation_uses_only_what_was_kept_for_it():
    rng = Random(0)
    kept = phrasings("add")["held"]
    assert {phrase(rng, "add", held=True) for _ in range(100)} == set(kept)
    assert not {phrase(rng, "add", held=False) for _ in range(2000)} & set(kept)


@pytest.mark.parametrize(
    "text",
    ["what exactly is rain", "What exactly is rain??", "could you add 3 and 4", "AND WHO AM I?"],
)
def test_held_out_phrasings_are_known_however_they_are_typed(text):
    assert is_held_phrasing(text)


def test_training_never_makes_a_held_out_phrasing():
    for seed in range(1500):
        for turn in conversation(Random(seed)).turns:
            assert not is_held_phrasing(turn.user), turn.user


def test_asking_reworks_a_phrasing_and_keeps_its_words():
    rng = Random(2)
    made = {ask(rng, "capital", False, c="France") for _ in range(400)}
    assert len(made) > 60
    assert all("France" in text for text in made)


@pytest.mark.parametrize(
    ("phrasing", "clause"),
    [
        ("How many legs does {x} have?", "how many legs {x} has"),
        ("Where is {c}?", "where {c} is"),
        ("When was {x} founded?", "when {x} was founded"),
        ("What is {a} + {b}?", "what {a} + {b} is"),
        ("Is {n} prime?", "{n} is prime"),
        ("Does the {d} run edgekit?", "the {d} runs edgekit"),
        ("How do I build a bundle?", "how to build a bundle"),
        ("Add {a} and {b} with care.", "add {a} and {b} with care"),
    ],
)
def test_questions_become_clauses(phrasing, clause):
    assert clause in [filling for _, filling in parsed(phrasing)]


def test_nothing_follows_a_text_to_copy():
    assert all(reframed(Random(i), "Say: {x}").rstrip("?.").endswith("{x}") for i in range(200))


@pytest.mark.parametrize("seed", range(20))
def test_careful_typing_keeps_the_words_to_copy(seed):
    text = "Repeat after me: Zorvik lives in Oslo"
    assert casual(Random(seed), text, exact=True).endswith("Zorvik lives in Oslo")


def test_not_told_is_never_asked_after_telling():
    for seed in range(300):
        skills = [turn.skill for turn in conversation(Random(seed)).turns]
        if "not told" in skills:
            assert "memory" not in skills[: skills.index("not told")]


@pytest.mark.parametrize(
    ("sum_", "working"),
    [
        (("+", 347, 586), "7 + 6 = 13: 3, 4 + 8 + 1 = 13: 33, 3 + 5 + 1 = 9: 933"),
        (("+", 95, 7), "5 + 7 = 12: 2, 9 + 0 + 1 = 10: 102"),
        (("-", 302, 45), "12 - 5 = 7: 7, 10 - 5 = 5: 57, 3 - 1 = 2: 257"),
        (("*", 12, 24), "12 * 20 = 240, 12 * 4 = 48, 240 + 48 = 288"),
        (("*", 30, 24), "30 * 20 = 600, 30 * 4 = 120, 600 + 120 = 720"),
        (("*", 7, 8), "7 * 8 = 56"),
        (("/", 56, 8), "8 * 7 = 56"),
    ],
)
def test_sums_are_worked_out_step_by_step(sum_, working):
    assert solve(*sum_)[0] == working


def test_the_working_ends_in_the_result():
    rng = Random(5)
    for _ in range(500):
        a, b = rng.randrange(1, 1000), rng.randrange(1, 1000)
        for op, value in (("+", a + b), ("-", abs(a - b))):
            assert int(solve(op, a, b)[0].split(": ")[-1]) == value
