"""Small talk, edgekit, devices, topics, and what nano does not know."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import ask, load, made, made_word, named
from edgekit.recipes.nano.skills.world import country_name, facts, lookalike

SHARE = {"greeting": 7.0, "smalltalk": 1.5, "thanks": 2.0, "goodbye": 2.0, "ack": 2.0, "hello": 1.5,
         "identity": 1.5, "code": 0.6, "advice": 0.6}  # fmt: skip
# The same kind of questions from parts: what nano cannot know about a thing.
PROPERTIES = (
    "price|cost|weight|age|origin|history|inventor|owner|size|length|temperature|value|quality|"
    "structure|formula|composition|production|market|speed|taste|smell|shape|material|lifetime|"
    "number of kinds|average price|annual production|scientific name|official standard|oldest kind|"
    "most expensive kind|biggest producer|energy|density|surface|volume|risk|benefit|safety|"
    "environmental effect|cultural role|economic role|physics|biology|anatomy|evolution|design|"
    "best brand|newest model|right size|correct use|Latin name|legal status|world record|science|"
    "engineering|mechanics|psychology|philosophy|politics|geology|mathematics|technology|sociology|"
    "invention|theory|main idea|ingredients|chemical structure|inner life|purpose in history|"
    "marketing|first name|middle name|rank|melting point|sequel|budget|strength|weakness"
).split("|")
MEASURES = (
    "old big heavy long tall wide deep fast strong common rare popular healthy dangerous useful "
    "hot cold loud bright thick difficult important valuable clean safe hard sharp sweet efficient"
).split()
DONE = (
    "invented discovered built sold designed tested collected made brought painted repaired "
    "studied patented produced broke stole grew bought developed described introduced"
).split()
DOES = (
    "sells makes produces repairs collects buys designs studies builds needs uses exports imports "
    "likes eats rents tests teaches delivers owns"
).split()
CITIES_KNOWN = "Paris London Berlin Rome Tokyo Madrid Vienna Lisbon".split()
HEADS = (
    "ba be bo bra ca che da do el fa fre ga gre ha he is ja jo ka ke la le ma mi na no o pa pe ra "
    "ro sa so ta te u va wi za"
).split()
TAILS = (
    "ck den el er go in ka la lin ma man mer mi n na nis ra ris ro s son ta ter ton va vin"
).split()
DECLINE = [
    "I do not know. That is too hard for a small model like me.",
    "Sorry, I have not learned that. Ask me something simpler.",
    "I cannot answer that. I am only a small demonstration model.",
]
UNKNOWN_ANSWERS = [
    "I do not know that. I have learned little about {x}.",
    "I am not sure about {x}. My knowledge is small, so please look it up.",
    "That is too hard for me. I know little about {x}.",
    "I cannot answer that question about {x}. I only know simple things.",
    "Sorry, I have not learned enough about {x} to answer that.",
]


def talk_answers(skill: str) -> list[str]:
    """What nano says to praise, critique and so on."""
    entry = next(e for e in load("talk")["talk"] if e["skill"] == skill)
    return list(entry["answer"])


def talk(rng: Random, held: bool) -> list[Turn]:
    """Greetings, identity, thanks, limits, advice."""
    entries = load("talk")["talk"]
    shares = [SHARE.get(entry["skill"], 1.0) for entry in entries]
    (entry,) = rng.choices(entries, shares)
    user = ask(rng, entry, held)
    key = OR.join(entry["answer"])
    return [Turn(entry["skill"], user, rng.choice(entry["answer"]), entry["thought"], key)]


def topics(rng: Random, held: bool) -> list[Turn]:
    """Short explanations."""
    if rng.random() < 0.13:
        subject, answers = rng.choice(list(load("topics")["why"].items()))
        # "why is the sky blue" but "tell me why the sky is blue": keep the question order.
        user = ask(rng, "why", held, x=subject)
        return [
            Turn("why", user, rng.choice(answers), "The user asks for a reason.", OR.join(answers))
        ]
    subject, answers = rng.choice(list(load("topics")["topics"].items()))
    bare = subject.split(" ", 1)[1] if subject.startswith(("a ", "an ", "the ")) else subject
    user = ask(rng, "topic", held, x=subject if rng.random() < 0.85 else bare)
    key = OR.join(answers)
    return [Turn("topic", user, rng.choice(answers), f"The user asks about {subject}.", key)]


def edgekit(rng: Random, held: bool) -> list[Turn]:
    """edgekit and its commands."""
    entry = rng.choice(load("edgekit")["entry"])
    roll = rng.random()
    if "to" in entry and not held and roll < 0.3:
        user = ask(rng, "purpose of a command", False, do=rng.choice(entry["to"]))
    elif roll < 0.6:
        user = ask(rng, entry, held)
    else:
        user = ask(rng, "command", held, x=entry["name"])
    thought = f"This is about {entry['name']}."
    return [Turn("edgekit", user, rng.choice(entry["answer"]), thought, entry["key"])]


# answers by fact; the questions have the fact's name in phrasings.toml
DEVICE = {
    "memory": "The {d} has {v} of memory.",
    "bandwidth": "The {d} has a memory bandwidth of {v}.",
    "gpu": "The {d} has {v}.",
    "sm": "The {d} has SM version {v}.",
}
ALIASES = {
    "Jetson Orin Nano": ["Orin Nano", "orin nano"],
    "Jetson Orin NX": ["Orin NX", "orin nx"], "Jetson AGX Orin": ["AGX Orin", "agx orin"],
    "Jetson AGX Thor": ["Jetson Thor", "AGX Thor", "Thor"], "DGX Spark": ["Spark", "dgx spark"],
}  # fmt: skip


def alias(rng: Random, device: str, held: bool) -> str:
    """What a user calls the device."""
    return device if held or rng.random() < 0.7 else rng.choice(ALIASES[device])


def devices(rng: Random, held: bool) -> list[Turn]:
    """Memory, bandwidth and GPU of the supported devices; sometimes the next device follows."""
    table = load("edgekit")["device"]
    names = rng.sample(list(table), 2)
    fact = rng.choice(list(DEVICE))
    answer = DEVICE[fact]
    word = {"gpu": "GPU", "sm": "SM version"}.get(fact, fact)
    if not held and rng.random() < 0.15:
        row = table[names[0]]
        answer = f"The {{d}} has {row['memory']} of memory, a bandwidth of {row['bandwidth']}, "
        return [made(rng, held, "device", "about a device", f"{answer}and {row['gpu']}.",
                     "This is about the {d}.", "", d=names[0])]  # fmt: skip
    turns = []
    for i, name in enumerate(names[: 1 + (rng.random() < 0.3)]):
        value = table[name][fact]
        user = ask(rng, "next device" if i else fact, held, d=alias(rng, name, held))
        thought = f"The user asks for the {word} of the {name}."
        turns.append(Turn("device", user, answer.format(d=name, v=value), thought, value))
    return turns


def invented_name(rng: Random) -> str:
    """A name that nobody has, so that nano declines names it has not learned."""
    words = []
    for _ in range(2):
        middle = rng.choice(HEADS) if rng.random() < 0.4 else ""
        words.append((rng.choice(HEADS) + middle + rng.choice(TAILS)).capitalize())
    return " ".join(words)


def invented_place(rng: Random) -> str:
    """A place that does not exist, half of them with a name close to a real one."""
    if rng.random() < 0.5:
        return lookalike(rng, rng.choice(facts()["countries"])["name"])
    ending = rng.choice([*TAILS, "land", "tia", "stan", "via", "nia", "ria", "burg", "ville"])
    start = rng.choice(HEADS) + rng.choice(HEADS) if rng.random() < 0.7 else made_word(rng)
    return (start + ending).capitalize()


FIRST = (
    "Anna Bruno Carla David Elena Felix Greta Hugo Irene Jonas Karin Leo Mara Nils Oscar Paula "
    "Ruth Simon Thea Victor Walter Yusuf Zoe Amir Berta Chen Dina Emil Farah George"
).split()
LAST = (
    "Miller Fisher Baker Novak Rossi Silva Tanaka Weber Moreau Jansen Kim Lopez Schmidt Olsen "
    "Costa Brown Singh Ivanov Haddad Nagy Popov Larsen Duarte Wilson Meyer Sato"
).split()


def _beyond(rng: Random, x: str, y: str) -> str:
    """A question about x that only an encyclopedia answers."""
    place = rng.choice(facts()["countries"])["name"]
    return ask(rng, "beyond", False, x=x, y=y, c=country_name(place), p=rng.choice(PROPERTIES),
               m=rng.choice(MEASURES), d=rng.choice(DONE), s=rng.choice(DOES))  # fmt: skip


def unknown(rng: Random, held: bool) -> list[Turn]:
    """Questions that a tiny model should decline."""
    things = list(load("topics")["things"])
    if not held and rng.random() < 0.4:
        things = [w for w, _ in facts()["words"]["noun"]]
    x, y = (named(w) for w in rng.sample(things, 2))
    roll = rng.random()
    if roll < 0.3:
        name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        x = name if rng.random() < 0.4 else invented_name(rng)
        user = ask(rng, "unknown person", held, x=x)
    elif roll < 0.44:
        x = country_name(rng.choice(facts()["countries"])["name"])
        x = rng.choice(CITIES_KNOWN) if rng.random() < 0.3 else x
        user = ask(rng, "unknown about a place", held, x=x)
    elif held or rng.random() < 0.4:
        user = ask(rng, "unknown thing", held, x=x, y=y)
    else:
        x = rng.choice([x, x, f"the {x.split(' ')[-1]}", f"my {x.split(' ')[-1]}"])
        user = _beyond(rng, x, y)
    answers = [a.format(x=x) for a in UNKNOWN_ANSWERS]
    thought = f"I do not know enough about {x}."
    return [Turn("unknown", user, rng.choice(answers), thought, OR.join([*answers, *DECLINE]))]
