"""Countries, chemical elements and the meaning of words."""

import json
from functools import cache
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import (
    NANO,
    article,
    ask,
    load,
    made,
    made_word,
    named,
    upper_first,
)

COUNTRY: dict[str, tuple[list[str], list[str]]] = {
    "capital": (
        ["What is the capital of {c}?", "What is the capital of {c}?", "Name the capital of {c}.",
         "Which city is the capital of {c}?", "Tell me the capital of {c}.", "capital of {c}?",
         "What is the capital city of {c}?", "{c}: what is its capital?", "{c}, capital?",
         "What city is {c}'s capital?", "Give me the capital of {c}.", "capital {c}",
         "What is the name of the capital of {c}?", "{c}'s capital?", "{c} capital city",
         "{c} has which capital?", "What is the main city of {c} called, the capital?",
         "Where is the government of {c}, in which capital?", "I am looking at {c}. Its capital?",
         "Which capital belongs to {c}?", "In {c}, which city is the capital?",
         "Which town is the capital of {c}?", "How is the capital of {c} called?"],
        ["The capital of {c} is {v}.", "{v} is the capital of {c}."],
    ),
    "currency": (
        ["What is the currency of {c}?", "Which currency does {c} use?", "{c} currency",
         "What money do people use in {c}?", "What currency is used in {c}?", "{c}'s currency?",
         "Tell me the currency of {c}.", "currency of {c}?", "How do people pay in {c}?",
         "What is the money of {c} called?", "Name the currency of {c}.", "money in {c}?",
         "Which money is used in {c}?", "What kind of money do people have in {c}?",
         "Which currency do I need in {c}?", "Which coins and notes are used in {c}?",
         "I travel to {c}. Which currency do I need?", "What is the money in {c}?",
         "In {c}, what is the currency?", "Which currency is valid in {c}?",
         "With which money can I pay in {c}?", "{c}: which currency?"],
        ["The currency of {c} is the {v}.", "People in {c} pay with the {v}."],
    ),
    "continent": (
        ["On which continent is {c}?", "Which continent is {c} in?", "Where is {c}?",
         "Where is {c} located?", "What continent is {c} on?", "{c}: which continent?",
         "In which part of the world is {c}?", "Tell me where {c} is.", "{c} is where?",
         "{c} is on which continent?", "On what continent can I find {c}?", "{c} continent",
         "Where can I find {c}?", "Which part of the world is {c} in?", "Where does {c} lie?",
         "What is the continent of {c}?", "In which continent does {c} lie?", "where is {c}",
         "On which continent does {c} lie?", "Is {c} in Europe, Asia, Africa or America?"],
        ["{c} is in {v}.", "{c} is a country in {v}."],
    ),
    "language": (
        ["Which language do people speak in {c}?", "What language is spoken in {c}?",
         "What is the language of {c}?", "What do people speak in {c}?", "language of {c}?",
         "Tell me the language of {c}.", "Which language is spoken in {c}?", "{c} language",
         "What do they speak in {c}?", "Which language do I need in {c}?", "{c}: which language?",
         "How do people talk in {c}, in which language?", "Name the language of {c}.",
         "What is the main language in {c}?", "In {c}, which language do people speak?",
         "What language do the people of {c} speak?", "Which language should I learn for {c}?"],
        ["People in {c} speak {v}.", "The language of {c} is {v}."],
    ),
}  # fmt: skip
REVERSE = ["Which country has the capital {v}?", "{v} is the capital of which country?",
           "Of which country is {v} the capital?", "What country is {v} the capital of?",
           "Which country has {v} as its capital?", "{v} is the capital of?",
           "In which country is {v} the capital?", "{v} is which country's capital?",
           "Name the country with the capital {v}.",
           "To which country does the capital {v} belong?",
           "The capital {v} belongs to which country?"]  # fmt: skip
ABOUT = ["Tell me about {c}.", "What do you know about {c}?", "Describe {c}.", "What is {c}?",
         "Say something about {c}.", "Give me some facts about {c}.",
         "Tell me something about {c}.",
         "I want to learn about {c}.", "Talk about {c}."]  # fmt: skip
IS_CAPITAL = ["Is {city} the capital of {c}?", "{city} is the capital of {c}, right?",
              "Is it true that {city} is the capital of {c}?", "Is the capital of {c} {city}?",
              "The capital of {c} is {city}, correct?", "{c}'s capital is {city}, isn't it?",
              "Does {c} have the capital {city}?",
              "I think the capital of {c} is {city}.",
              "Is it {city}, the capital of {c}?", "Would {city} be the capital of {c}?",
              "Has {c} the capital {city}?", "Is {c}'s capital city {city}?",
              "{c}'s capital: {city}?",
              "{city} is {c}'s capital city, is it not?", "Is {city} the main city of {c}?",
              "Is {city} in {c} the capital?", "{city}, the capital of {c}?", "{c}: is it {city}?",
              "Is the city {city} {c}'s capital city?", "Do they govern {c} from {city}?",
              "Am I right that {c}'s capital is {city}?",
              "{city} is the capital of {c}. True?"]  # fmt: skip
AGAIN = ["And {c}?", "What about {c}?", "And of {c}?", "And for {c}?", "How about {c}?",
         "Now {c}.", "{c}?", "The same for {c}?", "And what about {c}?", "Then {c}?"]  # fmt: skip
ITS = {
    "capital": ["And its capital?", "What is its capital?", "Which city is its capital?",
                "And the capital?", "What is the capital there?", "Its capital?"],
    "currency": ["And its currency?", "What is its currency?", "And the money?",
                 "Which currency do they use there?", "And the currency?",
                 "How do they pay there?"],
    "continent": ["And where is it?", "On which continent is it?", "Where is that?",
                  "And the continent?", "Where is this country?"],
    "language": ["And its language?", "What do they speak there?", "And the language?",
                 "Which language do they speak?", "What is spoken there?"],
}  # fmt: skip
THE = {"Netherlands", "Philippines", "United Arab Emirates", "United Kingdom", "United States"}

ELEMENT: dict[str, tuple[list[str], list[str]]] = {
    "symbol": (
        ["What is the symbol of {e}?", "What is the chemical symbol for {e}?", "Symbol of {e}?",
         "Which symbol does {e} have?", "Tell me the symbol of {e}.", "What's the symbol for {e}?",
         "Give me the chemical symbol of {e}.", "What is the symbol for {e}?", "{e} symbol",
         "How do chemists write {e}?", "What symbol has {e}?", "Which sign does {e} have?",
         "What is the short form of {e} in chemistry?", "In chemistry, what is {e} written as?",
         "{e}: which symbol?", "What is the sign of {e} in the periodic table?",
         "Which abbreviation does {e} have in the periodic table?", "symbol for {e}",
         "What do I write for {e} in a formula?", "What is the abbreviation of {e}?"],
        ["The symbol of {e} is {v}.", "{E} has the symbol {v}."],
    ),
    "number": (
        ["What is the atomic number of {e}?", "Which atomic number has {e}?",
         "Atomic number of {e}?", "How many protons does {e} have?", "{e} atomic number",
         "Tell me the atomic number of {e}.", "What number has {e} in the periodic table?",
         "What is the number of {e} in the periodic table?", "How many protons are in {e}?",
         "Which number is {e}?", "Give me the atomic number of {e}.", "{e}: how many protons?",
         "What is the number of protons of {e}?", "Which atomic number does {e} have?",
         "What place does {e} have in the periodic table?", "{e} is element number what?",
         "How many protons has an atom of {e}?", "Where is {e} in the periodic table?"],
        ["The atomic number of {e} is {v}.", "{E} has the atomic number {v}."],
    ),
    "family": (
        ["What kind of element is {e}?", "Is {e} a metal?", "To which family does {e} belong?",
         "What type of element is {e}?", "Which group of elements does {e} belong to?",
         "Is {e} a metal or a gas?", "What family is {e} in?", "Which family has {e}?",
         "{e} belongs to which family?", "What class of element is {e}?", "{e} type",
         "What kind of metal or gas is {e}?", "Which type of element is {e}?",
         "What is the family of {e}?", "Name the family of {e}.", "Is {e} a noble gas?"],
        ["{E} is {a}.", "{E} is an element of the type {v}."],
    ),
}  # fmt: skip
BY_SYMBOL = ["Which element has the symbol {v}?", "What element is {v}?", "{v} is which element?",
             "What does the symbol {v} mean?", "{v} is the symbol of which element?",
             "Name the element with the symbol {v}.", "What is {v} in chemistry?",
             "Which element is written {v}?", "{v} stands for which element?",
             "In the periodic table, what is {v}?", "Which element is {v}?",
             "The chemical symbol {v} is for which element?", "element {v}",
             "What is the name of the element {v}?", "What does {v} mean in chemistry?",
             "Which element do chemists write as {v}?"]  # fmt: skip
BY_NUMBER = ["Which element has the atomic number {v}?", "What is element number {v}?",
             "Name element {v}.", "What is the element with {v} protons?", "element {v}?",
             "Which element is number {v} in the periodic table?", "What is element {v}?",
             "Atomic number {v} is which element?", "Number {v} in the periodic table?",
             "Which element comes at number {v}?", "Which element is at place {v}?",
             "{v} protons: which element is that?", "Element number {v}, please.",
             "What is the name of element number {v}?"]  # fmt: skip
ABOUT_ELEMENT = ["Tell me about {e}.", "What is {e}?", "Describe {e}.", "Explain what {e} is.",
                 "What do you know about {e}?", "Give me some facts about {e}.", "{e}?",
                 "What can you say about {e}?", "Tell me something about {e}."]  # fmt: skip

MEANS = ["What does {w} mean?", "What does {w} mean?", "Define {w}.", "What is the meaning of {w}?",
         "Explain {w}.", "meaning of {w}?", "Definition of {w}?", "{w}: what does it mean?",
         "What is the definition of {w}?", "Give me a definition of {w}.", "define {w}",
         "Explain the word {w}.", "Define the word {w}.", "What does the word {w} mean?",
         "I do not know the word {w}.", "Give the meaning of {w}.", "How do you define {w}?",
         "Say what {w} means.", "The meaning of {w}?", "What is the sense of the word {w}?",
         "I read the word {w}. What does it mean?", "{w} means what?", "{w} meaning",
         "What does it mean when I read {w}?", "Help me with the word {w}.", "{w} definition",
         "How would you explain {w}?", "How can I explain {w}?", "What do people mean with {w}?",
         "What does a dictionary say about {w}?", "Which meaning has {w}?", "Describe {w}.",
         "I do not understand {w}.", "What could {w} mean?", "I heard the word {w}.",
         "Translate {w} into simple words.", "What stands behind the word {w}?",
         "In simple words, what does {w} mean?", "Explain {w} to a child."]  # fmt: skip
DEFINE = {
    "noun": ["What is {a}?", "What is {a}?", "Tell me what {a} is.", "What's {a}?", "what is {a}",
             "Do you know what {a} is?", "Describe {a}.", "Explain {a}.", "{a}?", "{a} is what?",
             "What kind of thing is {a}?", "Can you describe {a}?", "What do you call {a}?",
             "What do people call {a}?", "{a}, what is that?", "Say what {a} is.",
             "What do we understand by {a}?", "How can I describe {a}?",
             "What sort of thing is {a}?",
             *MEANS],
    "verb": ["What does the verb {w} mean?", "What does it mean to {w}?", "Define to {w}.",
             "Define the verb {w}.", "What is the meaning of to {w}?", "Explain the verb {w}.",
             "What is the meaning of the verb {w}?", "to {w} means what?", "to {w}: what is that?",
             "What do you do when you {w}?", "What happens when people {w}?", "verb {w}",
             "If I {w}, what do I do?", "Explain what it means to {w}.",
             "What am I doing if I {w}?",
             "What does somebody do who wants to {w}?", "Tell me the meaning of the verb {w}.",
             "How would you define to {w}?", "Describe what to {w} means.", "What means to {w}?",
             "What does someone mean by to {w}?", "The verb {w}, what does it mean?", *MEANS],
    "adj": ["What does the adjective {w} mean?", "Explain the adjective {w}.", "adjective {w}",
            "What is the meaning of the adjective {w}?", "What does it mean to be {w}?",
            "What does it mean if something is {w}?", "What is a {w} thing?", "Define being {w}.",
            "If a thing is {w}, what does that mean?", "What makes something {w}?",
            "How is something that is {w}?", "When do we call something {w}?",
            "When do people say that a thing is {w}?", "Something is {w}. What does that mean?",
            "What are {w} things like?", "When can I call a thing {w}?", *MEANS],
}  # fmt: skip
WHICH = ["Which word means {d}?", "What is the word for {d}?", "What do we call {d}?", "Name {d}.",
         "Find the word: {d}.", "What is {d} called?", "How do you call {d}?", "Riddle: {d}.",
         "What is the name for {d}?", "Guess the word: {d}", "What am I? I am {d}.",
         "Give me the word for {d}.", "It is {d}. What is it?", "{d}: what is it?",
         "What is this: {d}?", "Which word fits: {d}?", "I forgot the word for {d}.",
         "I am thinking of {d}. What is it?", "The word for {d}?", "{d}. Which word is that?",
         "There is a word for {d}. Which one?", "Which thing is {d}?", "What do people call {d}?",
         "How is {d} called?"]  # fmt: skip
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


def _country_turn(rng: Random, row: dict[str, str], fact: str, asks: list[str], held: bool) -> Turn:
    name = country_name(row["name"])
    user = ask(rng, asks, held, c=name)
    answer = upper_first(rng.choice(COUNTRY[fact][1]).format(c=name, v=row[fact]))
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
        return [made(rng, held, "capital", REVERSE, "{v} is the capital of {c}.",
                     "{v}: that is {c}.", row["name"], v=row["capital"], c=name)]  # fmt: skip
    if roll < 0.2 and not held:
        answer = f"{upper_first(name)} is a country in {row['continent']}."
        answer += f" Its capital is {row['capital']}"
        answer += f", and its currency is the {row['currency']}." if "currency" in row else "."
        return [made(rng, held, "country", ABOUT, answer, "This is about {c}.", "", c=name)]
    if roll < 0.32:
        city = rng.choice([row["capital"], other["capital"]])
        right = city == row["capital"]
        answer = f"Yes, {city} is" if right else f"No, the capital of {name} is {row['capital']}."
        answer = f"{answer} the capital of {name}." if right else answer
        thought = f"The capital of {name} is {row['capital']}."
        return [made(rng, held, "capital", IS_CAPITAL, answer, thought, answer, c=name, city=city)]
    turns = [_country_turn(rng, row, fact, COUNTRY[fact][0], held)]
    if roll > 0.6:
        if rng.random() < 0.5 and fact in other:
            turns.append(_country_turn(rng, other, fact, AGAIN, held))
        else:
            fact = rng.choice(known)
            turns.append(_country_turn(rng, row, fact, ITS[fact], held))
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
        return [made(rng, held, "element", BY_SYMBOL, "{v} is the symbol of {e}.",
                     "{v} stands for {e}.", name, v=symbol, **words)]  # fmt: skip
    if roll < 0.27:
        return [made(rng, held, "element", BY_NUMBER, "Element number {v} is {e}.",
                     "Number {v} is {e}.", name, v=number, **words)]  # fmt: skip
    if roll < 0.42 and not held:
        answer = f"{{E}} is {{a}} with the symbol {symbol} and the atomic number {number}."
        return [made(rng, held, "element", ABOUT_ELEMENT, answer, "This is about {e}.", "",
                     **words)]  # fmt: skip
    fact = rng.choice(list(ELEMENT))
    asks, answers = ELEMENT[fact]
    word = {"number": "atomic number", "family": "type"}.get(fact, fact)
    return [made(rng, held, "element", asks, rng.choice(answers), f"The {word} of {{e}} is {{v}}.",
                 "{v}", v=str(row[fact]), **words)]  # fmt: skip


def _define(
    rng: Random, held: bool, skill: str, part: str, word: str, answer: str, key: str
) -> Turn:
    noun = named(word) if part == "noun" else article(word)
    return made(rng, held, skill, DEFINE[part], upper_first(answer),
                "The user asks about the word {w}.", key, w=word, a=noun)  # fmt: skip


def things(rng: Random, held: bool) -> list[Turn]:
    """Everyday nouns."""
    word, definition = rng.choice(list(load("topics")["things"].items()))
    noun = named(word)
    if rng.random() < 0.16:
        return [made(rng, held, "thing", WHICH, "That is {a}.", "This describes {a}.", word,
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
        user = ask(rng, DEFINE[rng.choice(list(DEFINE))], False, w=word, a=article(word))
        thought = f"I do not know the word {word}."
        return [Turn("unknown", user, rng.choice(answers), thought, OR.join(answers))]
    part = rng.choice(["noun", "noun", "noun", "verb", "adj"])
    word, definition = rng.choice(dictionary()[part])
    definition = definition.removeprefix("to ") if part == "verb" else definition
    lead = {"noun": "{w} means: {d}.", "verb": "To {w} means to {d}.", "adj": "{w} means {d}."}
    answer = lead[part].format(w=word, d=definition)
    return [_define(rng, held, "word", part, word, answer, definition)]
