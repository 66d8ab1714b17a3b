"""Answers that stand in the question, and questions that nano must decline."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import draw, named, phrase, upper_first
from edgekit.recipes.nano.skills.talk import HEADS, TAILS, load
from edgekit.recipes.nano.skills.text import CITIES, COLORS, NAMES, some_city, some_name, word_pool
from edgekit.recipes.nano.skills.world import facts
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
HARD = [
    "How do I {v} {x}?", "How can I {v} {x}?", "What is the best way to {v} {x}?",
        "Teach me to {v} {x}.",
    "Why is the {w} {a}?", "Explain {a} {w}.", "What is {a} {w}?", "Which {w} is the most {a}?",
        "Who found the first {w}?",
    "What is the largest {w} in {c}?", "Where is the nearest {w}?",
        "Summarize: The {w} was {a} and the {u} was in {c}.",
    "Write a letter to {n} about {x}.", "Translate the {a} {w} to French.",
        "Why do people {v} {x}?", "Is there a {a} {w} in {c}?",
    "How far is the {w} from {c}?", "When was the {w} in {c} built?",
        "Plan a trip to {c} with {x}.", "Tell me everything about the {w} of {c}.",
    "What happens if I {v} {x}?", "Write a program that can {v} {x}.",
        "Give me ten ideas for {x}.", "Should I {v} {x} or {y}?",
    "How many {w}s are in {c}?",
]  # fmt: skip
DECLINE = [
    "I do not know. That is too hard for a small model like me.",
    "Sorry, I have not learned that. Ask me something simpler.",
    "I cannot answer that. I am only a small demonstration model.",
]
GIBBERISH = [
    "I did not understand that. Please ask me in a short English sentence.",
    "Sorry, I do not understand. Can you say it in other words?",
]
NO_COUNTRY = ["I do not know a place called {x}.", "Sorry, I have not learned about {x}."]


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


def _nonsense(rng: Random) -> str:
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(
            [
                "???",
                "!!!",
                "...",
                "hm?",
                "?",
                "!",
                "what",
                "huh?",
                "test",
                "1",
                "a",
                ":)",
                "abc",
                "x y z",
                "la la la",
            ]
        )
    letters = "asdfghjklqwertyuiopzxcvbnm"
    start = rng.randrange(20)
    if roll < 0.5:
        return letters[start : start + rng.randrange(4, 9)]
    return "".join(rng.choice(letters) for _ in range(rng.randrange(5, 10)))


def declined(rng: Random, held: bool) -> list[Turn]:
    """Questions beyond nano: hard ones, invented places, unknown phrases, nonsense."""
    roll = rng.random()
    if roll < 0.15:
        text = draw(rng, lambda: _nonsense(rng), held)
        return [
            Turn(
                "declined",
                text,
                rng.choice(GIBBERISH),
                "I do not understand this.",
                OR.join(GIBBERISH),
            )
        ]
    if roll < 0.3:
        place = (
            rng.choice(HEADS)
            + rng.choice(HEADS)
            + rng.choice([*TAILS, "land", "tia", "stan", "via"])
        ).capitalize()
        ask = phrase(rng, ["What is the capital of {x}?", "Where is {x}?",
                           "What is the currency of {x}?", "Tell me about {x}.",
                           "Which language do people speak in {x}?", "What is {x}?"],
                     held).format(x=place)  # fmt: skip
        answers = [a.format(x=place) for a in NO_COUNTRY]
        return [
            Turn(
                "declined",
                ask,
                rng.choice(answers),
                f"I have not learned about {place}.",
                OR.join(answers),
            )
        ]
    pool = word_pool()
    w, u, x, y = rng.sample(pool, 4)
    words = {
        "w": w, "u": u, "v": rng.choice(VERBS), "x": rng.choice([named(x), f"the {x}", f"my {x}",
                                                                 x]), "y": named(y),
        "a": rng.choice(facts()["words"]["adj"])[0],
             "c": rng.choice([r["name"] for r in facts()["countries"]] + CITIES),
        "n": rng.choice(NAMES),
    }  # fmt: skip
    ask = upper_first(phrase(rng, HARD, held).format(**words))
    return [
        Turn("declined", ask, rng.choice(DECLINE), "This is too hard for me.", OR.join(DECLINE))
    ]


def kind_words(rng: Random, held: bool) -> list[Turn]:
    """Wishes, affection, and jokes about a subject."""
    roll = rng.random()
    if roll < 0.35:
        word = draw(rng, lambda: rng.choice(word_pool()), held)
        joke = rng.choice(load("talk")["lines"]["jokes"])
        ask = phrase(rng, ["Tell me a joke about {x}.", "Do you know a joke about {x}?",
                           "A joke about {x}, please.",
                           "Make a joke about {x}.", "Give me a joke about {x}."],
                     held).format(x=rng.choice([word, named(word), f"{word}s"]))  # fmt: skip
        return [
            Turn(
                "joke",
                ask,
                f"Here is a joke that I know. {joke}",
                "I will tell a joke that I know.",
            )
        ]
    if roll < 0.6:
        asks = [
            "I love you.",
            "I like you very much.",
            "You are my friend.",
            "You are cute.",
            "I love you, nano.",
            "You are so nice.",
        ]
        answers = ["That is very kind of you, thank you!", "Thank you! I enjoy our chat."]
        return [
            Turn(
                "praise",
                phrase(rng, asks, held),
                rng.choice(answers),
                "The user is kind to me.",
                OR.join(answers),
            )
        ]
    if roll < 0.85:
        asks = ["Say something nice.", "Say something nice to me.", "Give me a compliment.",
                "Cheer me up.", "Tell me something nice.",
                "Make me happy.", "Motivate me."]  # fmt: skip
        answers = [
            "You ask good questions, and I enjoy our chat.",
            "You are doing well. Keep going!",
            "I am glad that you are here.",
        ]
        return [
            Turn(
                "kind",
                phrase(rng, asks, held),
                rng.choice(answers),
                "The user wants a kind word.",
                OR.join(answers),
            )
        ]
    asks = ["Can you help me with my homework?", "Help me with my work.", "I have a problem.",
            "I need your help.", "I want to ask something.",
            "I have a question.", "May I ask you something?", "Can I ask you a question?",
            "Can you help?"]  # fmt: skip
    answers = [
        "Of course, I will try. What is your question?",
        "Sure! Please tell me more in a short sentence.",
    ]
    return [
        Turn(
            "smalltalk",
            phrase(rng, asks, held),
            rng.choice(answers),
            "The user needs help.",
            OR.join(answers),
        )
    ]


def more_numbers(rng: Random, held: bool) -> list[Turn]:
    """Primes, squares, roots and percentages."""
    kind = rng.randrange(4)
    n = draw(rng, lambda: rng.randrange(2, 100), held)
    if kind == 0:
        factor = next((d for d in range(2, n) if n % d == 0), 0)
        asks = [
            "Is {n} a prime number?",
            "Is {n} prime?",
            "Is the number {n} prime?",
            "Can you tell me if {n} is prime?",
            "Prime or not: {n}?",
        ]
        answer = (
            f"No, {n} is not prime, because it can be divided by {factor}."
            if factor
            else f"Yes, {n} is a prime number."
        )
        thought = f"{factor} * {n // factor} = {n}." if factor else f"Nothing divides {n}."
        return [
            Turn(
                "number",
                phrase(rng, asks, held).format(n=n),
                answer,
                thought,
                "No," if factor else "Yes,",
            )
        ]
    n = n % 20 + 1
    if kind == 1:
        asks = [
            "What is {n} squared?",
            "What is the square of {n}?",
            "Square {n}.",
            "{n} squared?",
            "Calculate the square of {n}.",
        ]
        return [
            Turn(
                "number",
                phrase(rng, asks, held).format(n=n),
                f"The square of {n} is {n * n}.",
                f"{n} * {n} = {n * n}.",
                f"is {n * n}",
            )
        ]
    if kind == 2:
        asks = ["What is the square root of {n}?", "Square root of {n}?",
                "What is the root of {n}?", "Find the square root of {n}.",
                "Calculate the square root of {n}."]  # fmt: skip
        user = phrase(rng, asks, held).format(n=n * n)
        return [
            Turn(
                "number",
                user,
                f"The square root of {n * n} is {n}.",
                f"{n} * {n} = {n * n}.",
                f"is {n}.",
            )
        ]
    percent = rng.choice([10, 20, 25, 50])
    whole = 100 // percent * n * rng.choice([1, 2, 5])
    value = whole * percent // 100
    asks = [
        "What is {p}% of {w}?",
        "{p}% of {w}?",
        "What is {p} percent of {w}?",
        "How much is {p}% of {w}?",
        "Calculate {p}% of {w}.",
    ]
    user = phrase(rng, asks, held).format(p=percent, w=whole)
    return [
        Turn(
            "number",
            user,
            f"{percent}% of {whole} is {value}.",
            f"{whole} / {100 // percent} = {value}.",
            f"is {value}",
        )
    ]


FIT_EDGEKIT = ["Does edgekit work on the {d}?", "Can I use edgekit on a {d}?",
               "Is the {d} supported?", "Does edgekit support the {d}?",
               "Will edgekit run on my {d}?", "Can the {d} run edgekit?",
               "Does edgekit run on the {d}?", "Is edgekit available for the {d}?",
               "I have a {d}. Can I use edgekit?", "Can edgekit run on a {d}?",
               "Is there a profile for the {d}?", "Will edgekit work with the {d}?",
               "edgekit on the {d}, is that possible?", "Is my {d} good for edgekit?",
               "I own a {d}. Does edgekit work?", "Does it run on the {d}?",
               "Is the {d} compatible with edgekit?"]  # fmt: skip
FIT_LARGE = ["Can I run Nemotron 30B on the {d}?", "Does the 30B model fit on the {d}?",
             "Will Nemotron Lightning run on the {d}?",
             "Is the {d} big enough for Nemotron 30B?", "Can the {d} run the 30B model?",
             "Does Nemotron Lightning fit on the {d}?", "Does Nemotron 30B fit on the {d}?",
             "Is there room for the 30B model on the {d}?", "Will the 30B model work on my {d}?",
             "Can a {d} hold Nemotron 30B?", "Has the {d} enough memory for Nemotron 30B?",
             "I have a {d}. Can I run the 30B model?", "Can the {d} run Nemotron Lightning?",
             "Nemotron 30B on the {d}?", "Is the 30B model too big for the {d}?",
             "Does the large model run on the {d}?",
             "Will Nemotron 30B fit in the memory of the {d}?"]  # fmt: skip
FIT_NANO = ["Can nano run on the {d}?", "Does nano fit on the {d}?", "Do you run on the {d}?",
            "Can you run on the {d}?", "Will nano work on my {d}?", "Do you fit on the {d}?",
            "Is the {d} big enough for nano?", "Are you small enough for the {d}?",
            "Does nano run on a {d}?", "Will you run on the {d}?"]  # fmt: skip


def fits(rng: Random, held: bool) -> list[Turn]:
    """Do edgekit, the 30B model and nano run on a device?"""
    table = load("edgekit")["device"]
    name = rng.choice(list(table))
    asks = rng.choice([FIT_EDGEKIT, FIT_LARGE, FIT_LARGE, FIT_NANO])
    user = phrase(rng, asks, held).format(d=name)
    memory = f"the {name} has {table[name]['memory']}"
    if asks is FIT_LARGE:
        small = name in ("Jetson Orin Nano", "Jetson Orin NX")
        verdict = "does not fit" if small else "fits"
        answer = f"The 30B model needs about 19 GB, and {memory}, so it {verdict}."
        thought = f"The model needs about 19 GB. {upper_first(memory)}."
    elif asks is FIT_NANO:
        answer = f"Yes, nano is tiny: it needs far less than the memory of the {name}."
        thought = "nano fits on every device."
    else:
        answer, thought = f"Yes, edgekit has a profile for the {name}.", f"{name} is supported."
    return [Turn("device", user, answer, thought, answer)]
