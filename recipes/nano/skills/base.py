"""What every skill module shares: choosing phrasings and items, and small text helpers."""

# ruff: noqa: SIM905  word lists read better as text

import tomllib
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeVar

from edgekit.recipes.nano.chat import Turn

T = TypeVar("T")

# A skill makes one or more linked turns. With held=True it uses only phrasings and items that
# training never sees.
Skill = Callable[[Random, bool], list[Turn]]


HELD = Path(__file__).parents[1] / "knowledge" / "held.toml"


@cache
def held_phrasings() -> dict[str, list[str]]:
    """Phrasings only for the evaluation, by the first training phrasing they belong to."""
    table: dict[str, list[str]] = tomllib.loads(HELD.read_text(encoding="utf-8"))
    return table


def phrase(rng: Random, options: Sequence[str], held: bool) -> str:
    """Pick a phrasing: held-out ones stand in ``held.toml`` or are the fifth and the tenth."""
    own = held_phrasings().get(options[0]) if held else None
    if own:
        return rng.choice(own)
    return rng.choice([o for i, o in enumerate(options) if (i in (4, 9)) == held] or list(options))


ONSETS = (
    "b br c ch cl d dr f fl g gr h j k kl l m n p pl pr qu r s sh sl st t th tr v w y z".split()
)
VOWELS = "a e i o u ai ea ee ia io oo ou".split()
ENDINGS = ["", "", "", "l", "n", "r", "s", "t", "x", "m", "ck", "ng", "nd", "rk"]


def made_word(rng: Random) -> str:
    """A word that does not exist, so that copying and spelling cannot be learned by heart."""
    syllables = rng.choice([1, 2, 2, 2, 3])
    text = "".join(rng.choice(ONSETS) + rng.choice(VOWELS[:5] if rng.random() < 0.8 else VOWELS)
                   for _ in range(syllables))  # fmt: skip
    return text + rng.choice(ENDINGS)


def is_held(*item: object) -> bool:
    """True for the 1 in 16 items that only the evaluation uses."""
    return zlib.crc32(repr(item).encode()) % 16 == 0


def draw(rng: Random, make: Callable[[], T], held: bool) -> T:
    """Draw from ``make`` until the item is on the wanted side of the split."""
    item = make()
    for _ in range(400):
        if is_held(item) == held:
            break
        item = make()
    return item


def article(noun: str) -> str:
    """'a' or 'an' and the noun."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


MASS = set(
    "bread cheese milk rice soup chocolate coffee tea water sugar salt grass paper sand fire ice "
    "summer winter spring autumn night morning".split()
)


def named(noun: str) -> str:
    """The noun as a sentence uses it: 'a cat', 'water'."""
    return noun if noun in MASS else article(noun)


def upper_first(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def join_words(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


COMMANDS = set(
    "Add Calculate Subtract Multiply Divide Convert Change Spell Reverse Write Make Sort Put Order "
    "Count Find Give Tell Join Turn Name Define Explain Describe Work Solve Show List Read Get Say "
    "Repeat Extract Compare Pick Check Combine Arrange Translate".split()
)


TYPABLE = set(
    "what which where tell please capital currency many much memory does spell word letters sort "
    "number explain know about have people country language called write sentence story remember "
    "name from live today tomorrow after before define meaning number convert calculate largest "
    "opposite animal favorite because would could should there their right your with question "
    "answer device command model weather server install thanks hello good morning nice meet very "
    "stupid wrong useless great funny symbol element color between through minutes "
    "alphabetical".split()
)
OPENINGS = ["Please tell me: ", "Quick question: ", "Hey, ", "I have a question. ", "Hi nano! ",
            "Tell me, ", "Next question: ", "Ok. ", "And ", "Now: ", "Nano, ", "Hello! ", "Hi! ",
            "So, ", "Well, ", "Um, ", "Hmm, ", "Okay, ", "Great! ", "Thanks. ", "Cool. ",
            "I see. ", "By the way, ", "Just wondering, ", "Sorry, ", "Good. ", "Also, ",
            "One more question: ", "Another question: ", "Hey nano, ", "Oh, ", "Alright, ",
            "Dear nano, ", "Interesting. ", "But ", "Excuse me, ", "hi, "]  # fmt: skip
CLOSINGS = [" Thanks!", " Thank you.", " I forgot.", " I need to know.", " Do you know?",
            " Please.", " Just curious.", " It is for my homework.", " Any idea?"]  # fmt: skip
CONTRACTIONS = [("What is", "What's"), ("what is", "what's"), ("I am", "I'm"), ("I am", "im"),
                ("You are", "You're"), ("You are", "ur"), ("do not", "don't"), ("is not", "isn't"),
                ("What is", "Whats"), ("what is", "whats"), ("you", "u"), ("are", "r"),
                ("please", "pls"), ("Please", "Pls"), ("Where is", "Where's"),
                ("Who is", "Who's")]  # fmt: skip


def mistype(rng: Random, text: str) -> str:
    """One typing error in a common word; words that matter stay right."""
    words = text.split(" ")
    places = [i for i, w in enumerate(words) if w.strip(".,?!:").lower() in TYPABLE]
    if not places:
        return text
    i = rng.choice(places)
    w = words[i]
    k = rng.randrange(1, max(2, len(w.strip(".,?!:")) - 1))
    kind = rng.randrange(3)
    words[i] = [w[:k] + w[k + 1 :], w[:k] + w[k] + w[k:],
                w[:k] + w[k + 1 : k + 2] + w[k] + w[k + 2 :]][kind]  # fmt: skip
    return " ".join(words)


def casual(rng: Random, text: str, exact: bool = False) -> str:
    """The way people type: lower case, no final mark, a polite opening, a typing error.

    ``exact``: the answer repeats words of the text, so their case stays and no mark is added.
    """
    if "\n" in text or len(text) > 160:
        return text
    if rng.random() < 0.12 and text.split()[0] in COMMANDS and text[-1] in ".:?":
        lead = rng.choice(
            ["Can you", "Could you", "Please", "I want you to", "Then", "Now", "Would you",
             "I would like you to", "can u", "Go ahead and", "You should", "Try to"]
        )  # fmt: skip
        text = f"{lead} {text[0].lower()}{text[1:]}"
    if rng.random() < 0.14 and text[-1] == "?" and len(text) > 8:
        opening = rng.choice(OPENINGS)
        text = opening + (text if opening[-2] in ".!" else text[0].lower() + text[1:])
    elif rng.random() < 0.06 and text[-1] in ".?":
        text = f"{text[:-1]}, please{text[-1]}"
    if rng.random() < 0.04 and text[-1] == "?":
        text += rng.choice(CLOSINGS)
    if rng.random() < 0.1:
        old, new = rng.choice(CONTRACTIONS)
        text = f" {text} ".replace(f" {old} ", f" {new} ", 1).strip()
    if rng.random() < 0.07:
        text = mistype(rng, text)
    roll = rng.random() + exact
    if roll < 0.12:
        text = text[0].lower() + text[1:]
    elif roll < 0.22 and '"' not in text:
        text = text.lower()
    elif roll < 0.225 and '"' not in text and "{" not in text:
        text = text.upper()
    roll = rng.random() + exact
    if roll < 0.2 and text[-1] in ".?!":
        text = text[:-1]
    elif roll < 0.24 and text[-1] in "?!":
        text += text[-1] * rng.randrange(1, 3)
    elif roll < 0.26 and text[-1] == "?":
        text = text[:-1] + " ?"
    return text
