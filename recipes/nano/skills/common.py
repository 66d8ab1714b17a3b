"""Common sense, abilities, opinions, and questions about the chat itself."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import (
    article,
    ask,
    draw,
    entry_phrasing,
    load,
    made,
    named,
    upper_first,
)
from edgekit.recipes.nano.skills.text import word_pool

OPPOSITE = ["What is the opposite of {x}?", "Opposite of {x}?", "Tell me the opposite of {x}.",
            "What's the opposite of {x}?", "Which word is the opposite of {x}?", "{x} opposite",
            "Give me the opposite of {x}.", "What is the contrary of {x}?", "opposite of {x}",
            "Name the opposite of {x}.", "{x}: what is the opposite?", "Not {x} but what?",
            "What word is opposite to {x}?", "Which word means the opposite of {x}?",
            "What is the antonym of {x}?", "{x} is the opposite of what?",
            "Say the opposite of {x}.",
            "If it is not {x}, what is it?", "The reverse of {x} in meaning?"]  # fmt: skip
COLOR = ["What color is {x}?", "Which color has {x}?", "{x} color",
         "Tell me the color of {x}.", "Which color is {x}?", "What colour is {x}?", "color of {x}?",
         "Which colour does {x} have?", "What color does {x} have?", "{x}: which color?",
         "In which color do I paint {x}?", "What is the colour of {x}?",
         "Is {x} red, green, blue or what?", "{x} has which color?"]  # fmt: skip
SOUND = ["What sound does {x} make?", "What does {x} say?", "How does {x} sound?",
         "Which sound does {x} make?", "Tell me the sound of {x}.", "sound of {x}?",
         "What is the sound of {x}?", "{x} makes which sound?", "How does {x} talk?",
         "What can I hear from {x}?", "Which sound comes from {x}?", "{x} says what?",
         "Make the sound of {x}.", "What is the cry of {x}?"]  # fmt: skip
LEGS = ["How many legs does {x} have?", "How many legs has {x}?", "Number of legs of {x}?",
        "Does {x} have legs?", "Tell me how many legs {x} has.", "legs of {x}?", "{x}: legs?",
        "Count the legs of {x}.", "{x} has how many legs?", "On how many legs does {x} walk?",
        "How many legs do I see on {x}?", "How many feet does {x} have?"]  # fmt: skip
BABY = ["What is a baby {x} called?", "What do you call a baby {x}?", "Name of a baby {x}?",
        "What is a young {x} called?", "Tell me the name of a baby {x}.", "baby {x}?",
        "What do people call a young {x}?", "A baby {x} is a what?", "The baby of a {x} is called?",
        "What is the word for a baby {x}?", "How is a young {x} called?", "{x} baby name?",
        "What is the young of a {x} called?"]  # fmt: skip
PLURAL = ["What is the plural of {x}?", "Plural of {x}?", "What's the plural of {x}?",
          "Tell me the plural of {x}.", "Which word is the plural of {x}?", "{x} plural",
          "One {x}, two what?", "How do I write more than one {x}?", "{x} in plural?",
          "What is the plural form of {x}?", "Make the plural of {x}.", "One {x}, many ...?",
          "What do I call two of {x}?", "Put {x} in the plural.",
          "I have one {x}. And two?"]  # fmt: skip
SAY = ["How do you say {x} in {l}?", "What is {x} in {l}?", "Say {x} in {l}.", "{x} {l}?",
       "Translate {x} into {l}.", "Tell me the {l} word for {x}.", "{x} in {l}, please.",
       "What does {x} mean in {l}?", "Translate {x} to {l}.", "How do I say {x} in {l}?",
       "{x} in {l}?", "What is the {l} word for {x}?", "Give me {x} in {l}.", "translate {x} {l}",
       "Do you know {x} in {l}?", "What is {l} for {x}?", "What is {x} called in {l}?",
       "How is {x} said in {l}?", "The {l} word for {x}?", "I want to say {x} in {l}.",
       "In {l}, what is {x}?", "What is the {l} translation of {x}?", "Write {x} in {l}.",
       "How do {l} speakers say {x}?", "Which {l} word means {x}?"]  # fmt: skip
CAN = ["Can you {x}?", "Are you able to {x}?", "Do you know how to {x}?", "Could you {x}?",
       "Let us {x}.", "Let's {x}.", "I need you to {x}.", "Can you help me to {x}?", "Now {x}.",
       "Are you capable to {x}?", "Go and {x}.", "You can {x}, right?", "Can nano {x}?",
       "Do you ever {x}?", "You should {x}.", "I would like you to {x}.", "Shall we {x}?",
       "Will you {x}?", "Please {x}.", "Can you {x} for me?", "I want you to {x}.", "{x}, please.",
       "Are you good enough to {x}?", "Try to {x}.", "Could you please {x}?", "{x} for me.",
       "Would you like to {x}?", "Would you {x}?", "Have you ever tried to {x}?", "Do you {x}?",
       "Is nano able to {x}?", "Did you ever {x}?", "Do you want to {x}?", "Can you also {x}?",
       "Could you {x} tomorrow?", "Can a model {x}?", "Can an AI like you {x}?", "Help me {x}.",
       "Is it possible for you to {x}?", "Why can you not {x}?", "Do you often {x}?", "just {x}",
       "Are you going to {x}?", "I dream that you {x}.", "When will you {x}?", "You must {x}.",
       "I bet you cannot {x}.", "Would you mind to {x}?", "I order you to {x}.", "Can u {x}",
       "Can you {x} with me?", "Could you ever {x}?", "Did you {x} today?", "Please {x} for me.",
       "Is there a way that you {x}?", "Can you please {x}?",
       "Have you learned to {x}?"]  # fmt: skip
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
        "Is {x} good?", "Do you want {x}?", "How do you like {x}?", "Are you a fan of {x}?",
        "Your opinion on {x}?", "What is your opinion on {x}?", "Do you dislike {x}?",
        "Tell me what you think about {x}.", "Do you prefer {x}?", "Do you hate {x}?",
        "Would you like {x}?", "What do you think of {x}?", "Do you find {x} nice?",
        "Are you afraid of {x}?", "Do you care about {x}?", "Is {x} beautiful?", "Do you need {x}?",
        "What is your view on {x}?", "Would you buy {x}?", "Do you miss {x}?", "Is {x} bad?",
        "Are you interested in {x}?", "Do you think {x} is nice?", "Does {x} make you happy?",
        "Have you an opinion on {x}?", "What are your feelings about {x}?", "{x}: good or bad?",
        "Do you wish for {x}?", "Is {x} something you like?", "Do you dream of {x}?", "Like {x}?",
        "Would you recommend {x}?", "Do you like or hate {x}?", "Is {x} to your taste?",
        "Do you also like {x}?", "Would {x} make you happy?", "What do you say to {x}?",
        "Are you happy with {x}?", "Do you believe in {x}?"]  # fmt: skip
REPEAT = ["Can you repeat that?", "Say that again.", "Repeat your answer.", "What did you say?",
          "Tell me again.", "Again, please.", "Could you repeat that?", "Repeat that.", "Again?",
          "Say it again.", "Repeat, please.", "One more time, please.", "I did not hear you.",
          "Can you say that again?", "Repeat your last answer.", "Please say that again.",
          "Pardon?", "What did you just say?", "I missed that.", "Once again, please.", "repeat",
          "What was your answer?", "Can you repeat your answer?", "I did not get your answer.",
          "Your answer again, please.", "Show me your last answer again.", "Come again?",
          "What was your last answer?", "What did you answer?", "Would you repeat that?",
          "Write your answer again."]  # fmt: skip
ASKED = ["What did I ask?", "What was my question?", "What did I just say?", "my last message?",
         "What was my last message?", "Do you remember my question?", "What did I just ask you?",
         "What did I say?", "Repeat my question.", "Repeat what I said.", "What was the question?",
         "Tell me what I asked.", "Can you repeat my question?", "What did I write?",
         "What have I asked you?", "What were my words?", "Show me my last message.",
         "Which question did I ask?", "Do you know my last question?", "Quote my message.",
         "What did I want to know?", "Read my question back to me.", "What have I just said?",
         "Say my question again.", "What did I type?", "Do you remember what I said?",
         "What was it I said?", "Repeat my words.", "Tell me my last question."]  # fmt: skip


def common(rng: Random, held: bool) -> list[Turn]:
    """Well-known facts and small word tables."""
    tables = load("common")
    kind = rng.choice(
        ["fact"] * 6
        + ["opposites", "opposites", "colors", "sounds", "legs", "babies", "plurals", "words"]
    )
    if kind == "fact":
        entry = rng.choice(tables["fact"])
        user = entry_phrasing(rng, entry, held)
        return [Turn("common", user, entry["answer"], "I know this fact.", entry["answer"])]
    if kind == "words":
        word, row = rng.choice(list(tables["words"].items()))
        language, value = rng.choice(list(row.items()))
        return [made(rng, held, "common", SAY, f"{upper_first(word)} in {{l}} is {{v}}.",
                     "The {l} word for {x} is {v}.", "is {v}", x=word, l=language,
                     v=value)]  # fmt: skip
    word, value = rng.choice(list(tables[kind].items()))
    asks, subject, answer = {
        "opposites": (OPPOSITE, word, f"The opposite of {word} is {value}."),
        "colors": (COLOR, word, f"{upper_first(word)} is {value}."),
        "sounds": (SOUND, article(word), f"{upper_first(article(word))} says {value}."),
        "legs": (LEGS, article(word), f"{upper_first(article(word))} has {value} legs."),
        "babies": (BABY, word, f"A baby {word} is called {article(value)}."),
        "plurals": (PLURAL, word, f"The plural of {word} is {value}."),
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
        skill, asks, thought = "ability", CAN, "I cannot {x}."
    else:
        noun = draw(rng, lambda: rng.choice(word_pool()), held)
        x = rng.choice([named(noun), f"the {noun}"])
        answers = ["I am a program, so I have no taste. But {x} sounds nice.",
                   "I have no feelings about {x}. Do you like it?",
                   "I cannot say. Tell me what you think about {x}!"]  # fmt: skip
        skill, asks, thought = "opinion", LIKE, "The user asks for my opinion on {x}."
    return [made(rng, held, skill, asks, rng.choice(answers), thought, OR.join(answers), x=x)]


def echo(rng: Random, last: Turn, held: bool) -> Turn:
    """A question about the turn before."""
    if rng.random() < 0.5:
        user, thought = ask(rng, REPEAT, held), "I will repeat my last answer."
        return Turn("echo", user, last.answer, thought, last.answer, exact=True)
    answer = f'You said: "{last.user}"'
    return Turn("echo", ask(rng, ASKED, held), answer, "I will repeat the last message.", answer)


def echoes(rng: Random, held: bool) -> list[Turn]:
    """A fact and a question about it."""
    first = common(rng, held)
    return [*first, echo(rng, first[-1], held)]
