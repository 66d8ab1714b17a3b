"""Invented tools: random names and parameters, so that nano copies them instead of knowing them."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random
from typing import Any

from edgekit.recipes.nano.skills.base import upper_first
from edgekit.recipes.nano.skills.talk import HEADS, TAILS
from edgekit.recipes.nano.skills.text import CITIES, COLORS, NAMES, word_pool
from edgekit.recipes.nano.skills.tools import Tool

VERBS = (
    "get set find open close start stop add remove show count check save load send create delete "
    "read write update rename book order lock unlock measure move paint clean build print copy "
    "call watch reset test plan share hide sort draw pay rent sell buy mix cool heat fill"
).split()
NOUNS = (
    "door window alarm ticket report camera note order room table lamp color price score user "
    "account task song recipe flight train hotel robot motor sensor fan heater pump folder image "
    "text number date lesson game garden parcel letter bill menu map card list phone screen file "
    "battery engine message meeting event photo video box shelf plant taxi bus seat key code"
).split()


def _value(rng: Random, kind: str) -> str:
    choices = {
        "city": CITIES, "name": NAMES, "person": NAMES, "color": COLORS, "to": NAMES,
        "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
        "size": ["small", "medium", "large"], "room": ["kitchen", "bedroom", "office", "garage"],
        "mode": ["fast", "slow", "quiet", "auto"], "language": ["English", "French", "German"],
    }  # fmt: skip
    if kind in choices:
        return rng.choice(choices[kind])
    if kind in ("title", "text", "query", "item", "topic"):
        return " ".join(rng.sample(word_pool(), rng.randrange(1, 4)))
    return str(rng.randrange(1, rng.choice([10, 100, 1000])))


TEXTS = "city name person color to day size room mode language title text query item topic".split()
COUNTS = "amount count minutes level speed id guests price number year width seconds".split()


def _tool_name(rng: Random, verb: str, noun: str) -> str:
    roll = rng.random()
    if roll < 0.5:
        return f"{verb}_{noun}"
    if roll < 0.6:
        return f"{verb}{noun.capitalize()}"
    if roll < 0.7:
        return f"{noun}_{verb}"
    if roll < 0.8:
        return verb + noun
    made = "".join(rng.choice(HEADS) for _ in range(rng.randrange(1, 3))) + rng.choice(TAILS)
    return rng.choice([made, f"{made}_{noun}", f"{verb}_{made}"])


def invented_tool(rng: Random) -> Tool:
    """A tool nobody has seen."""
    verb, noun = rng.choice(VERBS), rng.choice(NOUNS)
    name = _tool_name(rng, verb, noun)
    fields = rng.sample(TEXTS + COUNTS, rng.choice([1, 1, 1, 2, 2, 3]))
    parameters = {
        f: ("integer" if f in COUNTS else "string",
            rng.choice([f"The {f}", upper_first(f), f"{f} of the {noun}"]))
        for f in fields
    }  # fmt: skip
    pairs = [f"{f} {{{f}}}" for f in fields]
    values = " ".join(f"{{{f}}}" for f in fields)
    spoken = " and ".join(pairs) if len(pairs) < 3 else f"{pairs[0]}, {pairs[1]} and {pairs[2]}"
    asks = [
        f"{upper_first(verb)} the {noun} with {spoken}.",
            f"Please {verb} the {noun}: {', '.join(pairs)}",
        f"{upper_first(verb)} {noun} {values}",
            f"Can you {verb} the {noun} for {values.replace('} {', '} and {')}?",
        f"Use {name} with {spoken}.", f"I want to {verb} a {noun} with {spoken}.",
            f"{upper_first(verb)} a {noun}, {spoken}.",
        f"Call {name}: {', '.join(pairs)}", f"{upper_first(noun)}: {', '.join(pairs)}",
            f"{upper_first(verb)} the {noun}, {', '.join(pairs)}.",
    ]  # fmt: skip
    outcome = rng.randrange(3)

    def result(rng: Random, arguments: dict[str, str]) -> dict[str, Any] | str:
        if outcome == 0:
            return {"status": rng.choice(["ok", "done", "ready"])}
        if outcome == 1:
            return {noun: rng.choice([rng.choice(word_pool()), str(rng.randrange(1, 500))])}
        return {"value": rng.randrange(1, 900)}

    answer = [
        f"I did that. The status of the {noun} is {{status}}.",
        f"The {noun} is {{{noun}}}.",
        "The value is {value}.",
    ]
    return Tool(
        name, rng.choice([f"{upper_first(verb)} the {noun}", f"{upper_first(verb)} a {noun}"]),
                parameters, asks,
        lambda r: {f: _value(r, f) for f in fields}, result, answer[outcome],
    )  # fmt: skip
