"""Common sense, abilities, opinions, and questions about the chat itself."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import (
    article,
    ask,
    draw,
    load,
    made,
    named,
    upper_first,
)
from edgekit.recipes.nano.skills.text import word_pool

CANNOT = ["sing", "dance", "cook", "drive a car", "swim", "play the piano", "see pictures", "draw",
          "paint", "walk", "run", "fly",
          "send an email", "call my mother", "order a pizza", "play a game of chess",
          "buy a ticket", "book a flight", "open the door",
          "play music", "take a photo", "clean my room", "do my homework", "wash the dishes",
          "water the plants", "ride a bicycle",
          "make coffee", "drink tea", "hear music", "smell flowers", "touch things", "move a box",
          "jump", "sleep", "climb a tree",
          "hold my hand", "fix my car", "watch a film", "set an alarm", "download a file",
          "search the web", "read my mail",
          "wake me up", "turn off the light"]  # fmt: skip


def common(rng: Random, held: bool) -> list[Turn]:
    """Well-known facts and small word tables."""
    tables = load("common")
    kind = rng.choice(
        ["fact"] * 6
        + ["opposites", "opposites", "colors", "sounds", "legs", "babies", "plurals", "words"]
    )
    if kind == "fact":
        entry = rng.choice(tables["fact"])
        user = ask(rng, entry, held)
        return [Turn("common", user, entry["answer"], "I know this fact.", entry["answer"])]
    if kind == "words":
        word, row = rng.choice(list(tables["words"].items()))
        language, value = rng.choice(list(row.items()))
        answer = f"{upper_first(word)} in {{l}} is {{v}}."
        return [made(rng, held, "common", "other language", answer,
                     "The {l} word for {x} is {v}.", "is {v}", x=word, l=language,
                     v=value)]  # fmt: skip
    word, value = rng.choice(list(tables[kind].items()))
    asks, subject, answer = {
        "opposites": ("opposite", word, f"The opposite of {word} is {value}."),
        "colors": ("color", word, f"{upper_first(word)} is {value}."),
        "sounds": ("sound", article(word), f"{upper_first(article(word))} says {value}."),
        "legs": ("legs", article(word), f"{upper_first(article(word))} has {value} legs."),
        "babies": ("baby", word, f"A baby {word} is called {article(value)}."),
        "plurals": ("plural", word, f"The plural of {word} is {value}."),
    }[kind]
    thought = "The user asks about {x}. The answer is {v}."
    return [made(rng, held, "common", asks, answer, thought, "{v}", x=subject, v=value)]


DOINGS = (
    "bake cook clean paint fix drive open close carry wash buy sell build repair move touch hold "
    "throw catch cut feed brush lift push pull find visit watch ride steal hide hang burn eat "
    "drink smell taste plant order deliver print"
).split()


def _cannot(rng: Random) -> str:
    """Something that needs a body or a network."""
    if rng.random() < 0.4:
        return rng.choice(CANNOT)
    noun = rng.choice(word_pool())
    thing = rng.choice([f"the {noun}", f"my {noun}", named(noun), f"this {noun}"])
    return f"{rng.choice(DOINGS)} {thing}"


def abilities(rng: Random, held: bool) -> list[Turn]:
    """What nano can do and what it likes."""
    if rng.random() < 0.5:
        x = draw(rng, lambda: _cannot(rng), held)
        answers = ["No, I cannot {x}. I can only read and write text.",
                   "I cannot {x}, because I am a program that writes text.",
                   "Sorry, I am not able to {x}. But I can chat with you."]  # fmt: skip
        skill, asks, thought = "ability", "ability", "I cannot {x}."
    else:
        noun = draw(rng, lambda: rng.choice(word_pool()), held)
        x = rng.choice([named(noun), f"the {noun}"])
        answers = ["I am a program, so I have no taste. But {x} sounds nice.",
                   "I have no feelings about {x}. Do you like it?",
                   "I cannot say. Tell me what you think about {x}!"]  # fmt: skip
        skill, asks, thought = "opinion", "opinion", "The user asks for my opinion on {x}."
    return [made(rng, held, skill, asks, rng.choice(answers), thought, OR.join(answers), x=x)]


def echo(rng: Random, last: Turn, held: bool) -> Turn:
    """A question about the turn before."""
    if rng.random() < 0.5:
        user, thought = ask(rng, "repeat", held), "I will repeat my last answer."
        return Turn("echo", user, last.answer, thought, last.answer, exact=True)
    answer = f'You said: "{last.user}"'
    return Turn("echo", ask(rng, "asked", held), answer, "I will repeat the last message.", answer)


def echoes(rng: Random, held: bool) -> list[Turn]:
    """A fact and a question about it."""
    first = common(rng, held)
    return [*first, echo(rng, first[-1], held)]
