"""Letters, words, lists and small JSON objects."""

# ruff: noqa: SIM905  word lists read better as text

import json
from functools import cache
from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import draw, join_words, load, made, made_word
from edgekit.recipes.nano.skills.world import facts

NAMES = (
    "Ana Ben Carl Dora Emma Finn Gina Hans Ida Jack Kim Lena Max Nina Otto Paul Rosa Sam Tina Vera "
    "Anna Bob Clara David Eva Frank Grace Henry Iris John Kate Leo Maria Noah Olga Peter Lucy Tom"
).split()
COLORS = "red blue green yellow black white brown pink orange purple grey".split()
CITIES = (
    "Paris London Berlin Rome Madrid Oslo Tokyo Cairo Lima Vienna Dublin Athens Prague Delhi"
).split()


@cache
def word_pool() -> list[str]:
    """Short plain words."""
    nouns = [w for w, _ in facts()["words"]["noun"]]
    adjectives = [w for w, _ in facts()["words"]["adj"]]
    pool = dict.fromkeys([*load("topics")["things"], *nouns, *adjectives, *COLORS])
    return [w for w in pool if 3 <= len(w) <= 7 and w.isalpha()]


def some_name(rng: Random) -> str:
    """A first name: a known one, or one that nobody has."""
    return rng.choice(NAMES) if rng.random() < 0.5 else made_word(rng).capitalize()


def some_city(rng: Random) -> str:
    """A city: a well-known one, a capital, or an invented one."""
    roll = rng.random()
    if roll < 0.35:
        return rng.choice(CITIES)
    if roll < 0.7:
        return str(rng.choice(facts()["countries"])["capital"])
    return made_word(rng).capitalize()


def _any_word(rng: Random) -> str:
    if rng.random() < 0.25:
        return made_word(rng)
    words: list[str] = word_pool() if rng.random() < 0.4 else facts()["plain"]
    return rng.choice(words)


def _words(rng: Random, count: int, held: bool) -> list[str]:
    return [draw(rng, lambda: _any_word(rng), held) for _ in range(count)]


def letters(rng: Random, held: bool) -> list[Turn]:
    """Spelling, counting and changing the letters of one word."""
    (w,) = _words(rng, 1, held)
    spelled = "-".join(w)
    numbered = ", ".join(f"{c} {i + 1}" for i, c in enumerate(w))
    kind = rng.randrange(8)
    c = rng.choice(w) if rng.random() < 0.8 else rng.choice("aeinorst")
    found = ", ".join(f"{x} {w[: i + 1].count(c)}" for i, x in enumerate(w))
    asks, answer, thought, key = [
        ("spell", spelled, f"The letters of {w}.", spelled),
        ("letters of a word", f"{spelled}: the word {w} has {len(w)} letters.", f"{numbered}.",
         f"has {len(w)} letters"),
        ("backwards", f"{spelled} backwards is {'-'.join(w[::-1])}: {w[::-1]}",
         f"I read {spelled} from the end.", w[::-1]),
        ("capitals", f"{'-'.join(w.upper())}: {w.upper()}", f"{spelled} in capitals.", w.upper()),
        ("first letter", f"The first letter of {w} is {w[0]}.", f"{spelled}.", f"is {w[0]}."),
        ("last letter", f"The last letter of {w} is {w[-1]}.", f"{spelled}.", f"is {w[-1]}."),
        ("say a word", w, f"The user wants me to say {w}.", w),
        ("count a letter", f"{spelled} has the letter {c} {w.count(c)} times.", f"{found}.",
         f"letter {c} {w.count(c)} times"),
    ][kind]  # fmt: skip
    quoted = f'"{w}"' if rng.random() < 0.25 else w
    return [made(rng, held, "letters", asks, answer, thought, key, exact=kind in (0, 6),
                 w=quoted, c=c)]  # fmt: skip


def lists(rng: Random, held: bool) -> list[Turn]:
    """Sorting, counting, picking and joining short lists."""
    count = rng.randrange(3, 6)
    words = list(dict.fromkeys(_words(rng, count, held)))
    shown = ", ".join(words)
    kind = rng.randrange(8)
    key = ""
    if kind in (1, 2):
        values = draw(rng, lambda: tuple(rng.sample(range(1, 100), count)), held)
        shown = ", ".join(map(str, values))
    if kind == 1:
        asks, answer = "sort numbers", ", ".join(map(str, sorted(values)))
        thought = f"The smallest is {min(values)}."
    elif kind == 2:
        asks, answer = "largest", f"The largest number is {max(values)}."
        thought, key = f"I compare {shown}.", f"is {max(values)}"
    elif kind in (0, 3):
        asks, answer = "sort words", ", ".join(sorted(words))
        thought = f"In order: {', '.join(sorted(w[:3] for w in words))}."
    elif kind == 4:
        asks, answer = "count items", f"There are {len(words)} items."
        thought = ", ".join(f"{w} {i + 1}" for i, w in enumerate(words)) + "."
        key = f"are {len(words)} "
    elif kind == 5:
        names = ["first", "second", "third"][: len(words)]
        i = rng.randrange(-1, len(names))
        name = "last" if i < 0 else names[i]
        asks, answer = "pick an item", f"The {name} word is {words[i]}."
        thought, key = f"I look for the {name} word.", f"is {words[i]}"
    elif kind == 6:
        asks, answer = "reverse list", ", ".join(reversed(words))
        thought = f"The last word is {words[-1]}."
    else:
        asks, answer = "join", f"{join_words(words)}."
        thought, key = "I put and before the last word.", join_words(words)
    return [made(rng, held, "list", asks, answer, thought, key or answer, s=shown,
                 n=name if kind == 5 else "")]  # fmt: skip


def _record(rng: Random) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "name": some_name(rng), "age": rng.randrange(5, 90), "city": some_city(rng),
        "color": rng.choice(COLORS), "pet": rng.choice(["cat", "dog", "bird", "fish", "horse",
                                                        "rabbit"]),
        "job": rng.choice(["baker", "doctor", "farmer", "teacher", "painter", "driver"]),
        "year": rng.randrange(1950, 2030), "id": rng.randrange(1, 1000),
        "item": rng.choice(["book", "lamp", "table", "chair", "phone", "clock"]),
        "price": rng.randrange(1, 300),
    }  # fmt: skip
    return {k: fields[k] for k in rng.sample(list(fields), rng.randrange(2, 5))}


def json_objects(rng: Random, held: bool) -> list[Turn]:
    """Read a value from a JSON object, or write one."""
    record = draw(rng, lambda: _record(rng), held)
    shown = json.dumps(record)
    if rng.random() < 0.7:
        field, value = rng.choice(list(record.items()))
        return [made(rng, held, "json", "read json", "The {f} is {v}.", "I look for the key {f}.",
                     "is {v}.", f=field, v=value, j=shown)]  # fmt: skip
    plain = ", ".join(f"{k} {v}" for k, v in record.items())
    thought = f"The keys are {join_words(list(record))}."
    return [made(rng, held, "json", "write json", "{j}", thought, "{j}", exact=True, p=plain,
                 j=shown)]  # fmt: skip
