"""Answers that stand in the question, and questions that nano must decline."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import ask, draw, load, made, made_word, named, upper_first
from edgekit.recipes.nano.skills.talk import (
    DECLINE,
    DOES,
    DONE,
    MEASURES,
    PROPERTIES,
    UNKNOWN_ANSWERS,
    alias,
    invented_place,
    talk_answers,
)
from edgekit.recipes.nano.skills.text import CITIES, COLORS, NAMES, some_city, some_name, word_pool
from edgekit.recipes.nano.skills.world import country_name, facts, lookalike
from edgekit.recipes.nano.skills.write import ANIMALS

SPOTS = "kitchen garden box bag house car office forest river school".split()
PETS = "cat dog bird fish horse rabbit mouse".split()
PASSAGES: list[tuple[str, list[tuple[str, str, str]]]] = [
    ("My {pet} is called {name}.", [("What is the name of my {pet}?",
                                     "Your {pet} is called {name}.", "name"),
                                    ("What is my {pet}'s name?", "Your {pet} is called {name}.",
                                     "name")]),
    ("{name} has a {color} {thing}.", [("What color is the {thing}?", "The {thing} is {color}.",
                                        "color"),
                                       ("Who has the {thing}?", "{name} has the {thing}.", "name"),
                                       ("What does {name} have?", "{name} has a {color} {thing}.",
                                        "thing")]),
    ("{name} lives in {city} and likes the {thing}.",
     [("Where does {name} live?", "{name} lives in {city}.", "city"),
                                                       ("What does {name} like?",
                                                        "{name} likes the {thing}.", "thing"),
                                                       ("Who lives in {city}?",
                                                        "{name} lives in {city}.", "name")]),
    ("The {thing} is in the {place}.", [("Where is the {thing}?", "The {thing} is in the {place}.",
                                         "place"),
                                        ("What is in the {place}?",
                                         "The {thing} is in the {place}.", "thing")]),
    ("{name} bought {n} {thing}s for {m} euros.", [("How many {thing}s did {name} buy?",
                                                    "{name} bought {n} {thing}s.", "n"),
                                                  ("How much did {name} pay?",
                                                   "{name} paid {m} euros.", "m"),
                                                  ("Who bought the {thing}s?",
                                                   "{name} bought the {thing}s.", "name")]),
    ("The {pet} saw a {animal} in the {place}.", [("What did the {pet} see?",
                                                   "The {pet} saw a {animal}.", "animal"),
                                                 ("Where was the {animal}?",
                                                  "The {animal} was in the {place}.", "place"),
                                                 ("Who saw the {animal}?",
                                                  "The {pet} saw the {animal}.", "pet")]),
    ("{name} is older than {other}.", [("Who is older?", "{name} is older.", "name"),
                                       ("Who is younger?", "{other} is younger.", "other")]),
    ("{name} meets {other} on {day}.", [("When does {name} meet {other}?", "They meet on {day}.",
                                         "day"),
                                        ("Who meets {other}?", "{name} meets {other}.", "name")]),
]  # fmt: skip
VERBS = (
    "cook bake repair build clean grow paint wash fix sell train plant draw carry choose store cut "
    "measure copy design improve explain solve prepare replace"
).split()
MORE_VERBS = (
    "cook bake repair build clean grow paint wash fix sell train plant draw carry choose store cut "
    "measure design improve prepare replace weld polish knit sew program install compose publish "
    "import export cure raise breed catch climb cross decorate donate dry dye earn elect feed film "
    "fold freeze grill heat hire insure iron lift melt mix mount operate organize pack park peel "
    "photograph play pour produce protect prove punish record recycle remove rent restore review "
    "ride roast save sharpen ship shrink smoke steal stop teach test tie transport tune visit weigh"
).split()
# Parts of a decline, whichever of nano's sentences it is.
DECLINED = OR.join([
    *DECLINE, "I have learned little about", "I am not sure about", "I know little about",
    "I only know simple things", "I have not learned enough about",
])  # fmt: skip
GIBBERISH = [
    "I did not understand that. Please ask me in a short English sentence.",
    "Sorry, I do not understand. Can you say it in other words?",
]
# Countries that nano has not learned.
FAR_COUNTRIES = (
    "Afghanistan|Albania|Algeria|Andorra|Angola|Armenia|Azerbaijan|Bahrain|Barbados|Belarus|Belize|"
    "Benin|Bhutan|Botswana|Brunei|Burundi|Cameroon|Chad|Costa Rica|Cyprus|Djibouti|Dominica|"
    "Eritrea|El Salvador|Fiji|Gabon|Gambia|Grenada|Guatemala|Guinea|Guyana|Haiti|Honduras|Kiribati|"
    "Kosovo|Kuwait|Kyrgyzstan|Laos|Lesotho|Liberia|Malawi|Mauritania|Mauritius|Moldova|Monaco|"
    "Liechtenstein|Montenegro|Myanmar|Nauru|Nicaragua|Niger|Palau|Samoa|San Marino|Seychelles|"
    "Suriname|Tajikistan|Togo|Tonga|Turkmenistan|Tuvalu|Vanuatu|Wales|Scotland|Atlantis|Narnia|Wakanda|Gondor|Utopia"
).split("|")
NO_COUNTRY = ["I do not know a place called {x}.", "Sorry, I have not learned about {x}."]
NO_ELEMENT = ["I do not know an element called {x}.", "Sorry, I have not learned about {x}."]


def passages(rng: Random, held: bool) -> list[Turn]:
    """One or two sentences and a question about them."""

    def fill() -> dict[str, str]:
        name, other = some_name(rng), some_name(rng)
        return {
            "name": name, "other": other, "pet": rng.choice(PETS), "color": rng.choice(COLORS),
                "thing": rng.choice(word_pool()),
            "city": some_city(rng),
                "place": rng.choice(SPOTS),
            "animal": rng.choice(ANIMALS), "n": str(rng.randrange(2, 60)),
                "m": str(rng.randrange(2, 300)),
            "day": rng.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
        }  # fmt: skip

    words = draw(rng, fill, held)
    told, asks = rng.choice(PASSAGES)
    text = told.format(**words)
    if rng.random() < 0.4:
        more = rng.choice(PASSAGES)[0].format(**draw(rng, fill, held))
        text = f"{text} {more}" if rng.random() < 0.5 else f"{more} {text}"
    ask, answer, key = rng.choice(asks)
    ask, answer = ask.format(**words), answer.format(**words)
    thought = f"The text says: {told.format(**words)}"
    if rng.random() < 0.3:
        heard = rng.choice(
            ["I see.", "Okay, I will remember that.", "All right. What would you like to know?"]
        )
        return [Turn("reading", text, heard, "The user tells me something."),
                Turn("reading", ask, answer, thought, words[key])]  # fmt: skip
    return [Turn("reading", f"{text} {ask}", answer, thought, words[key])]


NOISE = "???|!!!|...|hm?|?|!|what|huh?|test|1|a|:)|abc|x y z|la la la".split("|")


def _nonsense(rng: Random) -> str:
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(NOISE)
    letters = "asdfghjklqwertyuiopzxcvbnm"
    start = rng.randrange(20)
    if roll < 0.5:
        return letters[start : start + rng.randrange(4, 9)]
    return "".join(rng.choice(letters) for _ in range(rng.randrange(5, 10)))


def _no_place(rng: Random, held: bool) -> Turn:
    """A place that nano does not know, asked like one that it knows."""
    place = invented_place(rng)
    if not held and rng.random() < 0.35:
        place = rng.choice(FAR_COUNTRIES)
    asks = rng.choice(["capital", "capital", "currency", "language", "continent"])
    if not held and rng.random() < 0.2:
        asks = "about a country"
    answers = [a.format(x=place) for a in NO_COUNTRY]
    key = OR.join([*answers, *(a.format(x=place) for a in UNKNOWN_ANSWERS)])
    user = ask(rng, asks, held, c=place)
    return Turn("declined", user, rng.choice(answers), f"I have not learned about {place}.", key)


def declined(rng: Random, held: bool) -> list[Turn]:
    """Questions beyond nano: hard ones, invented places and elements, nonsense."""
    roll = rng.random()
    if roll < 0.15:
        text = draw(rng, lambda: _nonsense(rng), held)
        answer, key = rng.choice(GIBBERISH), OR.join(GIBBERISH)
        return [Turn("declined", text, answer, "I do not understand this.", key)]
    if roll < 0.3:
        return [_no_place(rng, held)]
    if roll < 0.37 and not held:
        x = lookalike(rng, rng.choice(facts()["elements"])["name"])
        answer = rng.choice(NO_ELEMENT)
        return [made(rng, held, "declined",
        "no element", answer, "{x} is not an element I know.",
                     OR.join(NO_ELEMENT), x=x)]  # fmt: skip
    w, u, x, y = rng.sample(word_pool(), 4)
    if not held and rng.random() < 0.12:
        w = x = made_word(rng)
    a, b = (rng.choice(facts()["words"]["adj"])[0] for _ in range(2))
    words = {
        "w": w, "u": u, "v": rng.choice(VERBS if held else MORE_VERBS), "a": a, "b": b,
        "x": rng.choice([named(x), f"the {x}", f"my {x}", x]), "y": named(y),
        "c": rng.choice([country_name(r["name"]) for r in facts()["countries"]] + CITIES),
        "n": rng.choice(NAMES), "p": rng.choice(PROPERTIES), "m": rng.choice(MEASURES),
        "d": rng.choice(DONE), "s": rng.choice(DOES),
    }  # fmt: skip
    asks = "hard" if held else rng.choice(["hard", "harder", "harder"])
    return [made(rng, held, "declined", asks, rng.choice(DECLINE), "This is too hard for me.",
                 DECLINED, **words)]  # fmt: skip


KIND = [
    "You ask good questions, and I enjoy our chat.", "You are doing well. Keep going!",
    "I am glad that you are here.",
]  # fmt: skip
HELPS = [
    "Of course, I will try. What is your question?",
    "Sure! Please tell me more in a short sentence.",
]


def kind_words(rng: Random, held: bool) -> list[Turn]:
    """Wishes, affection, and jokes about a subject."""
    roll = rng.random()
    if roll < 0.35:
        word = draw(rng, lambda: rng.choice(word_pool()), held)
        joke = rng.choice(load("talk")["lines"]["jokes"])
        return [made(rng, held, "joke", "joke about", f"Here is a joke that I know. {joke}",
                     "I will tell a joke that I know.", "",
                     x=rng.choice([word, named(word), f"{word}s"]))]  # fmt: skip
    skill, asks, answers, thought = (
        ("praise", "affection", talk_answers("praise"), "The user is kind to me.")
        if roll < 0.6 else
        ("kind", "kind word", KIND, "The user wants a kind word.")
        if roll < 0.85 else
        ("smalltalk", "need help", HELPS, "The user needs help.")
    )  # fmt: skip
    return [made(rng, held, skill, asks, rng.choice(answers), thought, OR.join(answers))]


def _division(n: int) -> tuple[str, int]:
    """(trial divisions of n, its smallest factor or 0): '49 = 2 * 24 + 1 = 3 * 16 + 1 ...'."""
    text, factor = str(n), 0
    for d in (2, 3, 5, 7):
        if d * d > n or factor:
            break
        text += f" = {d} * {n // d}" + (f" + {n % d}" if n % d else "")
        factor = 0 if n % d else d
    return text, factor


def more_numbers(rng: Random, held: bool) -> list[Turn]:
    """Primes, squares, roots and percentages."""
    kind = rng.randrange(4)
    n = draw(rng, lambda: rng.randrange(2, 100), held)
    if kind == 0:
        work, factor = _division(n)
        work = f"{work}. " if n > 3 else ""
        verdict = "No, {n} is not prime." if factor else "Yes, {n} is a prime number."
        return [made(rng, held, "number", "prime", work + verdict, "I try to divide {n}.",
                     verdict.rstrip("."), n=n)]  # fmt: skip
    n = n % 20 + 1
    if kind == 1:
        return [made(rng, held, "number", "square", "The square of {n} is {v}.", "{n} * {n} = {v}.",
                     "is {v}.", n=n, v=n * n)]  # fmt: skip
    if kind == 2:
        return [made(rng, held, "number", "square root", "The square root of {n} is {v}.",
                     "{v} * {v} = {n}.", "is {v}.", n=n * n, v=n)]  # fmt: skip
    percent = rng.choice([10, 20, 25, 50])
    whole = 100 // percent * n * rng.choice([1, 2, 5])
    return [made(rng, held, "number", "percent", "{p}% of {w} is {v}.", "{w} / {f} = {v}.",
                 "is {v}.", p=percent, w=whole, v=whole * percent // 100,
                 f=100 // percent)]  # fmt: skip


def fits(rng: Random, held: bool) -> list[Turn]:
    """Do edgekit, the 30B model and nano run on a device?"""
    table = load("edgekit")["device"]
    name = rng.choice(list(table))
    asks = rng.choice(
        [
            "edgekit on a device",
            "large model on a device",
            "large model on a device",
            "nano on a device",
        ]
    )
    memory = f"the {name} has {table[name]['memory']}"
    if asks == "large model on a device":
        small = name in ("Jetson Orin Nano", "Jetson Orin NX")
        verdict = "does not fit" if small else "fits"
        answer = f"The 30B model needs about 19 GB, and {memory}, so it {verdict}."
        thought = f"The model needs about 19 GB. {upper_first(memory)}."
    elif asks == "nano on a device":
        answer = f"Yes, nano is tiny: it needs far less than the memory of the {name}."
        thought = "nano fits on every device."
    else:
        answer, thought = f"Yes, edgekit has a profile for the {name}.", f"{name} is supported."
    user = ask(rng, asks, held, d=alias(rng, name, held))
    return [Turn("device", user, answer, thought, answer)]
