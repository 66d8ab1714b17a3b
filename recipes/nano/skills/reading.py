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
from edgekit.recipes.nano.skills.world import ABOUT, COUNTRY, country_name, facts, lookalike
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
HARD = [
    "How do I {v} {x}?", "How can I {v} {x}?", "What is the best way to {v} {x}?",
    "Teach me to {v} {x}.", "Why is the {w} {a}?", "Explain {a} {w}.", "What is {a} {w}?",
    "Which {w} is the most {a}?", "Who found the first {w}?", "What is the largest {w} in {c}?",
    "Where is the nearest {w}?", "Summarize: The {w} was {a} and the {u} was in {c}.",
    "Write a letter to {n} about {x}.", "Translate the {a} {w} to French.",
    "Why do people {v} {x}?", "Is there a {a} {w} in {c}?", "How far is the {w} from {c}?",
    "When was the {w} in {c} built?", "Plan a trip to {c} with {x}.",
    "Tell me everything about the {w} of {c}.", "What happens if I {v} {x}?",
    "Write a program that can {v} {x}.", "Give me ten ideas for {x}.", "Should I {v} {x} or {y}?",
    "How many {w}s are in {c}?",
]  # fmt: skip
HARDER = [
    "How long does it take to {v} {x}?", "Who is able to {v} {x}?", "When should I {v} {x}?",
    "Where can I learn to {v} {x}?", "What does it cost to {v} {x}?", "Why should I {v} {x}?",
    "Is it legal to {v} {x} in {c}?", "Who taught you to {v} {x}?", "Is it hard to {v} {x}?",
    "Which tools do I use to {v} {x}?", "How often should I {v} {x}?", "Why can nobody {v} {x}?",
    "Tell me step by step how to {v} {x}.", "Write instructions to {v} {x}.", "Recipe for {x}?",
    "Describe how people in {c} {v} {x}.", "Which person can {v} {x}?", "Who will {v} {x}?",
    "Write a plan for {x}.", "Make a list of ways to {v} {x}.", "Help me, I must {v} {x}.",
    "Which {w} of {c} is the most {a}?", "What is the oldest {w} in {c}?", "Who made the {a} {w}?",
    "Where in {c} is the {a} {w}?", "How many people in {c} have {y}?", "What did {n} {v} in {c}?",
    "Why did {n} {v} {x}?", "Where is {n} now?", "What does {n} think about {x}?",
    "Does {n} like the {a} {w}?", "Compare the {w} with the {u}.", "Which is better, {x} or {y}?",
    "Why is {x} more {a} than {y}?", "What will {c} do about {x}?", "Is {x} {a}?", "Who {d} {x}?",
    "What is the {p} of the {w} in {c}?", "When did {c} {v} its first {w}?",
    "Prove that {x} is {a}.",
    "How does a {a} {w} become {b}?", "What comes after the {a} {w}?", "Is the {w} {a} or {b}?",
    "Write a speech about the {w} of {c}.", "Write a long essay on {a} {w}.",
    "Correct my text: {w} {a} {u}.",
    "What is the difference between {a} {w} and {b} {w}?", "Solve the problem of the {a} {w}.",
    "What is wrong with the {a} {w}?", "Explain why the {w} {s} the {u}.", "Invest in {x} or {y}?",
    "Explain the {p} of {a} {w} to me.", "Review the {w} of {n}.",
    "Translate this into Spanish: the {a} {w} {s} {y}.", "How do you say the {a} {w} in Latin?",
    "What did the {w} say to the {u}?", "Find the {a} {w} on a map.", "Which {w} {s} {x}?",
    "Can a {w} {v} {x}?", "Would a {a} {w} {v} {x}?", "What if the {w} were {a}?",
    "Describe {a} {w}.",
    "How {m} is the {w} of {n}?", "What is the most {a} {w}?", "Recommend a {a} {w}.",
    "What are the news about {x}?", "Who won the {w} in {c}?", "What time does the {w} open?",
    "How do I get from the {w} to the {u}?", "Why does my {w} {v}?",
    "My {w} is {a}. What shall I do?",
    "My {w} does not {v}. Why?", "Which {w} should I buy?", "Order {x} for me.",
    "Fill in: the {w} is ...",
]  # fmt: skip
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
NO_ELEMENT_ASKS = [
    "What is the symbol of {x}?", "What is the atomic number of {x}?",
    "What kind of element is {x}?",
    "Which symbol does {x} have?", "How many protons does {x} have?", "Symbol of {x}?",
    "Is {x} a metal?", "Which number is {x}?", "Tell me about the element {x}.",
    "What is the chemical symbol for {x}?", "{x} symbol", "{x} atomic number",
]  # fmt: skip


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
    asks = COUNTRY[rng.choice(["capital", "capital", "currency", "language", "continent"])][0]
    if not held and rng.random() < 0.2:
        asks = ABOUT
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
        NO_ELEMENT_ASKS, answer, "{x} is not an element I know.",
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
    asks = HARD if held else rng.choice([HARD, HARDER, HARDER])
    return [made(rng, held, "declined", asks, rng.choice(DECLINE), "This is too hard for me.",
                 DECLINED, **words)]  # fmt: skip


JOKE_ABOUT = ["Tell me a joke about {x}.", "Do you know a joke about {x}?", "joke about {x}",
              "A joke about {x}, please.", "Make a joke about {x}.",
              "Say something funny about {x}.", "I want a joke about {x}.", "Got a joke about {x}?",
              "Is there a joke about {x}?", "Make me laugh with {x}."]  # fmt: skip
LOVE = [
    "I love you.", "I like you very much.", "You are my friend.", "You are cute.", "I adore you.",
    "I love you, nano.", "You are so nice.", "You are so kind to me.", "I am fond of you.",
    "I love talking to you.", "You are sweet.", "You make me happy.", "I like talking to you.",
    "We are friends.", "You are a good friend.", "I enjoy this chat.", "Can we be friends?",
    "I like our talks.", "You are the nicest model.", "My heart is yours.", "I trust you.",
    "You are my favorite model.", "I am happy to have you.", "I missed you.", "love you",
    "You are wonderful to talk to.", "It is nice to talk to you.", "You are lovely.", "I like u",
    "I really enjoy talking with you.", "Will you be my friend?", "I am glad I met you.",
    "You are the friend I need.", "You are a friend to me.", "Be my friend.", "I love nano.",
    "I have never had such a nice chat.", "I like you a lot.", "nano, I like you.",
    "We two are pals.",
    "You are dear to me.", "I care about you.", "You are like a friend.", "I do like you.",
]  # fmt: skip
NICE = [
    "Say something nice.", "Say something nice to me.", "Give me a compliment.", "Cheer me up.",
    "Tell me something nice.", "Make me happy.", "Motivate me.", "Say something kind.",
    "Please be nice to me.", "Encourage me.", "I need a compliment.", "Tell me that I am good.",
    "Give me some courage.", "Say a nice thing.", "Make my day better.", "Write me a nice line.",
    "Tell me something good.", "I need some motivation.", "Do you have a kind word for me?",
    "Lift my mood.", "Say something that makes me smile.", "A compliment, please.", "Comfort me.",
    "I would like to hear something nice.", "Can you cheer me up?", "Give me hope.", "praise me",
    "Say something friendly.", "I could use a compliment.", "Tell me I can do it.",
    "Make me smile.",
    "Can you say a kind thing?", "Send me a friendly word.", "Please motivate me.",
    "Do you have something nice to say?", "Help me feel better.", "Please say a friendly word.",
    "I want to hear a compliment.", "Say something warm.", "Kind words, please.", "cheer me up pls",
]  # fmt: skip
KIND = [
    "You ask good questions, and I enjoy our chat.", "You are doing well. Keep going!",
    "I am glad that you are here.",
]  # fmt: skip
NEED_HELP = [
    "Can you help me with my homework?", "Help me with my work.", "I have a problem.", "Help me!",
    "I need your help.", "I have a question.", "I need advice.",
    "May I ask you something?", "Can I ask you a question?", "Can you help?", "Could you help me?",
    "I have some questions.", "help", "Please help me.", "I need help.", "Are you able to help me?",
    "There is something I want to ask.", "I want to know something.", "Would you help me?",
    "I have a small question.", "Let me ask you something.", "I am stuck.",
    "I do not know what to do.",
    "Do you have time for a question?", "Can I ask something?", "I could use your help.",
    "I need an answer.", "Will you help me?", "Can you assist me?", "One question, please.",
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
        return [made(rng, held, "joke", JOKE_ABOUT, f"Here is a joke that I know. {joke}",
                     "I will tell a joke that I know.", "",
                     x=rng.choice([word, named(word), f"{word}s"]))]  # fmt: skip
    skill, asks, answers, thought = (
        ("praise", LOVE, talk_answers("praise"), "The user is kind to me.") if roll < 0.6 else
        ("kind", NICE, KIND, "The user wants a kind word.") if roll < 0.85 else
        ("smalltalk", NEED_HELP, HELPS, "The user needs help.")
    )  # fmt: skip
    return [made(rng, held, skill, asks, rng.choice(answers), thought, OR.join(answers))]


PRIME = ["Is {n} a prime number?", "Is {n} prime?", "Is the number {n} prime?", "prime: {n}?",
         "Can you tell me if {n} is prime?", "{n} prime?", "Is {n} a prime?",
         "Check if {n} is prime.", "Does {n} have divisors?", "Can {n} be divided?",
         "{n}, a prime?",
         "Is {n} among the primes?", "Would you say {n} is prime?", "Is {n} a prime or not?",
         "Do you think that {n} is a prime number?", "Test if {n} is prime."]  # fmt: skip
SQUARE = ["What is {n} squared?", "What is the square of {n}?", "Square {n}.", "{n} squared?",
          "{n} squared", "How much is {n} squared?", "square of {n}",
          "How much is the square of {n}?", "What do I get if I square {n}?",
          "{n} to the power of 2?",
          "What is the second power of {n}?", "Take the square of {n}.", "Find the square of {n}.",
          "What is {n} times itself?", "Multiply {n} by itself.", "{n}^2"]  # fmt: skip
ROOT = ["What is the square root of {n}?", "Square root of {n}?", "What is the root of {n}?",
        "Find the square root of {n}.", "root of {n}",
        "How much is the square root of {n}?", "Which number squared gives {n}?", "sqrt({n})",
        "Which number times itself is {n}?", "Take the square root of {n}.", "sqrt {n}?",
        "Give me the square root of {n}.", "{n}: what is its square root?"]  # fmt: skip
PERCENT = ["What is {p}% of {w}?", "{p}% of {w}?", "What is {p} percent of {w}?", "{p} % of {w}",
           "How much is {p}% of {w}?", "{p} percent of {w}?",
           "How much is {p} percent of {w}?", "Find {p}% of {w}.", "What are {p}% of {w}?",
           "I need {p}% of {w}.", "Take {p} percent of {w}.", "If I take {p}% of {w}, what is it?",
           "Work out {p} percent of {w}.", "Of {w}, how much is {p}%?",
           "{p}% from {w}?"]  # fmt: skip


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
        return [made(rng, held, "number", PRIME, work + verdict, "I try to divide {n}.",
                     verdict.rstrip("."), n=n)]  # fmt: skip
    n = n % 20 + 1
    if kind == 1:
        return [made(rng, held, "number", SQUARE, "The square of {n} is {v}.", "{n} * {n} = {v}.",
                     "is {v}.", n=n, v=n * n)]  # fmt: skip
    if kind == 2:
        return [made(rng, held, "number", ROOT, "The square root of {n} is {v}.",
                     "{v} * {v} = {n}.", "is {v}.", n=n * n, v=n)]  # fmt: skip
    percent = rng.choice([10, 20, 25, 50])
    whole = 100 // percent * n * rng.choice([1, 2, 5])
    return [made(rng, held, "number", PERCENT, "{p}% of {w} is {v}.", "{w} / {f} = {v}.", "is {v}.",
                 p=percent, w=whole, v=whole * percent // 100, f=100 // percent)]  # fmt: skip


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
    user = ask(rng, asks, held, d=alias(rng, name, held))
    return [Turn("device", user, answer, thought, answer)]
