"""Small talk, edgekit, devices, topics, and what nano does not know."""

# ruff: noqa: SIM905  word lists read better as text

import tomllib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import named, phrase, upper_first

KNOWLEDGE = Path(__file__).parents[1] / "knowledge"

WHAT = [
    "What is {x}?", "Explain {x}.", "Tell me about {x}.", "Can you explain {x}?", "Describe {x}.",
    "What is {x} in simple words?", "What do you know about {x}?", "I want to know what {x} is.",
    "Explain {x} to me.", "How would you describe {x}?", "Please explain {x}.",
    "Could you explain {x}?", "Explain {x} in one sentence.", "Do you know what {x} is?",
    "Give me a short explanation of {x}.", "what's {x}?", "Help me understand {x}.", "Define {x}.",
    "Say something about {x}.", "What does {x} mean?",
]  # fmt: skip
WHY = ["Why {x}?", "Can you tell me why {x}?", "Do you know why {x}?", "Explain why {x}.",
       "Why exactly {x}?"]  # fmt: skip
COMMAND = [
    "What does {x} do?", "What is {x}?", "Explain {x}.", "How do I use {x}?", "Tell me about {x}.",
    "What is {x} for?", "When do I need {x}?", "Describe {x}.", "Can you explain {x}?",
    "What can I do with {x}?", "what does {x} do", "How does {x} work?",
]  # fmt: skip
SHARE = {"greeting": 7.0, "smalltalk": 1.5, "thanks": 2.0, "goodbye": 2.0, "ack": 2.0, "hello": 1.5,
         "identity": 1.5, "code": 0.6, "advice": 0.6}  # fmt: skip
UNKNOWN = [
    "What is the population of {x}?", "How much does {x} cost?", "Where can I buy {x}?",
           "Who invented {x}?",
    "What is the history of {x}?", "How do I repair {x}?", "Translate {x} into Japanese.",
           "Who sells {x}?",
    "What is the newest research on {x}?", "What is the best kind of {x}?",
           "Write an essay on {x}.",
    "How many kinds of {x} are there?", "Give me the statistics of {x}.", "Compare {x} with {y}.",
    "What do experts say about {x}?", "What is the difference between {x} and {y}?",
           "Who owns {x}?",
    "Is {x} better than {y}?", "How is {x} made?", "What is the law about {x}?",
           "How heavy is {x}?",
    "How do I draw {x}?", "How long does {x} last?", "How do I choose {x}?", "What is inside {x}?",
    "What is special about {x}?", "Who discovered {x}?", "What is the price of {x}?",
           "When was {x} invented?", "What is the story behind {x}?",
           "How is {x} used in science?", "Which country has the most {x}?",
           "What is the future of {x}?", "Give me the history of {x}.",
           "What is the weight of {x}?", "Is {x} dangerous?", "Which is the best {x}?",
           "What parts does {x} have?", "Tell me the price of {x}.", "Where was {x} invented?",
           "What did people think about {x}?"]  # fmt: skip
PLACES = (
    "Germany France Spain Italy Japan China India Brazil Canada Mexico Egypt Kenya Norway Sweden "
    "Poland Greece Turkey Russia Paris London Berlin Rome Tokyo Madrid Vienna Lisbon"
).split()
HEADS = (
    "ba be bo bra ca che da do el fa fre ga gre ha he is ja jo ka ke la le ma mi na no o pa pe ra "
    "ro sa so ta te u va wi za"
).split()
TAILS = (
    "ck den el er go in ka la lin ma man mer mi n na nis ra ris ro s son ta ter ton va vin"
).split()
PLACE = [
    "What is the population of {x}?", "How many people live in {x}?",
         "Who is the president of {x}?", "How big is {x}?",
    "What is the history of {x}?", "What can I see in {x}?", "Which food is typical for {x}?",
         "When was {x} founded?",
    "Who rules {x}?", "What is the best hotel in {x}?",
    "Which rivers are in {x}?", "Who lives in {x}?", "How old is {x}?",
         "What is the best restaurant in {x}?", "What is {x} famous for?",
         "How many cities are in {x}?", "What is the weather like in {x}?",
         "Who is the king of {x}?"]  # fmt: skip
PERSON = [
    "Who was {x}?", "Who is {x}?", "Where was {x} born?", "What did {x} write?",
          "When did {x} die?",
    "Do you know {x}?", "What is {x} famous for?", "Tell me about {x}.", "How old is {x}?",
          "Is {x} alive?",
    "What do you know about {x}?", "Who is this {x}?", "Have you heard of {x}?",
          "What did {x} do?", "Why is {x} famous?"]  # fmt: skip
UNKNOWN_ANSWERS = [
    "I do not know that. I have learned little about {x}.",
    "I am not sure about {x}. My knowledge is small, so please look it up.",
    "That is too hard for me. I know little about {x}.",
    "I cannot answer that question about {x}. I only know simple things.",
    "Sorry, I have not learned enough about {x} to answer that.",
]


@cache
def load(name: str) -> dict[str, Any]:
    """One of the knowledge files."""
    return tomllib.loads((KNOWLEDGE / f"{name}.toml").read_text(encoding="utf-8"))


def talk(rng: Random, held: bool) -> list[Turn]:
    """Greetings, identity, thanks, limits, advice."""
    entries = load("talk")["talk"]
    shares = [SHARE.get(entry["skill"], 1.0) for entry in entries]
    (entry,) = rng.choices(entries, shares)
    user = rng.choice(entry["held"] if held else entry["ask"])
    key = OR.join(entry["answer"])
    return [Turn(entry["skill"], user, rng.choice(entry["answer"]), entry["thought"], key)]


def topics(rng: Random, held: bool) -> list[Turn]:
    """Short explanations."""
    if rng.random() < 0.13:
        subject, answers = rng.choice(list(load("topics")["why"].items()))
        # "why is the sky blue" but "tell me why the sky is blue": keep the question order.
        user = phrase(rng, WHY, held).format(x=subject)
        return [
            Turn("why", user, rng.choice(answers), "The user asks for a reason.", OR.join(answers))
        ]
    subject, answers = rng.choice(list(load("topics")["topics"].items()))
    bare = subject.split(" ", 1)[1] if subject.startswith(("a ", "an ", "the ")) else subject
    named = subject if rng.random() < 0.85 else bare
    user = upper_first(phrase(rng, WHAT, held).format(x=named))
    key = OR.join(answers)
    return [Turn("topic", user, rng.choice(answers), f"The user asks about {subject}.", key)]


def edgekit(rng: Random, held: bool) -> list[Turn]:
    """edgekit and its commands."""
    entry = rng.choice(load("edgekit")["entry"])
    own = entry["held"] if held else entry["ask"]
    user = rng.choice(own) if rng.random() < 0.6 else phrase(rng, COMMAND, held)
    user = user.format(x=entry["name"])
    thought = f"This is about {entry['name']}."
    return [Turn("edgekit", user, rng.choice(entry["answer"]), thought, entry["key"])]


DEVICE: dict[str, tuple[list[str], str]] = {
    "memory": (
        ["How much memory does the {d} have?", "What is the memory of the {d}?",
         "How many GB of memory has the {d}?", "How much RAM is in the {d}?",
         "Tell me the memory size of the {d}.", "How big is the memory of the {d}?",
         "{d} memory?", "What memory size has the {d}?"],
        "The {d} has {v} of memory.",
    ),
    "bandwidth": (
        ["What is the memory bandwidth of the {d}?", "How fast is the memory of the {d}?",
         "Which bandwidth does the {d} have?", "What bandwidth has the {d}?",
         "Tell me the bandwidth of the {d}.", "{d} bandwidth?",
         "How much bandwidth does the {d} have?"],
        "The {d} has a memory bandwidth of {v}.",
    ),
    "gpu": (
        ["Which GPU does the {d} have?", "What GPU is in the {d}?", "What kind of GPU has the {d}?",
         "Tell me the GPU of the {d}.", "Which GPU is in the {d}?", "{d} GPU?"],
        "The {d} has {v}.",
    ),
    "sm": (
        ["What is the SM version of the {d}?", "Which compute capability has the {d}?",
         "Which SM number does the {d} have?", "What is the compute capability of the {d}?",
         "Tell me the SM version of the {d}."],
        "The {d} has SM version {v}.",
    ),
}  # fmt: skip


def devices(rng: Random, held: bool) -> list[Turn]:
    """Memory, bandwidth and GPU of the supported devices; sometimes the next device follows."""
    table = load("edgekit")["device"]
    names = rng.sample(list(table), 2)
    fact = rng.choice(list(DEVICE))
    asks, answer = DEVICE[fact]
    out = []
    for i, name in enumerate(names):
        value = table[name][fact]
        user = phrase(rng, asks, held).format(d=name)
        if i:
            follow = ["And the {d}?", "What about the {d}?", "And what about the {d}?"]
            user = rng.choice(follow).format(d=name)
        reply = answer.format(d=name, v=value)
        word = {"gpu": "GPU", "sm": "SM version"}.get(fact, fact)
        out.append(
            Turn("device", user, reply, f"The user asks for the {word} of the {name}.", value)
        )
        if rng.random() < 0.7:
            break
    if not held and rng.random() < 0.15:
        row = table[names[0]]
        reply = f"The {names[0]} has {row['memory']} of memory, a bandwidth of {row['bandwidth']}"
        ask = rng.choice([f"Tell me about the {names[0]}.", f"What is the {names[0]}?"])
        return [
            Turn("device", ask, f"{reply}, and {row['gpu']}.", f"This is about the {names[0]}.")
        ]
    return out


def _invented_name(rng: Random) -> str:
    """A name that nobody has, so that nano declines names it has not learned."""
    words = []
    for _ in range(2):
        middle = rng.choice(HEADS) if rng.random() < 0.4 else ""
        words.append((rng.choice(HEADS) + middle + rng.choice(TAILS)).capitalize())
    return " ".join(words)


def unknown(rng: Random, held: bool) -> list[Turn]:
    """Questions that a tiny model should decline."""
    things = list(load("topics")["things"])
    x, y = (named(w) for w in rng.sample(things, 2))
    asks = UNKNOWN
    if rng.random() < 0.3:
        names = (
            "Anna Bruno Carla David Elena Felix Greta Hugo Irene Jonas Karin Leo Mara Nils".split()
        )
        last = "Miller Fisher Baker Novak Rossi Silva Tanaka Weber Moreau Jansen Kim Lopez".split()
        x = f"{rng.choice(names)} {rng.choice(last)}" if rng.random() < 0.4 else _invented_name(rng)
        asks = PERSON
    elif rng.random() < 0.2:
        x, asks = rng.choice(PLACES), PLACE
    ask = phrase(rng, asks, held).format(x=x, y=y)
    answer = rng.choice(UNKNOWN_ANSWERS).format(x=x)
    key = OR.join(a.format(x=x) for a in UNKNOWN_ANSWERS)
    return [Turn("unknown", ask, answer, f"I do not know enough about {x}.", key)]
