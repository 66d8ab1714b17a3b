"""Countries, chemical elements and the meaning of words."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import article, named, phrase, upper_first
from edgekit.recipes.nano.skills.talk import load

FACTS = Path(__file__).parents[1] / "facts.json"

COUNTRY: dict[str, tuple[list[str], list[str]]] = {
    "capital": (
        ["What is the capital of {c}?", "What's the capital of {c}?", "Name the capital of {c}.",
         "Which city is the capital of {c}?", "Tell me the capital of {c}.", "capital of {c}?",
         "Do you know the capital of {c}?", "What is the capital city of {c}?",
         "Can you tell me the capital of {c}?", "{c}: what is its capital?",
         "I need the capital of {c}.", "What city is {c}'s capital?", "Give me the capital of {c}.",
         "the capital of {c} is what?", "What is the name of the capital of {c}?"],
        ["The capital of {c} is {v}.", "{v} is the capital of {c}."],
    ),
    "currency": (
        ["What is the currency of {c}?", "Which currency does {c} use?",
         "What money do people use in {c}?",
         "What currency is used in {c}?", "Tell me the currency of {c}.", "currency of {c}?",
         "How do people pay in {c}?", "What is the money of {c} called?",
         "Name the currency of {c}.",
         "Which money is used in {c}?"],
        ["The currency of {c} is the {v}.", "People in {c} pay with the {v}."],
    ),
    "continent": (
        ["On which continent is {c}?", "Which continent is {c} in?", "Where is {c}?",
         "Where is {c} located?",
         "What continent is {c} on?", "In which part of the world is {c}?", "Tell me where {c} is.",
         "{c} is on which continent?", "On what continent can I find {c}?",
         "Where can I find {c}?"],
        ["{c} is in {v}.", "{c} is a country in {v}."],
    ),
    "language": (
        ["Which language do people speak in {c}?", "What language is spoken in {c}?",
         "What is the language of {c}?", "What do people speak in {c}?",
         "Tell me the language of {c}.",
         "Which language is spoken in {c}?"],
        ["People in {c} speak {v}.", "The language of {c} is {v}."],
    ),
}  # fmt: skip
REVERSE = ["Which country has the capital {v}?", "{v} is the capital of which country?",
           "Of which country is {v} the capital?", "What country is {v} the capital of?",
           "Which country has {v} as its capital?"]  # fmt: skip
ABOUT = ["Tell me about {c}.", "What do you know about {c}?", "Describe {c}.", "What is {c}?",
         "Say something about {c}."]  # fmt: skip
THE = {"Netherlands", "Philippines", "United Arab Emirates", "United Kingdom", "United States"}

ELEMENT: dict[str, tuple[list[str], list[str]]] = {
    "symbol": (
        ["What is the symbol of {e}?", "What is the chemical symbol for {e}?", "Symbol of {e}?",
         "Which symbol does {e} have?", "Tell me the symbol of {e}.", "What's the symbol for {e}?",
         "Give me the chemical symbol of {e}."],
        ["The symbol of {e} is {v}.", "{E} has the symbol {v}."],
    ),
    "number": (
        ["What is the atomic number of {e}?", "Which atomic number has {e}?",
         "Atomic number of {e}?",
         "How many protons does {e} have?", "Tell me the atomic number of {e}.",
         "What number has {e} in the periodic table?"],
        ["The atomic number of {e} is {v}.", "{E} has the atomic number {v}."],
    ),
    "family": (
        ["What kind of element is {e}?", "Is {e} a metal?", "To which family does {e} belong?",
         "What type of element is {e}?", "Which group of elements does {e} belong to?"],
        ["{E} is {a}.", "{E} is an element of the type {v}."],
    ),
}  # fmt: skip
BY_SYMBOL = ["Which element has the symbol {v}?", "What element is {v}?",
             "What does the symbol {v} mean?",
             "{v} is the symbol of which element?",
             "Name the element with the symbol {v}."]  # fmt: skip
BY_NUMBER = ["Which element has the atomic number {v}?", "What is element number {v}?",
             "Name element {v}.", "What is the element with {v} protons?",
             "Which element is number {v} in the periodic table?"]  # fmt: skip
ABOUT_ELEMENT = ["Tell me about {e}.", "What is {e}?", "Describe {e}.",
                 "What do you know about {e}?",
                 "Explain what {e} is."]  # fmt: skip

DEFINE = {
    "noun": ["What is {a}?", "What does the word {w} mean?", "Define {w}.", "What does {w} mean?",
             "What is the meaning of {w}?", "Define the word {w}.", "Explain the word {w}.",
             "Tell me what {a} is.", "What's {a}?", "Give me a definition of {w}.",
             "what is {a}", "Do you know what {a} is?", "meaning of {w}?", "Describe {a}.",
             "Can you define {w}?", "Definition of {w}?", "What is the definition of {w}?",
             "I do not know the word {w}.", "What is meant by {w}?",
             "Give the meaning of {w}.", "Please define {w}.", "Could you define {w}?",
             "How do you define {w}?", "Say what {w} means.", "{w}: what does it mean?",
             "Tell me the meaning of {w}."],
    "verb": ["What does the verb {w} mean?", "What does it mean to {w}?", "What does {w} mean?",
             "Define the verb {w}.", "What is the meaning of to {w}?", "Explain the verb {w}."],
    "adj": ["What does the adjective {w} mean?", "What does {w} mean?", "Define {w}.",
            "Explain the word {w}.", "What is the meaning of {w}?", "What does the word {w} mean?"],
}  # fmt: skip
WHICH = ["Which word means {d}?", "What is the word for {d}?", "What do we call {d}?", "Name {d}.",
         "Find the word: {d}.",
    "What is {d} called?", "How do you call {d}?", "What is the name for {d}?",
         "Guess the word: {d}", "What am I? I am {d}.", "Give me the word for {d}.",
         "It is {d}. What is it?"]  # fmt: skip


@cache
def facts() -> dict[str, Any]:
    """facts.json."""
    data: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return data


def _named(country: str) -> str:
    return f"the {country}" if country in THE else country


def _country_turn(rng: Random, row: dict[str, str], fact: str, ask: str) -> Turn:
    name = _named(row["name"])
    user = ask.format(c=name)
    answer = upper_first(rng.choice(COUNTRY[fact][1]).format(c=name, v=row[fact]))
    thought = f"The user asks for the {fact} of {name}: {row[fact]}."
    return Turn(fact, upper_first(user), answer, thought, row[fact])


def countries(rng: Random, held: bool) -> list[Turn]:
    """Capital, currency, continent and language, with follow-up questions."""
    rows: list[dict[str, str]] = facts()["countries"]
    row, other = rng.sample(rows, 2)
    known = [f for f in COUNTRY if f in row]
    fact = "capital" if rng.random() < 0.4 else rng.choice(known)
    roll = rng.random()
    if roll < 0.1:
        name = _named(row["name"])
        user = phrase(rng, REVERSE, held).format(v=row["capital"])
        answer = f"{row['capital']} is the capital of {name}."
        return [Turn("capital", user, answer, f"{row['capital']}: that is {name}.", row["name"])]
    if roll < 0.2 and not held:
        name = _named(row["name"])
        answer = f"{upper_first(name)} is a country in {row['continent']}."
        answer += f" Its capital is {row['capital']}"
        answer += f", and its currency is the {row['currency']}." if "currency" in row else "."
        return [
            Turn(
                "country",
                phrase(rng, ABOUT, False).format(c=name),
                answer,
                f"This is about {name}.",
            )
        ]
    if roll < 0.28:
        name, city = _named(row["name"]), rng.choice([row["capital"], other["capital"]])
        user = phrase(rng, [f"Is {city} the capital of {name}?",
                            f"{city} is the capital of {name}, right?",
                            f"Is it true that {city} is the capital of {name}?",
                            f"Is the capital of {name} {city}?",
                            f"Is {city} {name}'s capital?"], held)  # fmt: skip
        right = city == row["capital"]
        answer = (
            f"Yes, {city} is the capital of {name}."
            if right
            else f"No, the capital of {name} is {row['capital']}."
        )
        return [
            Turn("capital", user, answer, f"The capital of {name} is {row['capital']}.", answer)
        ]
    turns = [_country_turn(rng, row, fact, phrase(rng, COUNTRY[fact][0], held))]
    if roll > 0.6:
        if rng.random() < 0.5 and fact in other:
            ask = rng.choice(
                ["And {c}?", "What about {c}?", "And of {c}?", "And for {c}?", "How about {c}?"]
            )
            turns.append(_country_turn(rng, other, fact, ask))
        else:
            fact = rng.choice(known)
            asks = {
                "capital": "And its capital?|What is its capital?|Which city is its capital?",
                "currency": "And its currency?|What is its currency?"
                "|Which currency do they use there?",
                "continent": "And where is it?|On which continent is it?|Where is that?",
                "language": "And its language?|What do they speak there?"
                "|Which language do they speak?",
            }
            turns.append(_country_turn(rng, row, fact, rng.choice(asks[fact].split("|"))))
    return turns  # fmt: skip


def elements(rng: Random, held: bool) -> list[Turn]:
    """Symbols, atomic numbers and families."""
    rows: list[dict[str, Any]] = facts()["elements"]
    # Everyday elements come up more often.
    row = rng.choice(rows[:36] + [rows[i] for i in (46, 49, 52, 77, 78, 79, 81, 91)]) \
        if rng.random() < 0.6 else rng.choice(rows)  # fmt: skip
    name, number = row["name"], str(row["number"])
    roll = rng.random()
    if roll < 0.15:
        user = phrase(rng, BY_SYMBOL, held).format(v=row["symbol"])
        answer = f"{row['symbol']} is the symbol of {name}."
        return [Turn("element", user, answer, f"{row['symbol']} stands for {name}.", name)]
    if roll < 0.27:
        user = phrase(rng, BY_NUMBER, held).format(v=number)
        answer = f"Element number {number} is {name}."
        return [Turn("element", user, answer, f"Number {number} is {name}.", name)]
    family = article(row["family"])
    if roll < 0.42 and not held:
        answer = f"{upper_first(name)} is {family} with the symbol {row['symbol']}"
        answer += f" and the atomic number {number}."
        return [
            Turn(
                "element",
                phrase(rng, ABOUT_ELEMENT, False).format(e=name),
                answer,
                f"This is about {name}.",
            )
        ]
    fact = rng.choice(list(ELEMENT))
    asks, answers = ELEMENT[fact]
    user = phrase(rng, asks, held).format(e=name)
    value = str(row[fact])
    answer = rng.choice(answers).format(e=name, E=upper_first(name), v=value, a=family)
    word = {"number": "atomic number", "family": "type"}.get(fact, fact)
    return [Turn("element", user, answer, f"The {word} of {name} is {value}.", value)]


def things(rng: Random, held: bool) -> list[Turn]:
    """Everyday nouns."""
    word, definition = rng.choice(list(load("topics")["things"].items()))
    noun = named(word)
    if rng.random() < 0.12:
        user = phrase(rng, WHICH, held).format(d=definition)
        return [Turn("thing", user, f"That is {noun}.", f"This describes {noun}.", word)]
    user = phrase(rng, DEFINE["noun"], held).format(w=word, a=noun)
    answer = f"{upper_first(noun)} is {definition}."
    return [
        Turn(
            "thing", upper_first(user), answer, f"The user asks about the word {word}.", definition
        )
    ]


def words(rng: Random, held: bool) -> list[Turn]:
    """Dictionary words, some of which nano does not know."""
    if not held and rng.random() < 0.15:
        word = rng.choice(facts()["rare"])
        user = phrase(rng, DEFINE["noun"], False).format(w=word, a=article(word))
        answer = rng.choice(["I do not know the word {w}.",
                             "Sorry, I have not learned the word {w}.",
                             "I do not know what {w} means. I am a small model."])  # fmt: skip
        return [
            Turn(
                "unknown",
                upper_first(user),
                answer.format(w=word),
                f"I do not know the word {word}.",
            )
        ]
    part = rng.choice(["noun", "noun", "noun", "verb", "adj"])
    word, definition = rng.choice(facts()["words"][part])
    user = phrase(rng, DEFINE[part], held).format(w=word, a=article(word))
    lead = {"noun": "{w} means: {d}.", "verb": "To {w} means to {d}.", "adj": "{w} means {d}."}[
        part
    ]
    if part == "verb" and definition.startswith("to "):
        definition = definition[3:]
    answer = upper_first(lead.format(w=word, d=definition))
    return [
        Turn("word", upper_first(user), answer, f"The user asks about the word {word}.", definition)
    ]
