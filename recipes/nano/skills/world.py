"""Countries, chemical elements and the meaning of words."""

import json
from functools import cache
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import (
    NANO,
    Phrasings,
    article,
    ask,
    load,
    made,
    made_word,
    named,
    phrasings,
    upper_first,
)

# answers by fact; the questions have the fact's name in phrasings.toml
COUNTRY = {
    "capital": ["The capital of {c} is {v}.", "{v} is the capital of {c}."],
    "currency": ["The currency of {c} is the {v}.", "People in {c} pay with the {v}."],
    "continent": ["{c} is in {v}.", "{c} is a country in {v}."],
    "language": ["People in {c} speak {v}.", "The language of {c} is {v}."],
}
THE = {"Netherlands", "Philippines", "United Arab Emirates", "United Kingdom", "United States"}

ELEMENT = {
    "symbol": ["The symbol of {e} is {v}.", "{E} has the symbol {v}."],
    "number": ["The atomic number of {e} is {v}.", "{E} has the atomic number {v}."],
    "family": ["{E} is {a}.", "{E} is an element of the type {v}."],
}
NO_WORD = ["I do not know the word {w}.", "Sorry, I have not learned the word {w}.",
           "I do not know what {w} means. I am a small model."]  # fmt: skip


@cache
def facts() -> dict[str, Any]:
    """facts.json."""
    data: dict[str, Any] = json.loads((NANO / "facts.json").read_text(encoding="utf-8"))
    return data


@cache
def dictionary() -> dict[str, list[tuple[str, str]]]:
    """(word, definition) by part of speech; every word has one meaning in all of nano's texts."""
    topics = load("topics")
    taken = {*topics["things"], *(subject.split(" ")[-1] for subject in topics["topics"])}
    taken |= {row["name"] for row in facts()["elements"]}
    kept: dict[str, list[tuple[str, str]]] = {}
    for part in ("noun", "adj", "verb"):
        kept[part] = [(w, d) for w, d in facts()["words"][part] if w not in taken]
        taken |= {w for w, _ in kept[part]}
    return kept


@cache
def known_names() -> frozenset[str]:
    """Lower-case names that nano knows something about."""
    names = {row["name"].lower() for row in facts()["countries"] + facts()["elements"]}
    words = {w for part in facts()["words"].values() for w, _ in part}
    return frozenset(names | words | set(load("topics")["things"]) | set(facts()["plain"]))


def lookalike(rng: Random, name: str) -> str:
    """A name that resembles a known one and means nothing: 'Francia' -> 'Trancia', 'Franosia'."""
    cut = rng.randrange(1, len(name))
    for _ in range(20):
        other = rng.choice([
            name[:cut] + made_word(rng)[:3] + name[cut + rng.randrange(3) :],
            made_word(rng)[: rng.randrange(2, 5)] + name[cut:],
            name[:cut] + made_word(rng),
        ])  # fmt: skip
        if other.lower() not in known_names() and other != name and len(other) > 3:
            return other
    return made_word(rng) + "ia"


def country_name(country: str) -> str:
    """The country as a sentence uses it: 'the Netherlands'."""
    return f"the {country}" if country in THE else country


def _country_turn(rng: Random, row: dict[str, str], fact: str, asks: str, held: bool) -> Turn:
    name = country_name(row["name"])
    user = ask(rng, asks, held, c=name)
    answer = upper_first(rng.choice(COUNTRY[fact]).format(c=name, v=row[fact]))
    thought = f"The user asks for the {fact} of {name}: {row[fact]}."
    return Turn(fact, user, answer, thought, row[fact])


def countries(rng: Random, held: bool) -> list[Turn]:
    """Capital, currency, continent and language, with follow-up questions."""
    rows: list[dict[str, str]] = facts()["countries"]
    row, other = rng.sample(rows, 2)
    name = country_name(row["name"])
    known = [f for f in COUNTRY if f in row]
    fact = "capital" if rng.random() < 0.4 else rng.choice(known)
    roll = rng.random()
    if roll < 0.1:
        return [made(rng, held, "capital", "country of a capital", "{v} is the capital of {c}.",
                     "{v}: that is {c}.", row["name"], v=row["capital"], c=name)]  # fmt: skip
    if roll < 0.2 and not held:
        answer = f"{upper_first(name)} is a country in {row['continent']}."
        answer += f" Its capital is {row['capital']}"
        answer += f", and its currency is the {row['currency']}." if "currency" in row else "."
        return [made(rng, held, "country", "about a country", answer, "This is about {c}.", "",
                     c=name)]  # fmt: skip
    if roll < 0.32:
        city = rng.choice([row["capital"], other["capital"]])
        right = city == row["capital"]
        answer = f"Yes, {city} is" if right else f"No, the capital of {name} is {row['capital']}."
        answer = f"{answer} the capital of {name}." if right else answer
        thought = f"The capital of {name} is {row['capital']}."
        return [made(rng, held, "capital", "is capital", answer, thought, answer, c=name,
                     city=city)]  # fmt: skip
    turns = [_country_turn(rng, row, fact, fact, held)]
    if roll > 0.6:
        if rng.random() < 0.5 and fact in other:
            turns.append(_country_turn(rng, other, fact, "same of another country", held))
        else:
            fact = rng.choice(known)
            turns.append(_country_turn(rng, row, fact, f"its {fact}", held))
    return turns


def elements(rng: Random, held: bool) -> list[Turn]:
    """Symbols, atomic numbers and families."""
    rows: list[dict[str, Any]] = facts()["elements"]
    # Everyday elements come up more often.
    row = rng.choice(rows[:36] + [rows[i] for i in (46, 49, 52, 77, 78, 79, 81, 91)]) \
        if rng.random() < 0.6 else rng.choice(rows)  # fmt: skip
    name, symbol, number = row["name"], row["symbol"], str(row["number"])
    family = article(row["family"])
    words = {"e": name, "E": upper_first(name), "a": family}
    roll = rng.random()
    if roll < 0.15:
        return [made(rng, held, "element", "by symbol", "{v} is the symbol of {e}.",
                     "{v} stands for {e}.", name, v=symbol, **words)]  # fmt: skip
    if roll < 0.27:
        return [made(rng, held, "element", "by number", "Element number {v} is {e}.",
                     "Number {v} is {e}.", name, v=number, **words)]  # fmt: skip
    if roll < 0.42 and not held:
        answer = f"{{E}} is {{a}} with the symbol {symbol} and the atomic number {number}."
        return [made(rng, held, "element", "about element", answer, "This is about {e}.", "",
                     **words)]  # fmt: skip
    fact = rng.choice(list(ELEMENT))
    asks = "atomic number" if fact == "number" else fact
    thought = f"The {'type' if fact == 'family' else asks} of {{e}} is {{v}}."
    return [made(rng, held, "element", asks, rng.choice(ELEMENT[fact]), thought, "{v}",
                 v=str(row[fact]), **words)]  # fmt: skip


@cache
def definitions(part: str) -> Phrasings:
    """Ways to ask for the meaning of a noun, a verb or an adj(ective)."""
    own = phrasings(part)
    return {"ask": own["ask"] + phrasings("meaning")["ask"], "held": own["held"]}


def _define(
    rng: Random, held: bool, skill: str, part: str, word: str, answer: str, key: str
) -> Turn:
    noun = named(word) if part == "noun" else article(word)
    return made(rng, held, skill, definitions(part), upper_first(answer),
                "The user asks about the word {w}.", key, w=word, a=noun)  # fmt: skip


def things(rng: Random, held: bool) -> list[Turn]:
    """Everyday nouns."""
    word, definition = rng.choice(list(load("topics")["things"].items()))
    noun = named(word)
    if rng.random() < 0.16:
        return [made(rng, held, "thing", "which word", "That is {a}.", "This describes {a}.", word,
                     d=definition, a=noun)]  # fmt: skip
    return [_define(rng, held, "thing", "noun", word, f"{noun} is {definition}.", definition)]


def words(rng: Random, held: bool) -> list[Turn]:
    """Dictionary words, some of which nano does not know."""
    if not held and rng.random() < 0.18:
        roll = rng.random()
        word = rng.choice(facts()["rare"]) if roll < 0.6 else made_word(rng)
        if roll > 0.8:
            word = lookalike(rng, rng.choice(facts()["words"]["noun"])[0])
        answers = [a.format(w=word) for a in NO_WORD]
        user = ask(
            rng, definitions(rng.choice(["noun", "verb", "adj"])), False, w=word, a=article(word)
        )
        thought = f"I do not know the word {word}."
        return [Turn("unknown", user, rng.choice(answers), thought, OR.join(answers))]
    part = rng.choice(["noun", "noun", "noun", "verb", "adj"])
    word, definition = rng.choice(dictionary()[part])
    definition = definition.removeprefix("to ") if part == "verb" else definition
    lead = {"noun": "{w} means: {d}.", "verb": "To {w} means to {d}.", "adj": "{w} means {d}."}
    answer = lead[part].format(w=word, d=definition)
    return [_define(rng, held, "word", part, word, answer, definition)]
