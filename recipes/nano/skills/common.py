"""Common sense, abilities, opinions, and questions about the chat itself."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import article, draw, named, phrase, upper_first
from edgekit.recipes.nano.skills.talk import load
from edgekit.recipes.nano.skills.text import word_pool

OPPOSITE = ["What is the opposite of {x}?", "Opposite of {x}?", "Tell me the opposite of {x}.",
            "What's the opposite of {x}?",
            "Which word is the opposite of {x}?", "Give me the opposite of {x}.",
    "What is the contrary of {x}?", "Name the opposite of {x}.", "{x}: what is the opposite?",
            "What word is opposite to {x}?"]  # fmt: skip
COLOR = ["What color is {x}?", "Which color has {x}?", "What is the color of {x}?",
         "Tell me the color of {x}.",
         "Which color is {x}?", "What colour is {x}?"]  # fmt: skip
SOUND = ["What sound does {x} make?", "What does {x} say?", "How does {x} sound?",
         "Which sound does {x} make?",
         "Tell me the sound of {x}."]  # fmt: skip
LEGS = ["How many legs does {x} have?", "How many legs has {x}?", "Number of legs of {x}?",
        "Does {x} have legs?",
        "Tell me how many legs {x} has."]  # fmt: skip
BABY = ["What is a baby {x} called?", "What do you call a baby {x}?", "Name of a baby {x}?",
        "What is a young {x} called?",
        "Tell me the name of a baby {x}."]  # fmt: skip
PLURAL = ["What is the plural of {x}?", "Plural of {x}?", "What's the plural of {x}?",
          "Tell me the plural of {x}.",
          "Which word is the plural of {x}?"]  # fmt: skip
SAY = ["How do you say {x} in {l}?", "What is {x} in {l}?", "Say {x} in {l}.",
       "Translate {x} into {l}.", "Tell me the {l} word for {x}.",
       "What does {x} mean in {l}?", "Translate {x} to {l}.",
    "How do I say {x} in {l}?", "{x} in {l}?", "What is the {l} word for {x}?",
       "Give me {x} in {l}.", "Do you know {x} in {l}?", "What is {l} for {x}?"]  # fmt: skip
CAN = ["Can you {x}?", "Are you able to {x}?", "Do you know how to {x}?", "Could you {x}?",
       "Let us {x}.", "Let's {x}.", "I need you to {x}.", "Can you help me to {x}?",
       "Are you capable to {x}?", "Go and {x}.", "You can {x}, right?", "Can nano {x}?",
       "Do you ever {x}?", "You should {x}.", "I would like you to {x}.", "Shall we {x}?",
       "Will you {x}?", "Please {x}.",
    "Can you {x} for me?", "I want you to {x}.", "Are you good enough to {x}?", "Try to {x}.",
       "Could you please {x}?", "Would you like to {x}?", "Would you {x}?"]  # fmt: skip
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
LIKE = ["Do you like {x}?", "What do you think about {x}?", "Do you love {x}?", "Is {x} nice?",
        "Is {x} good?",
        "Do you want {x}?", "How do you like {x}?",
    "Are you a fan of {x}?", "Your opinion on {x}?", "What is your opinion on {x}?",
        "Tell me what you think about {x}.", "Do you prefer {x}?", "Do you hate {x}?",
        "Would you like {x}?"]  # fmt: skip
REPEAT = ["Can you repeat that?", "Say that again.", "Repeat your answer.", "What did you say?",
          "Tell me again.", "Again, please.",
          "Could you repeat that?",
    "Repeat that.", "Say it again.", "Repeat, please.", "One more time, please.",
          "I did not hear you.", "Can you say that again?", "Repeat your last answer.",
          "Please say that again."]  # fmt: skip
ASKED = ["What did I ask?", "What was my question?", "What did I just say?",
         "What was my last message?", "Do you remember my question?",
         "What did I just ask you?",
    "What did I say?", "Repeat my question.", "Repeat what I said.", "What was the question?",
         "Tell me what I asked.", "Can you repeat my question?", "What did I write?"]  # fmt: skip


def common(rng: Random, held: bool) -> list[Turn]:
    """Well-known facts and small word tables."""
    tables = load("common")
    kind = rng.choice(
        ["fact"] * 6
        + ["opposites", "opposites", "colors", "sounds", "legs", "babies", "plurals", "words"]
    )
    if kind == "fact":
        entry = rng.choice(tables["fact"])
        user = rng.choice(entry["held"] if held else entry["ask"])
        return [Turn("common", user, entry["answer"], "I know this fact.", entry["answer"])]
    if kind == "words":
        word, row = rng.choice(list(tables["words"].items()))
        language, value = rng.choice(list(row.items()))
        user = phrase(rng, SAY, held).format(x=word, l=language)
        answer = f"{upper_first(word)} in {language} is {value}."
        return [
            Turn(
                "common", user, answer, f"The {language} word for {word} is {value}.", f"is {value}"
            )
        ]
    word, value = rng.choice(list(tables[kind].items()))
    asks, subject, answer = {
        "opposites": (OPPOSITE, word, f"The opposite of {word} is {value}."),
        "colors": (COLOR, word, f"{upper_first(word)} is {value}."),
        "sounds": (SOUND, article(word), f"{upper_first(article(word))} says {value}."),
        "legs": (LEGS, article(word), f"{upper_first(article(word))} has {value} legs."),
        "babies": (BABY, word, f"A baby {word} is called {article(value)}."),
        "plurals": (PLURAL, word, f"The plural of {word} is {value}."),
    }[kind]
    thought = f"The user asks about {subject}. The answer is {value}."
    return [Turn("common", phrase(rng, asks, held).format(x=subject), answer, thought, value)]


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
        answers = [f"No, I cannot {x}. I can only read and write text.",
                   f"I cannot {x}, because I am a program that writes text.",
                   f"Sorry, I am not able to {x}. But I can chat with you."]  # fmt: skip
        user = phrase(rng, CAN, held).format(x=x)
        return [Turn("ability", user, rng.choice(answers), f"I cannot {x}.", OR.join(answers))]
    x = draw(rng, lambda: rng.choice(word_pool()), held)
    x = rng.choice([named(x), f"the {x}"])
    answers = [f"I am a program, so I have no taste. But {x} sounds nice.",
               f"I have no feelings about {x}. Do you like it?",
               f"I cannot say. Tell me what you think about {x}!"]  # fmt: skip
    user = phrase(rng, LIKE, held).format(x=x)
    return [
        Turn(
            "opinion",
            user,
            rng.choice(answers),
            f"The user asks for my opinion on {x}.",
            OR.join(answers),
        )
    ]


def echo(rng: Random, last: Turn, held: bool) -> Turn:
    """A question about the turn before."""
    if rng.random() < 0.5:
        return Turn(
            "echo",
            phrase(rng, REPEAT, held),
            last.answer,
            "I will repeat my last answer.",
            last.answer,
            exact=True,
        )
    answer = f'You said: "{last.user}"'
    return Turn("echo", phrase(rng, ASKED, held), answer, "I will repeat the last message.", answer)


def echoes(rng: Random, held: bool) -> list[Turn]:
    """A fact and a question about it."""
    first = common(rng, held)
    return [*first, echo(rng, first[-1], held)]
