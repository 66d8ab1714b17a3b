"""Messages as people write them: several facts or questions at once, praise, insults."""

# ruff: noqa: SIM905  word lists read better as text

import json
from dataclasses import replace
from functools import partial
from random import Random

from edgekit.recipes.nano.chat import ALL, OR, Turn
from edgekit.recipes.nano.skills.base import (
    article,
    ask,
    clause,
    draw,
    join_words,
    load,
    made,
    made_word,
    upper_first,
)
from edgekit.recipes.nano.skills.common import common
from edgekit.recipes.nano.skills.maths import arithmetic, numbers, units
from edgekit.recipes.nano.skills.talk import devices, talk, talk_answers
from edgekit.recipes.nano.skills.text import COLORS, some_city, some_name, word_pool
from edgekit.recipes.nano.skills.world import countries, elements, things

PETS = "cat dog bird fish horse rabbit mouse hamster parrot turtle".split()
JOBS = (
    "baker doctor farmer teacher painter driver nurse cook pilot student engineer writer singer "
    "gardener lawyer carpenter plumber dentist waiter scientist programmer"
).split()
HOBBIES = (
    "reading cooking swimming dancing singing running hiking chess football tennis music painting "
    "gardening fishing cycling travelling skiing sailing"
).split()
FOODS = (
    "pizza soup bread rice pasta cheese chocolate apples salad fish cake noodles potatoes eggs "
    "curry sushi pancakes tomatoes"
).split()
RELATIVES = "brother sister mother father friend son daughter wife husband uncle aunt boss".split()

# topic: clauses, questions, acknowledgement, recall
# topic: what nano says when it is told, and when it is asked again
ABOUT_ME = {
    "name": ("Nice to meet you, {v}!", "Your name is {v}."),
    "city": ("{v} is a nice place, I have heard.", "You live in {v}."),
    "color": ("{V} is a lovely color.", "Your favorite color is {v}."),
    "pet": ("{A}! I hope it is happy.", "You have {a}."),
    "pet name": ("{v} is a good name for a {p}.", "Your {p} is called {v}."),
    "relative": ("{v} is a nice name.", "Your {p} is called {v}."),
    "age": ("{v} is a fine age.", "You are {v} years old."),
    "job": ("{A} does important work.", "You work as {a}."),
    "hobby": ("{V} sounds like fun.", "You like {v}."),
    "food": ("{V} must taste good.", "You like to eat {v}."),
}
OPENERS = ["Hi, ", "Hello, ", "Hello! ", "Hi! ", "Hey, ", "Hi nano, ", "Hey nano! ", "Well, ",
           "Good morning! ", "By the way, ", "So, ", "Good evening, ",
           "Nice to meet you, "]  # fmt: skip
LINKS = [" and ", " and ", " and ", ", ", ", and ", ". ", ". ", ", but ", "; ", ". Also, ",
         " and also "]  # fmt: skip


def _about_me(rng: Random, topic: str) -> dict[str, str]:
    """The words that fill one topic's texts."""
    p = rng.choice(PETS if topic == "pet name" else RELATIVES)
    value = {
        "name": lambda: some_name(rng), "pet name": lambda: some_name(rng),
        "relative": lambda: some_name(rng), "city": lambda: some_city(rng),
        "color": lambda: rng.choice(COLORS), "pet": lambda: rng.choice(PETS),
        "age": lambda: str(rng.randrange(5, 99)), "job": lambda: rng.choice(JOBS),
        "hobby": lambda: rng.choice(HOBBIES), "food": lambda: rng.choice(FOODS),
    }[topic]()  # fmt: skip
    a = article(value)
    return {"v": value, "V": upper_first(value), "a": a, "A": upper_first(a), "p": p}


def _told(rng: Random, held: bool, most: int) -> tuple[Turn, list[Turn]]:
    """A message with one to ``most`` facts about the user, and a question about each of them."""
    topics = rng.sample(list(ABOUT_ME), rng.choice([1, 2, 2, 2, 3][: 2 * most - 1]))
    if "name" not in topics and rng.random() < 0.5:
        topics[0] = "name"
    if "relative" in topics and "pet name" in topics:
        topics.remove("relative")
    text, link = "", ""
    replies, facts, questions = [], [], []
    for topic in topics:
        reply, recall = ABOUT_ME[topic]
        words = draw(rng, partial(_about_me, rng, topic), held)
        part = clause(rng, f"tell {topic}", held, **words)
        text += link + (upper_first(part) if link == ". " else part)
        link = rng.choice(LINKS)
        replies.append(reply.format(**words))
        facts.append(f"{topic} {words['v']}")
        user = ask(rng, f"recall {topic}", held, **words)
        questions.append(Turn("memory", user, recall.format(**words), "", words["v"]))
    opener = rng.choice(OPENERS) if rng.random() < 0.35 else ""
    text = opener + (text if opener.endswith(", ") else upper_first(text))
    told = "; ".join(facts)
    questions = [replace(q, thought=f"The user told me: {told}.") for q in questions]
    heard = Turn(
        "memory", text, " ".join(replies), f"The user tells me: {told}.", ALL.join(replies)
    )
    return heard, rng.sample(questions, rng.choice([1, 1, len(topics)]))


def memory(rng: Random, held: bool) -> list[Turn]:
    """One to three facts about the user in one message, then questions about them."""
    heard, questions = _told(rng, held, 3)
    text = heard.user + rng.choice([".", ".", ".", "!", ""])
    if rng.random() < 0.2 and not text.endswith("!"):
        return [replace(questions[0], user=f"{text.rstrip('.')}. {questions[0].user}")]
    answer = heard.answer + (" How can I help you?" if rng.random() < 0.1 else "")
    return [replace(heard, user=text, answer=answer), *questions]


NOT_TOLD = {
    "name": "name", "city": "city", "color": "favorite color", "pet": "pet", "age": "age",
    "job": "job", "hobby": "hobby", "food": "favorite food",
}  # fmt: skip


def not_told(rng: Random, held: bool) -> list[Turn]:
    """The user asks for something that they never said."""
    topic = rng.choice(list(NOT_TOLD))
    answer = f"You have not told me your {NOT_TOLD[topic]} yet."
    return [made(rng, held, "not told", f"recall {topic}", answer,
                 f"The user has not told me the {topic}.", answer)]  # fmt: skip


JOINTS = [" And ", " And ", " Also, ", " ", " ", " Then: ", " Another question: ", " Next: ",
          " After that: ", " Also: ", " And one more: ", " Second question: "]  # fmt: skip
BEFORE = ("greeting", "thanks", "praise", "smalltalk", "identity", "critique", "ack")


def _simple(rng: Random, held: bool) -> Turn:
    skill = rng.choice([common, countries, elements, arithmetic, units, numbers, devices, things])
    for _ in range(20):
        turn = skill(rng, held)[0]
        if turn.key and len(turn.user) < 80 and len(turn.answer) < 110:
            break
    return turn


def _ended(text: str, mark: str) -> str:
    return text if text[-1] in ".?!," else text + mark


def _both(first: Turn, joint: str, second: Turn) -> Turn:
    """Two turns as one: both questions, then both answers."""
    follow = second.user
    words = ("What", "Which", "How", "Is", "Where", "Can", "Could", "Tell", "Do", "Please")
    if joint[-2:-1].isalpha() and follow.split()[0] in words:
        follow = follow[0].lower() + follow[1:]
    return Turn("two", first.user + joint + follow, f"{first.answer} {second.answer}",
                f"{first.thought} {second.thought}", f"{first.key}{ALL}{second.key}")  # fmt: skip


def two_questions(rng: Random, held: bool) -> list[Turn]:
    """Two questions in one message, or a greeting, thanks or facts about the user before one."""
    second = _simple(rng, held)
    roll = rng.random()
    if roll < 0.35:
        for _ in range(60):
            first = talk(rng, held)[0]
            if first.skill in BEFORE:
                break
        first = replace(first, user=_ended(first.user, rng.choice([".", "!", ","])))
        return [_both(first, " ", second)]
    if roll < 0.6:
        heard, questions = _told(rng, held, 2)
        heard = replace(heard, user=_ended(heard.user, rng.choice([".", ".", "!", ","])))
        joint = rng.choice([" ", " ", " ", " Now: ", " So ", " And ", " Question: ", " Tell me, "])
        recalled = questions if rng.random() < 0.4 else []
        return [replace(_both(heard, joint, second), skill="memory"), *recalled]
    first = _simple(rng, held)
    return [_both(replace(first, user=_ended(first.user, "?")), rng.choice(JOINTS), second)]


BAD = (
    "stupid dumb useless bad terrible awful silly horrible slow boring annoying lazy broken weak "
    "ridiculous worthless rubbish lousy pathetic crazy mean rude ugly wrong unhelpful"
).split()
GOOD = (
    "great smart clever good wonderful nice helpful brilliant amazing lovely kind friendly funny "
    "awesome cool fantastic excellent perfect useful sweet polite quick interesting cute"
).split()


def judgements(rng: Random, held: bool) -> list[Turn]:
    """Insults get an apology, praise gets thanks, and a denied word turns the meaning."""
    bad = rng.random() < 0.6
    if bad and rng.random() < 0.4:
        text = ask(rng, "insult", held)
    else:
        text = ask(rng, "judgement", held, x="{x}")
        turned = " are " in text and rng.random() < 0.15
        word = rng.choice(GOOD if bad == turned else BAD)
        text = text.replace(" are ", " are not ") if turned else text
        text = text.format(x=word)
        text = text.replace(" a a", " an a").replace(" a i", " an i").replace(" a e", " an e")
    answers = talk_answers("critique" if bad else "praise")
    thought = "The user is not happy with me. I will apologise." if bad else "The user praises me."
    return [Turn("judgement", upper_first(text), rng.choice(answers), thought, OR.join(answers))]


ABLE = {
    "spell words": "Yes, I can spell words. Give me a word!",
    "count letters": "Yes, I can count the letters of a word. Which word?",
    "reverse a word": "Yes, I can reverse a word. Which word?",
    "add numbers": "Yes, I can add numbers. Which numbers?",
    "multiply numbers": "Yes, I can multiply small numbers. Which numbers?",
    "do math": "Yes, I can do small sums. Try me!",
    "calculate": "Yes, I can do small sums. Try me!",
    "convert units": "Yes, I can convert units. What shall I convert?",
    "tell jokes": "Yes, I know some jokes. Shall I tell you one?",
    "tell stories": "Yes, I can tell very short stories. What shall it be about?",
    "write poems": "Yes, I can write small poems. What shall it be about?",
    "write a story": "Yes, I can write very short stories. What shall it be about?",
    "explain words": "Yes, I can explain common words. Which word?",
    "define words": "Yes, I can define common words. Which word?",
    "sort a list": "Yes, I can sort short lists. Give me the words or numbers!",
    "read JSON": "Yes, I can read small JSON objects. Show me one!",
    "chat with me": "Yes, I can chat a little. What would you like to talk about?",
    "answer questions": "Yes, I can answer simple questions. What would you like to know?",
    "use tools": "Yes, I can call tools when you give them to me.",
    "remember my name": "Yes, within this chat. What is your name?",
    "speak English": "Yes, I speak simple English. How can I help you?",
    "count to ten": "Yes, I can: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10.",
    "write code": "I can write a few lines of Python or SQL, no more.",
    "help me with edgekit": "Yes, I know the commands of edgekit. What would you like to do?",
    "name capitals": "Yes, I know many capitals. Which country?",
}  # fmt: skip


def skills_asked(rng: Random, held: bool) -> list[Turn]:
    """Things that nano can do."""
    x, answer = rng.choice(list(ABLE.items()))
    return [
        made(
            rng, held, "ability", "skill asked", answer, "The user asks if I can {x}.", answer, x=x
        )
    ]


RECORDS: list[tuple[str, dict[str, str]]] = [
    ("{name} is {age} years old and lives in {city}.", {"name": "", "age": "", "city": ""}),
    ("{name} lives in {city}.", {"name": "", "city": ""}),
    ("{name} from {city} bought a {color} {item} for {price} euros.",
     {"name": "", "city": "", "color": "", "item": "", "price": ""}),
    ("The {item} costs {price} euros.", {"item": "", "price": ""}),
    ("The {color} {item} belongs to {name}.", {"color": "", "item": "", "name": ""}),
    ("{name} works as a {job} in {city}.", {"name": "", "job": "", "city": ""}),
    ("My name is {name} and I am {age}.", {"name": "", "age": ""}),
    ("Order {id}: one {item} for {name}, {price} euros.",
     {"id": "", "item": "", "name": "", "price": ""}),
    ("{name} met {other} on {day}.", {"name": "", "other": "", "day": ""}),
    ("I need {n} {item}s by {day}.", {"n": "", "item": "", "day": ""}),
]  # fmt: skip


def extraction(rng: Random, held: bool) -> list[Turn]:
    """A JSON object from a sentence."""

    def fill() -> dict[str, str | int]:
        return {
            "name": some_name(rng), "other": some_name(rng), "city": some_city(rng),
            "age": rng.randrange(5, 90), "color": rng.choice(COLORS),
            "price": rng.randrange(1, 300),
            "item": rng.choice(word_pool()) if rng.random() < 0.7 else made_word(rng),
            "job": rng.choice(JOBS), "id": rng.randrange(1, 1000), "n": rng.randrange(2, 60),
            "day": rng.choice("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()),
        }  # fmt: skip

    words = draw(rng, fill, held)
    text, fields = rng.choice(RECORDS)
    keys = rng.sample(list(fields), rng.randrange(1, len(fields) + 1))
    told = text.format(**words)
    answer = json.dumps({k: words[k] for k in keys})
    thought = "I find " + ", ".join(f"{k} {words[k]}" for k in keys) + "."
    return [made(rng, held, "json", "extract json", "{j}", thought, "{j}", exact=True,
                 f=join_words(keys), t=told, j=answer)]  # fmt: skip


def copies(rng: Random, held: bool) -> list[Turn]:
    """Repeat a phrase of known and invented words."""

    def fill() -> str:
        count = rng.choice([1, 1, 2, 3, 4, 5])
        words = [
            made_word(rng) if rng.random() < 0.35 else
            some_name(rng) if rng.random() < 0.2 else rng.choice(word_pool()) for _ in range(count)
        ]  # fmt: skip
        return " ".join(words)

    text = draw(rng, fill, held)
    roll = rng.random()
    if roll < 0.5:
        return [made(rng, held, "copy", "copy", "{x}", "I will copy the text.", "{x}", exact=True,
                     x=text)]  # fmt: skip
    name = text.split()[0].capitalize()
    p = rng.choice([*PETS, *RELATIVES, "king", "robot", "town", "ship", "teacher", "planet"])
    return [made(rng, held, "copy", "name of", "The {p} is called {n}.", "The name is {n}.", "{n}",
                 p=p, n=name)]  # fmt: skip


def more_about(rng: Random, held: bool) -> list[Turn]:
    """A topic in two answers."""
    table: dict[str, list[str]] = load("topics")["topics"]
    subject, answers = rng.choice([(s, a) for s, a in table.items() if len(a) > 1])
    first, second = rng.sample(answers, 2)
    others = OR.join(answer for answer in answers if answer != first)
    return [
        made(rng, held, "topic", "topic", "{r}", "The user asks about {x}.", "{k}", x=subject,
             r=first, k=OR.join(answers)),
        made(rng, held, "topic", "more about", "{r}", "More about {x}.", "{k}", x=subject, r=second,
             k=others),
    ]  # fmt: skip
