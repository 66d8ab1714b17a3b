"""What every skill module shares: choosing phrasings and items, and small text helpers."""

# ruff: noqa: SIM905  word lists read better as text

import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from edgekit.recipes.nano.chat import Turn

T = TypeVar("T")

# A skill makes one or more linked turns. With held=True it uses only phrasings and items that
# training never sees.
Skill = Callable[[Random, bool], list[Turn]]


def phrase(rng: Random, options: Sequence[str], held: bool) -> str:
    """Pick a phrasing: the fifth and the tenth are held out."""
    return rng.choice([o for i, o in enumerate(options) if (i in (4, 9)) == held] or list(options))


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


def casual(rng: Random, text: str) -> str:
    """The way people type: lower case, no final mark, a polite opening."""
    if "\n" in text or len(text) > 160:
        return text
    if rng.random() < 0.12 and text.split()[0] in COMMANDS and text[-1] in ".:?":
        lead = rng.choice(
            ["Can you", "Could you", "Please", "I want you to", "Then", "Now", "Would you"]
        )
        text = f"{lead} {text[0].lower()}{text[1:]}"
    if rng.random() < 0.12 and text[-1] == "?":
        opening = rng.choice(
            ["Please tell me: ", "Quick question: ", "Hey, ", "I have a question. ", "Hi nano! ",
             "Tell me, ", "Next question: ", "Ok. ", "And ", "Now: ", "Nano, "]
        )  # fmt: skip
        text = opening + (text if opening[-2] in ".!" else text[0].lower() + text[1:])
    elif rng.random() < 0.06 and text[-1] in ".?":
        text = f"{text[:-1]}, please{text[-1]}"
    roll = rng.random()
    if roll < 0.12:
        text = text[0].lower() + text[1:]
    elif roll < 0.2 and '"' not in text:
        text = text.lower()
    if rng.random() < 0.18 and text[-1] in ".?!":
        text = text[:-1]
    return text
