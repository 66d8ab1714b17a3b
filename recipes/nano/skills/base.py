"""What every skill module shares: phrasings and their variety, items, and small text helpers."""

# ruff: noqa: SIM905  word lists read better as text

import re
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.frames import qualified, reframed

T = TypeVar("T")

# A skill makes one or more linked turns. With held=True it uses only phrasings and items that
# training never sees.
Skill = Callable[[Random, bool], list[Turn]]


NANO = Path(__file__).parents[1]


@cache
def load(name: str) -> dict[str, Any]:
    """One of the knowledge files."""
    return tomllib.loads((NANO / "knowledge" / f"{name}.toml").read_text(encoding="utf-8"))


# Ways to ask for one thing: "ask" for training and, if there are any, "held" for the evaluation.
Phrasings = Mapping[str, list[str]]


def phrasings(name: str) -> Phrasings:
    """The entry of ``phrasings.toml``."""
    found: Phrasings = load("phrasings")[name]
    return found


def _plain(text: str) -> str:
    """Lower case, without closing marks and contractions, so that small changes do not matter."""
    text = re.sub(r"\s+", " ", text.lower().replace("'s", " is")).strip()
    return text.rstrip(" .?!")


def held_phrasings() -> Iterator[str]:
    """Everything the evaluation keeps for itself."""
    entries = [*load("phrasings").values(), *load("talk")["talk"], *load("edgekit")["entry"]]
    for entry in [*entries, *load("common")["fact"]]:
        yield from entry.get("held", ())


@cache
def _held_patterns() -> dict[str, re.Pattern[str]]:
    """One pattern of all held-out phrasings by their first word; "" if that is a slot."""
    table: dict[str, list[str]] = defaultdict(list)
    for text in held_phrasings():
        pieces = re.split(r"\{\w+\}", _plain(text))
        first = re.match(r"[\w']+(?= |$)", pieces[0])
        table[first[0] if first else ""].append(".+".join(map(re.escape, pieces)))
    return {word: re.compile("|".join(found)) for word, found in table.items()}


def is_held_phrasing(text: str) -> bool:
    """True if the evaluation keeps this phrasing for itself, whatever fills its slots."""
    plain = _plain(text)
    patterns = _held_patterns()
    for word in (plain.partition(" ")[0], ""):
        if word in patterns and patterns[word].fullmatch(plain):
            return True
    return False


def phrase(rng: Random, asks: str | Phrasings, held: bool) -> str:
    """Pick a phrasing, by the name of its entry or from the entry itself."""
    entry = phrasings(asks) if isinstance(asks, str) else asks
    return rng.choice(entry.get("held", entry["ask"]) if held else entry["ask"])


FRAMED = 0.45  # share of the phrasings in another frame
QUALIFIED = 0.2


def clause(rng: Random, asks: str | Phrasings, held: bool, **words: object) -> str:
    """A filled statement about the user, for a part of a message; sometimes with an adverb."""
    for _ in range(20):
        text = phrase(rng, asks, held).format(**words)
        if not held and rng.random() < QUALIFIED:
            text = qualified(rng, text)
        if held or not is_held_phrasing(text):
            break
    return text


def ask(rng: Random, asks: str | Phrasings, held: bool, **words: object) -> str:
    """A filled phrasing: a held-out one, or a listed one, often in another frame."""
    for _ in range(20):
        text = phrase(rng, asks, held)
        if not held and rng.random() < FRAMED:
            text = reframed(rng, text)
        text = upper_first(text).format(**words)
        if held or not is_held_phrasing(text):
            break
    return text


def made(
    rng: Random, held: bool, skill: str, asks: str | Phrasings, answer: str, thought: str,
    key: str, exact: bool = False, **words: object,
) -> Turn:  # fmt: skip
    """A turn: a phrasing, an answer, a thought and a key, all filled with the same words."""
    user = ask(rng, asks, held, **words)
    answer, thought, key = (text.format(**words) for text in (answer, thought, key))
    return Turn(skill, user, answer, thought, key, exact)


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
