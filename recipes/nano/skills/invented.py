"""Invented tools: random names and parameters, so that nano copies them instead of knowing them."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random
from typing import Any

from edgekit.recipes.nano.skills.base import made_word, upper_first
from edgekit.recipes.nano.skills.talk import HEADS, TAILS
from edgekit.recipes.nano.skills.text import COLORS, some_city, some_name, word_pool
from edgekit.recipes.nano.skills.tools import Tool

VERBS = (
    "get set find open close start stop add remove show count check save load send create delete "
    "read write update rename book order lock unlock measure move paint clean build print copy "
    "call watch reset test plan share hide sort draw pay rent sell buy mix cool heat fill turn put "
    "raise lower scan record translate pack repair empty split join charge connect pick change"
).split()
NOUNS = (
    "door window alarm ticket report camera note order room table lamp color price score user "
    "account task song recipe flight train hotel robot motor sensor fan heater pump folder image "
    "text number date lesson game garden parcel letter bill menu map card list phone screen file "
    "battery engine message meeting event photo video box shelf plant taxi bus seat key code oven "
    "curtain blanket ticket book chart page street doctor pizza coffee bike boat ship tower bridge"
).split()


DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
# How people mention a value without naming the parameter.
SPOKEN: dict[str, list[str]] = {
    "city": ["in {city}", "for {city}", "to {city}"], "name": ["for {name}", "called {name}"],
    "person": ["for {person}", "of {person}"], "to": ["to {to}", "for {to}"],
    "color": ["in {color}", "to {color}", "{color}"], "day": ["on {day}", "for {day}"],
    "size": ["in size {size}", "{size}"], "room": ["in the {room}", "for the {room}"],
    "mode": ["in {mode} mode", "to {mode}"], "language": ["in {language}", "to {language}"],
    "title": ["called {title}", "with the title {title}"], "text": ["with the text {text}",
              "for the text {text}", "of: {text}"],
    "query": ["about {query}", "for {query}"], "item": ["with {item}", "for {item}"],
    "topic": ["about {topic}", "on {topic}"], "amount": ["of {amount}", "for {amount}"],
    "minutes": ["for {minutes} minutes", "in {minutes} minutes"],
    "seconds": ["for {seconds} seconds"], "guests": ["for {guests} guests"],
    "price": ["for {price} euros"], "number": ["number {number}", "{number}", "no. {number}"],
    "level": ["to level {level}", "to {level}"], "count": ["{count} times"],
    "speed": ["at speed {speed}"], "id": ["with id {id}", "number {id}"],
    "year": ["of {year}", "in {year}"], "width": ["with a width of {width}"],
    "percent": ["to {percent} percent", "at {percent} percent"], "time": ["at {time}"],
    "code": ["with code {code}", "for {code}"], "path": ["in {path}", "from {path}"],
    "email": ["to {email}", "for {email}"],
}  # fmt: skip


def _value(rng: Random, kind: str) -> str:
    if kind in ("name", "person", "to"):
        return some_name(rng)
    if kind == "city":
        return some_city(rng)
    choices = {
        "color": COLORS, "day": DAYS,
        "size": ["small", "medium", "large"], "room": ["kitchen", "bedroom", "office", "garage"],
        "mode": ["fast", "slow", "quiet", "auto"], "language": ["English", "French", "German"],
    }  # fmt: skip
    if kind in choices:
        return rng.choice(choices[kind])
    if kind in COUNTS:
        return str(rng.randrange(1, rng.choice([10, 100, 1000])))
    if kind == "time":
        return f"{rng.randrange(24)}:{rng.randrange(60):02d}"
    if kind == "code":
        letters = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(3))
        return letters + (str(rng.randrange(100)) if rng.random() < 0.5 else "")
    if kind == "path":
        return f"/{rng.choice(NOUNS)}/{made_word(rng)}"
    if kind == "email":
        return f"{made_word(rng)}@{made_word(rng)}.com"
    some = [made_word(rng) if rng.random() < 0.2 else rng.choice(word_pool()) for _ in range(5)]
    return " ".join(some[: rng.randrange(1, 6)])


TEXTS = (
    "city name person color to day size room mode language title text query item topic time code "
    "path email"
).split()
COUNTS = (
    "amount count minutes level speed id guests price number year width seconds percent"
).split()


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
    kinds = rng.sample(TEXTS + COUNTS, rng.choice([1, 1, 1, 2, 2, 3]))
    # A parameter is named after what it holds, after the noun, or without a meaning.
    fields = {k: k if rng.random() < 0.7 else
              rng.choice([f"{noun}_{k}", f"{k}_{made_word(rng)}", made_word(rng), f"the_{k}"])
              for k in kinds}  # fmt: skip
    parameters = {
        f: ("integer" if k in COUNTS else "string",
            rng.choice([f"The {k}", upper_first(k), f"{k} of the {noun}", f"Which {k}"]))
        for k, f in fields.items()
    }  # fmt: skip
    slots = {k: f"{{{f}}}" for k, f in fields.items()}
    # Requests name the values in any order, so that nano matches them by meaning.
    order = rng.sample(kinds, len(kinds))
    pairs = [f"{rng.choice([k, fields[k]])} {slots[k]}" for k in order]
    values = " ".join(slots.values())
    spoken = " and ".join(pairs) if len(pairs) < 3 else f"{pairs[0]}, {pairs[1]} and {pairs[2]}"
    told = " ".join(rng.choice(SPOKEN[k]).format(**{k: slots[k]}) for k in order)
    plain = [
        f"{upper_first(verb)} the {noun} {told}.", f"{upper_first(verb)} a {noun} {told}.",
        f"Please {verb} the {noun} {told}.", f"Can you {verb} the {noun} {told}?",
        f"I want to {verb} a {noun} {told}.", f"{upper_first(noun)} {told}, please.",
        f"{upper_first(verb)} my {noun} {told}", f"I need a {noun} {told}.",
        f"{upper_first(noun)} {told}", f"Could you {verb} a {noun} {told}?",
        f"What is the {noun} {told}?", f"Let's {verb} the {noun} {told}.",
        f"Which {noun} {told}?", f"Tell me the {noun} {told}.", f"{noun} {told}",
        f"Make the {noun} {told}.", f"I would like to {verb} the {noun} {told}.", f"{verb} {told}",
        f"We need to {verb} the {noun} {told}.", f"Is there a {noun} {told}?", f"My {noun} {told}?",
        f"{upper_first(verb)} {told}.", f"Could you {verb} my {noun} {told}, please?",
        f"Show me the {noun} {told}.", f"Time to {verb} the {noun} {told}.", f"The {noun} {told}.",
        f"How is the {noun} {told}?", f"Find a {noun} {told}.",
        f"Help me {verb} the {noun} {told}.",
    ]  # fmt: skip
    named = [
        f"{upper_first(verb)} the {noun} with {spoken}.",
            f"Please {verb} the {noun}: {', '.join(pairs)}",
        f"{upper_first(verb)} {noun} {values}",
            f"Can you {verb} the {noun} for {values.replace('} {', '} and {')}?",
        f"Use {name} with {spoken}.", f"I want to {verb} a {noun} with {spoken}.",
            f"{upper_first(verb)} a {noun}, {spoken}.",
        f"Call {name}: {', '.join(pairs)}", f"{upper_first(noun)}: {', '.join(pairs)}",
            f"{upper_first(verb)} the {noun}, {', '.join(pairs)}.",
        f"{noun} {values}", f"{verb} {values}", f"{upper_first(verb)} this: {values}",
        f"{upper_first(verb)} the {noun}: {values}", f"{upper_first(verb)} this {noun}: {values}",
        f"How many {noun}s: {values}", f"How does the {noun} look: {values}",
        f"{upper_first(verb)} {noun} number {values}",
        f"I need the {noun}: {', '.join(pairs)}", f"Run {name} with {spoken}.",
        f"Please use the tool to {verb} the {noun}: {', '.join(pairs)}",
    ]  # fmt: skip
    asks = plain if rng.random() < 0.6 else named
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
        name, rng.choice([f"{upper_first(verb)} the {noun}", f"{upper_first(verb)} a {noun}",
                          f"Tool to {verb} a {noun}"]),
                parameters, {"ask": asks},
        lambda r: {f: _value(r, k) for k, f in fields.items()}, result, answer[outcome],
    )  # fmt: skip
