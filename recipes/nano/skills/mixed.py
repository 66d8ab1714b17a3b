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
from edgekit.recipes.nano.skills.talk import WHAT, devices, talk, talk_answers
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
ABOUT_ME: dict[str, tuple[list[str], list[str], str, str]] = {
    "name": (
        ["my name is {v}", "I am {v}", "I am called {v}", "my name's {v}", "you can call me {v}",
         "call me {v}", "people call me {v}", "this is {v}", "I'm {v}", "they call me {v}",
         "my friends call me {v}", "my first name is {v}", "you may call me {v}", "I was named {v}",
         "it's me, {v}", "my parents named me {v}", "here is {v}", "{v} is my name", "name's {v}"],
        ["What is my name?", "Do you remember my name?", "Who am I?", "Can you say my name?",
         "What's my name?", "How am I called?", "Do you know who I am?",
         "What did I say my name is?",
         "Tell me my name.", "Say my name.", "Do you know my name?", "My name is what?",
         "Have you forgotten my name?", "What was my name again?", "Which name did I tell you?",
         "What name do I have?", "my name?", "Who is talking to you?", "How do people call me?"],
        "Nice to meet you, {v}!", "Your name is {v}."),
    "city": (
        ["I live in {v}", "I am from {v}", "my home is in {v}", "I come from {v}",
         "my city is {v}", "I was born in {v}", "I moved to {v}", "my house is in {v}",
         "my home town is {v}", "I work in {v}", "I am in {v}", "I grew up in {v}", "I stay in {v}",
         "my family lives in {v}", "I am at home in {v}", "my flat is in {v}", "home for me is {v}",
         "I am living near {v}", "{v} is my home", "{v} is where I live"],
        ["Where do I live?", "Where am I from?", "Which city do I live in?",
         "Do you know where I live?", "What is my city?", "Do you remember where I live?",
         "Where is my home?", "Tell me where I live.", "In which city do I live?",
         "What city am I from?", "Which city am I from?", "my city?", "Where did I say I live?",
         "Which place is my home?", "What is my home town?", "What town do I live in?",
         "Where am I at home?"],
        "{v} is a nice place, I have heard.", "You live in {v}."),
    "color": (
        ["my favorite color is {v}", "I like the color {v}", "my favourite colour is {v}",
         "{v} is my favorite color", "I like {v} best", "the color I like most is {v}",
         "I love the color {v}", "{v} is the color that I like", "I like {v} things",
         "I prefer {v}", "the best color is {v}", "the color for me is {v}", "I love {v}",
         "{v} is my color"],
        ["What is my favorite color?", "Which color do I like?",
         "Do you remember my favorite color?", "What color do I like?",
         "What is my favourite colour?", "Which color is my favorite?",
         "Tell me my favorite color.",
         "Do you know my favorite color?", "Which color do I love?", "my color?",
         "What color did I say I like?", "Which color do I prefer?", "What is my color?"],
        "{V} is a lovely color.", "Your favorite color is {v}."),
    "pet": (
        ["I have {a}", "my pet is {a}", "I have a pet, {a}", "I own {a}", "I live with {a}",
         "there is {a} in my house", "I got {a}", "we have {a}", "I keep {a}", "at home I have {a}",
         "I bought {a}", "my family has {a}", "I take care of {a}", "{a} is my pet",
         "I look after {a}",
         "I adopted {a}", "I have had {a} for years", "at home there is {a}",
         "my best friend is {a}",
         "I share my home with {a}"],
        ["What pet do I have?", "Which animal do I have?", "Do you remember my pet?",
         "What is my pet?", "Which pet do I have?", "Do I have a pet?", "What animal do I own?",
         "Tell me which pet I have.", "What kind of pet do I have?", "my pet?",
         "Which pet is mine?",
         "What animal did I tell you about?", "Which animal do I own?",
         "What pet is it that I have?"],
        "{A}! I hope it is happy.", "You have {a}."),
    "pet name": (
        ["my {p} is called {v}", "my {p}'s name is {v}", "the name of my {p} is {v}",
         "I have a {p} called {v}", "I call my {p} {v}",
         "my {p} is named {v}", "{v} is the name of my {p}", "my {p} has the name {v}",
         "I gave my {p} the name {v}", "our {p} is called {v}", "I named my {p} {v}",
         "my {p} listens to {v}"],
        ["What is the name of my {p}?", "What is my {p}'s name?", "How is my {p} called?",
         "Do you remember the name of my {p}?",
         "What is my {p} called?", "Which name has my {p}?", "name of my {p}?",
         "Which name did I give my {p}?", "What name does my {p} have?"],
        "{v} is a good name for a {p}.", "Your {p} is called {v}."),
    "relative": (
        ["my {p} is called {v}", "my {p}'s name is {v}", "the name of my {p} is {v}",
         "I have a {p} called {v}", "{v} is my {p}",
         "my {p} is {v}", "the name of my {p} is {v}", "my {p} has the name {v}",
         "{v} is the name of my {p}", "I live with my {p} {v}", "I have a {p}, {v}"],
        ["What is the name of my {p}?", "What is my {p}'s name?", "Who is my {p}?",
         "Do you remember the name of my {p}?", "What is my {p} called?", "name of my {p}?",
         "Which name has my {p}?",
         "What name does my {p} have?", "Do you know my {p}'s name?"],
        "{v} is a nice name.", "Your {p} is called {v}."),
    "age": (
        ["I am {v} years old", "I'm {v}", "I am {v}", "my age is {v}", "I turned {v}",
         "I just turned {v}", "I'm {v} years old", "I will be {v} for a year", "I have {v} years",
         "I reached {v}", "my birthday made me {v}", "I am already {v}", "I am {v} of age"],
        ["How old am I?", "What is my age?", "Do you remember my age?", "Tell me my age.",
         "Do you know how old I am?", "How many years old am I?", "my age?", "Which age do I have?",
         "What age am I?", "How old did I say I am?"],
        "{v} is a fine age.", "You are {v} years old."),
    "job": (
        ["I am {a}", "I work as {a}", "my job is {v}", "I am {a} by trade", "I'm {a}",
         "I have a job as {a}", "I earn my money as {a}", "I have been {a} for years",
         "by day I am {a}",
         "my profession is {v}", "I became {a}", "they pay me as {a}", "I make a living as {a}",
         "I got a job as {a}"],
        ["What is my job?", "What do I do for a living?", "Do you remember my job?",
         "What do I work as?", "Which job do I have?", "Tell me my job.", "my job?",
         "What is my work?",
         "What is my profession?", "Which work do I do?", "How do I earn my money?",
         "What job did I tell you?"],
        "{A} does important work.", "You work as {a}."),
    "hobby": (
        ["I like {v}", "my hobby is {v}", "I enjoy {v}", "I love {v}", "in my free time I like {v}",
         "{v} is my hobby", "I am good at {v}", "on weekends I like {v}",
         "I spend my time with {v}",
         "{v} is fun for me", "I do a lot of {v}", "I am a fan of {v}", "I am into {v}",
         "my free time is for {v}", "nothing is better than {v}"],
        ["What is my hobby?", "What do I like to do?", "Do you remember my hobby?",
         "What do I enjoy?", "Which hobby do I have?", "Tell me my hobby.", "my hobby?",
         "What do I do in my free time?", "What is fun for me?", "Which hobby did I tell you?"],
        "{V} sounds like fun.", "You like {v}."),
    "food": (
        ["I like to eat {v}", "my favorite food is {v}", "I love to eat {v}", "I eat a lot of {v}",
         "my favourite food is {v}", "{v} is my favorite food", "the food I like best is {v}",
         "I often eat {v}",
         "I could eat {v} every day", "I love the taste of {v}", "the best food is {v}",
         "I eat {v} every day", "for lunch I love {v}", "give me {v} to eat and I am happy"],
        ["What do I like to eat?", "What is my favorite food?", "Do you remember my favorite food?",
         "Which food do I like?", "What is my favourite food?", "Tell me my favorite food.",
         "What do I love to eat?", "Which food is my favorite?", "my favorite food?",
         "What did I say I like to eat?", "What food do I prefer?"],
        "{V} must taste good.", "You like to eat {v}."),
}  # fmt: skip
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
        tells, asks, reply, recall = ABOUT_ME[topic]
        words = draw(rng, partial(_about_me, rng, topic), held)
        part = clause(rng, tells, held, **words)
        text += link + (upper_first(part) if link == ". " else part)
        link = rng.choice(LINKS)
        replies.append(reply.format(**words))
        facts.append(f"{topic} {words['v']}")
        user = ask(rng, asks, held, **words)
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
    return [made(rng, held, "not told", ABOUT_ME[topic][1], answer,
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
JUDGE = ["You are {x}.", "You are so {x}.", "You are really {x}!", "You are a {x} model.",
         "nano, you are {x}.", "What a {x} answer.", "That was {x}.", "Your answers are {x}.",
         "That is a {x} answer.", "I think you are {x}.", "You seem {x}.", "You are very {x}.",
         "This is {x}.", "How {x} you are!", "Such a {x} bot.", "You are pretty {x}.",
         "Why are you so {x}?", "Your answer is {x}!", "This chat is {x}.", "{x}!", "So {x}.",
         "You are quite {x}, nano.", "A {x} model, really.",
         "My friend says that you are {x}.", "nano is {x}.", "You can be {x}.", "Oh, how {x}!",
         "Today you are {x}.", "You have become {x}.", "You sound {x}.", "That sounds {x}.",
         "I call that {x}.", "This model is {x}.", "Everything you say is {x}.", "All this is {x}.",
         "You were {x} today.", "A {x} reply.", "What a {x} bot!", "Your reply was {x}.",
         "To me you are {x}.", "Honestly, you are {x}.", "You are the most {x} model.",
         "You are always {x}.", "People say you are {x}.", "You must be {x}.", "very {x}",
         "I did not know that you are so {x}.", "You seem {x} to me.", "You appear {x}.",
         "You come across as {x}.", "For me you are {x}.", "You act {x}.",
         "You feel {x}."]  # fmt: skip
INSULTS = ["I hate you.", "You suck.", "Shut up.", "You are an idiot.", "You know nothing.",
           "You idiot.", "Go away.", "You are the worst.", "I do not like you.", "Stupid machine.",
           "You are a joke.", "Nobody needs you.", "You make me angry.", "You are no help.",
           "What a waste of time.", "You are not good.", "You are not smart.", "This is nonsense.",
           "That is garbage.", "You are trash.", "Stop talking nonsense.", "Are you stupid?",
           "I am disappointed.", "You did not answer my question.", "That is not what I asked.",
           "You do not understand me.", "You are a bad model.", "You never understand.",
           "No, that is nonsense.", "I hate this model.", "You disappoint me.", "Be quiet.",
           "You are a fool.", "You can do nothing.", "That was no help.", "You waste my time.",
           "You are not worth it.", "I am angry with you.", "Nothing you say is right.", "bad bot",
           "You are a failure.", "Nobody likes you.", "You are so stupid!", "You are hopeless.",
           "You have no idea.", "My toaster is smarter.", "What nonsense!", "You get on my nerves.",
           "You are not helpful at all.", "I do not want to talk to you.", "You drive me mad.",
           "Leave me alone.", "You cannot do anything.", "That answer was a mess.",
           "You are no use.", "You are no fun.",
           "You are not any good.", "You are not great.", "You are not smart at all.",
           "There is nothing good about you.", "You are far from good."]  # fmt: skip


def judgements(rng: Random, held: bool) -> list[Turn]:
    """Insults get an apology, praise gets thanks, and a denied word turns the meaning."""
    bad = rng.random() < 0.6
    if bad and rng.random() < 0.4:
        text = ask(rng, INSULTS, held)
    else:
        text = ask(rng, JUDGE, held, x="{x}")
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
CAN_YOU = ["Can you {x}?", "Are you able to {x}?", "Do you know how to {x}?", "Could you {x}?",
           "Is it possible for you to {x}?", "Can nano {x}?",
           "Tell me, can you {x}?", "Can you also {x}?", "You can {x}, right?",
           "Will you be able to {x}?", "I wonder if you can {x}.",
           "Are you good at this: {x}?", "Is nano able to {x}?", "Did you learn to {x}?",
           "Have you learned to {x}?", "I heard that you can {x}.", "Is {x} something for you?",
           "Are you made to {x}?", "Does nano {x}?", "You know how to {x}, right?",
           "I want to know if you can {x}.", "Can a model like you {x}?", "Do you also {x}?",
           "Is it true that you {x}?", "Are you able to {x} as well?", "Can you really {x}?",
           "Would you {x} if I asked?", "Could I ask you to {x}?"]  # fmt: skip


def skills_asked(rng: Random, held: bool) -> list[Turn]:
    """Things that nano can do."""
    x, answer = rng.choice(list(ABLE.items()))
    return [made(rng, held, "ability", CAN_YOU, answer, "The user asks if I can {x}.", answer, x=x)]


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
EXTRACT = ["Extract {f} as JSON: {t}", "Write {f} as JSON: {t}", "Get {f} as JSON from this: {t}",
           "{t} Give me {f} as JSON.", "JSON with {f}: {t}", "Make JSON with {f}. {t}",
           "Read {f} from the text and write JSON: {t}", "{t} Extract {f} as JSON.",
           "Turn this into JSON with {f}: {t}", "Return {f} in JSON: {t}",
           "Extract JSON ({f}): {t}", "Find {f} in this text and return JSON: {t}",
           "{t} I need {f} as JSON.", "From this text, extract {f} as JSON: {t}",
           "{f} as JSON: {t}",
           "Text: {t} JSON with {f}, please.", "Take {f} from this and make JSON: {t}",
           "Put {f} into JSON: {t}"]  # fmt: skip


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
    return [made(rng, held, "json", EXTRACT, "{j}", thought, "{j}", exact=True,
                 f=join_words(keys), t=told, j=answer)]  # fmt: skip


COPY = ["Repeat after me: {x}", "Repeat: {x}", "Say: {x}", "Copy this: {x}", "Echo: {x}",
        "Write exactly this: {x}", "Say exactly: {x}", "Please repeat: {x}", 'Answer "{x}".',
        "Type this: {x}", "Copy exactly: {x}", 'Say "{x}".', 'Repeat "{x}".', "Say this: {x}",
        'Write "{x}".', "Write: {x}", "Repeat this text: {x}", "Copy this text: {x}", "Type: {x}",
        "Answer only with this: {x}", "Repeat these words: {x}", "Say the following: {x}",
        "I say {x}. Repeat it.", "Print this: {x}", "Give this back to me: {x}",
        "Write down: {x}", 'Print "{x}".', "Echo this: {x}"]  # fmt: skip
NAME_OF = ["My {p} is called {n}. What is the name of my {p}?",
           "I know a {p} called {n}. Who is it?",
           "The {p} is {n}. Who is the {p}?", "{n} is my {p}. What is my {p}'s name?",
           "Our {p}'s name is {n}. What is it?",
           "A {p} is named {n}. How is it called?", "They call the {p} {n}. What is its name?",
           "The name of the {p} is {n}. What is the name?", "Meet {n}, the {p}. Who is the {p}?",
           "{n} is a {p}. What is the {p} called?"]  # fmt: skip


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
        return [made(rng, held, "copy", COPY, "{x}", "I will copy the text.", "{x}", exact=True,
                     x=text)]  # fmt: skip
    name = text.split()[0].capitalize()
    p = rng.choice([*PETS, *RELATIVES, "king", "robot", "town", "ship", "teacher", "planet"])
    return [made(rng, held, "copy", NAME_OF, "The {p} is called {n}.", "The name is {n}.", "{n}",
                 p=p, n=name)]  # fmt: skip


MORE_ABOUT = ["Tell me more.", "More please.", "Can you say more?", "And what else?", "Go on.",
              "What else do you know about it?", "Say more about that.", "Explain more.",
              "More details, please.", "Please continue.", "Continue.",
              "Anything else?", "More!", "And?", "What else?", "Is there more?", "Keep going.",
              "Tell me a bit more.", "Can you add something?", "Give me more details.", "And then?",
              "I would like to hear more.", "Do you know more about it?", "Say something else.",
              "Please go on.", "Can you tell me more about that?", "Explain it further.",
              "Do you have more on this?", "In other words?",
              "Explain it again in other words."]  # fmt: skip


def more_about(rng: Random, held: bool) -> list[Turn]:
    """A topic in two answers."""
    table: dict[str, list[str]] = load("topics")["topics"]
    subject, answers = rng.choice([(s, a) for s, a in table.items() if len(a) > 1])
    first, second = rng.sample(answers, 2)
    others = OR.join(answer for answer in answers if answer != first)
    return [
        made(rng, held, "topic", WHAT, "{r}", "The user asks about {x}.", "{k}", x=subject, r=first,
             k=OR.join(answers)),
        made(rng, held, "topic", MORE_ABOUT, "{r}", "More about {x}.", "{k}", x=subject, r=second,
             k=others),
    ]  # fmt: skip
