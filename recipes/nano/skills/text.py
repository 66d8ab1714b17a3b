"""Letters, words, lists and small JSON objects."""

# ruff: noqa: SIM905  word lists read better as text

import json
from functools import cache
from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import draw, join_words, made_word, phrase
from edgekit.recipes.nano.skills.talk import load
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
        (["Spell {w}.", "How do you spell {w}?", "Spell the word {w}.", "Can you spell {w}?",
          "Show the letters of {w}.", "Spell out {w}.", "What are the letters of {w}?",
          "Write {w} letter by letter.", "Give me the spelling of {w}.",
          "Tell me how to spell {w}.", "Letters of {w}?", "How is {w} spelled?",
          "Please spell {w}."],
         f"{spelled}", f"The letters of {w}.", spelled),
        (["How many letters are in {w}?", "How many letters has the word {w}?",
          "Count the letters in {w}.",
          "How long is the word {w}?", "How many letters does {w} have?",
          "Number of letters in {w}?", "Tell me the length of {w}.",
          "What is the length of the word {w}?",
          "Count the letters of {w}.", "How many characters has {w}?",
          "How many letters are there in {w}?", "Letter count of {w}?"],
         f"The word {w} has {len(w)} letters: {spelled}.", f"{numbered}.",
         f"has {len(w)} letters"),
        (["Reverse the word {w}.", "Spell {w} backwards.", "Write {w} backwards.",
          "What is {w} backwards?", "Reverse {w}.", "Turn {w} around.", "Say {w} backwards.",
          "Write the letters of {w} in reverse.", "Spell {w} in reverse.", "Give me {w} backwards.",
          "{w} backwards?", "Flip the word {w}.", "Reverse the letters of {w}.", "Reverse: {w}"],
         f"{spelled} backwards is {'-'.join(w[::-1])}: {w[::-1]}",
         f"I read {spelled} from the end.",
         w[::-1]),
        (["Write {w} in capital letters.", "Make {w} uppercase.", "Uppercase {w}.",
          "Convert {w} to uppercase.", "Put {w} in capitals.", "Write {w} in upper case.",
          "{w} in capitals?", "Capitalize all letters of {w}.", "Give me {w} in capital letters.",
          "Change {w} to capitals.", "Turn {w} into capital letters.", "Write {w} in big letters.",
          "Show {w} in uppercase.", "{w} in uppercase, please."],
         f"{'-'.join(w.upper())}: {w.upper()}", f"{spelled} in capitals.", w.upper()),
        (["What is the first letter of {w}?", "Which letter comes first in {w}?",
          "{w} starts with which letter?",
          "Tell me the first letter of {w}.", "With which letter does {w} start?",
          "What letter does {w} begin with?", "First letter of {w}?",
          "Which letter is first in {w}?",
          "Give me the first letter of {w}.", "What does {w} start with?",
          "What letter starts the word {w}?", "{w} begins with which letter?"],
         f"The first letter of {w} is {w[0]}.", f"{spelled}.", f"is {w[0]}."),
        (["What is the last letter of {w}?", "Which letter comes last in {w}?",
          "{w} ends with which letter?",
          "Tell me the last letter of {w}.", "With which letter does {w} end?",
          "What letter does {w} end with?", "Last letter of {w}?", "Which letter is last in {w}?",
          "Give me the last letter of {w}.", "What does {w} end with?",
          "What letter ends the word {w}?", "What is the final letter of {w}?"],
         f"The last letter of {w} is {w[-1]}.", f"{spelled}.", f"is {w[-1]}."),
        (["Repeat the word {w}.", "Say {w}.", "Repeat after me: {w}", "Please say {w}.",
          "Say the word {w}.", "Repeat: {w}", "Write {w}.", "Copy this word: {w}", "Echo {w}",
          "Say it: {w}", "Write the word {w}.", "Copy {w}.", "Just say {w}."],
         w, f"The user wants me to say {w}.", w),
        (["How many times is {c} in {w}?", "How often does {c} appear in {w}?",
          "Count the letter {c} in {w}.", "How many {c}'s are in {w}?", "How many {c} has {w}?",
          "Number of {c} in {w}?", "Is the letter {c} in {w}?", "Count {c} in {w}.",
          "How many times does {w} contain {c}?", "How many letters {c} are in {w}?",
          "How many {c}s are there in {w}?"],
         f"{spelled} has the letter {c} {w.count(c)} times.", f"{found}.",
         f"letter {c} {w.count(c)} times"),
    ][kind]  # fmt: skip
    quoted = f'"{w}"' if rng.random() < 0.25 else w
    user = phrase(rng, asks, held).format(w=quoted, c=c)
    return [Turn("letters", user, answer, thought, key, exact=kind in (0, 6))]


def lists(rng: Random, held: bool) -> list[Turn]:
    """Sorting, counting, picking and joining short lists."""
    count = rng.randrange(3, 6)
    words = list(dict.fromkeys(_words(rng, count, held)))
    kind = rng.randrange(8)
    if kind in (1, 2):
        values = draw(rng, lambda: tuple(rng.sample(range(1, 100), count)), held)
        shown = ", ".join(map(str, values))
        ordered = ", ".join(map(str, sorted(values)))
        if kind == 1:
            asks = ["Sort these numbers: {s}", "Sort {s}.", "Put these numbers in order: {s}",
                    "Order the numbers {s}.",
                    "Sort the numbers {s} from small to large.", "Sort: {s}",
                    "Arrange {s} in order.", "Put {s} in order.", "Bring {s} into order.",
                    "What is the order of {s}?", "Can you sort {s}?",
                    "List {s} from small to large.", "Please sort these: {s}"]  # fmt: skip
            return [
                Turn(
                    "list",
                    phrase(rng, asks, held).format(s=shown),
                    ordered,
                    f"The smallest is {min(values)}.",
                    ordered,
                )
            ]
        asks = ["What is the largest of {s}?", "Which number is the largest: {s}?",
                "Find the maximum of {s}.",
                "What is the biggest number in {s}?", "Give me the maximum of {s}.",
                "Largest of {s}?", "Which of {s} is the biggest?", "Pick the largest: {s}",
                "Maximum of {s}?",
                "Which is the greatest number: {s}?", "Tell me the largest of {s}.",
                "What is the highest of {s}?"]  # fmt: skip
        answer = f"The largest number is {max(values)}."
        return [
            Turn(
                "list",
                phrase(rng, asks, held).format(s=shown),
                answer,
                f"I compare {shown}.",
                f"is {max(values)}",
            )
        ]
    shown = ", ".join(words)
    if kind in (0, 3):
        ordered = ", ".join(sorted(words))
        asks = ["Sort these words: {s}", "Sort alphabetically: {s}",
                "Put these words in alphabetical order: {s}",
                "Order these words: {s}", "Sort the words {s} by the alphabet.", "Sort: {s}",
                "Arrange these words by alphabet: {s}", "Alphabetical order of {s}?",
                "Put {s} in alphabetical order.",
                "Sort the words {s}.", "Bring these words into alphabetical order: {s}",
                "List {s} alphabetically.", "Order by alphabet: {s}",
                "Can you sort {s}?"]  # fmt: skip
        first = ", ".join(sorted(w[0] for w in words))
        return [
            Turn(
                "list",
                phrase(rng, asks, held).format(s=shown),
                ordered,
                f"The first letters are {first}.",
                ordered,
            )
        ]
    if kind == 4:
        asks = ["How many words are in this list: {s}?", "How many items: {s}?",
                "Count the items: {s}",
                "Count these words: {s}", "How many words are these: {s}?",
                "What is the length of the list {s}?", "Number of items: {s}",
                "How many things are in {s}?", "Count: {s}",
                "How long is this list: {s}?", "How many entries has {s}?",
                "Tell me how many words: {s}"]  # fmt: skip
        answer = f"There are {len(words)} items."
        numbered = ", ".join(f"{w} {i + 1}" for i, w in enumerate(words))
        return [
            Turn(
                "list",
                phrase(rng, asks, held).format(s=shown),
                answer,
                f"{numbered}.",
                f"are {len(words)} ",
            )
        ]
    if kind == 5:
        i, name = rng.choice([(0, "first"), (1, "second"), (2, "third"), (-1, "last")])
        i = min(i, len(words) - 1)
        name = name if i in (-1, {"first": 0, "second": 1, "third": 2}.get(name, 9)) else "last"
        asks = ["What is the {n} word of {s}?", "Which word is {n} in this list: {s}?",
                "Give me the {n} item of {s}.",
                "What is the {n} item: {s}?", "Tell me the {n} word in {s}.",
                "{s}: what is the {n} word?", "Pick the {n} word: {s}",
                "Find the {n} word of {s}.", "Which is the {n} item of {s}?",
                "The {n} word of {s}?", "Say the {n} word: {s}",
                "From {s}, take the {n} word."]  # fmt: skip
        answer = f"The {name} word is {words[i]}."
        return [
            Turn(
                "list",
                phrase(rng, asks, held).format(s=shown, n=name),
                answer,
                f"I look for the {name} word.",
                f"is {words[i]}",
            )
        ]
    if kind == 6:
        backwards = ", ".join(reversed(words))
        asks = ["Reverse this list: {s}", "Reverse the order of {s}.",
                "Write this list backwards: {s}",
                "Turn this list around: {s}", "Reverse these words: {s}", "Reverse: {s}",
                "{s} in reverse order?", "Write {s} in reverse order.", "List {s} backwards.",
                "Flip this list: {s}",
                "Turn the order around: {s}", "Say this list backwards: {s}",
                "Put {s} in reverse order.", "Reverse the words {s}."]  # fmt: skip
        return [
            Turn(
                "list",
                phrase(rng, asks, held).format(s=shown),
                backwards,
                f"The last word is {words[-1]}.",
                backwards,
            )
        ]
    asks = ["Make a sentence list of {s}.", "Join these words with and: {s}",
            "Write {s} as a phrase with and.",
            "Join {s} into a phrase.", "Combine these words with and: {s}",
            "Put and before the last word: {s}", "Connect {s} with and.", "Join with and: {s}",
            "Join these words: {s}",
            "Make a phrase of {s}.", "Link {s} with and.", "Combine {s} into a phrase.",
            "Combine: {s}", "Join the words {s} with and."]  # fmt: skip
    joined = join_words(words)
    return [
        Turn(
            "list",
            phrase(rng, asks, held).format(s=shown),
            f"{joined}.",
            "I put and before the last word.",
            joined,
        )
    ]


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
        asks = ["What is the {f} in {j}?", "Read the {f} from this JSON: {j}",
                "{j} What is the {f}?", "Extract the {f}: {j}",
                "Give me the {f} from {j}", "In this JSON, what is the {f}? {j}",
                "Which {f} is in {j}?",
                "Get the {f} from {j}", "What value has {f} in {j}?",
                "Find the {f} in this JSON: {j}"]  # fmt: skip
        user = phrase(rng, asks, held).format(f=field, j=shown)
        return [
            Turn(
                "json",
                user,
                f"The {field} is {value}.",
                f"I look for the key {field}.",
                f"is {value}.",
            )
        ]
    plain = ", ".join(f"{k} {v}" for k, v in record.items())
    asks = [
        "Write this as JSON: {p}",
        "Make a JSON object: {p}",
        "Convert to JSON: {p}",
        "JSON for {p}",
        "Turn this into JSON: {p}",
    ]
    user = phrase(rng, asks, held).format(p=plain)
    return [Turn("json", user, shown, f"The keys are {join_words(list(record))}.", shown,
                 exact=True)]  # fmt: skip
