"""Other frames for a phrasing: 'What is {n}?' -> 'Any idea what {n} is?'

Every listed phrasing that is a question or a request gains dozens of forms here, so that nano
learns what is asked apart from how it is asked.
"""

# ruff: noqa: SIM905  word lists read better as text

import re
from functools import lru_cache
from random import Random

# _: "the capital of {c}"
NOUN = [
    "Tell me _.", "Give me _.", "I need _.", "I am looking for _.", "I want _.",
    "Please give me _.", "Can you give me _?", "Could you tell me _?", "Do you know _?",
    "Find _.", "Show me _.", "Let me know _.", "Name _.", "_?", "_", "_, please.",
    "What might be _?", "What's _?", "So what is _?", "What was _ again?", "_ is?",
    "What is _, please?", "I forgot _.", "Remind me of _.", "Would you know _?",
    "Can I have _?", "I want to know _.", "I'd like to know _.", "Can you name _?",
    "I cannot remember _.", "I need to find _.", "Could you name _ for me?", "_ = ?",
    "Please say _.", "And _?", "Any idea of _?", "I ask for _.", "Question: _?",
    "Have you learned _?", "My question is about _.", "Could I get _?", "Got _?",
]  # fmt: skip
# _: "what the capital of {c} is", "how to start a server"
CLAUSE = [
    "Tell me _.", "Please tell me _.", "Can you tell me _?", "Could you tell me _?",
    "Do you know _?", "I want to know _.", "I would like to know _.", "I'd like to know _.",
    "I need to know _.", "I wonder _.", "I am wondering _.", "I forgot _.", "Any idea _?",
    "I do not know _.", "Do you remember _?", "Let me know _.", "Would you tell me _?",
    "Will you tell me _?", "Can you explain _?", "Have you any idea _?", "I'm curious _.",
    "Can you find out _?", "Help me find out _.", "My question is _.", "Remind me _.",
    "I have to find out _.", "Could you please tell me _?", "You surely know _.",
    "Maybe you know _?", "I am not sure _.", "I never learned _.", "Who knows _?",
    "Somebody asked me _.", "My teacher wants to know _.", "I was asked _.", "Explain _.",
    "It would help me to know _.", "Can you help me? I need to know _.", "Say _.",
    "I just want to know _.", "Can you say _?", "I keep forgetting _.", "Teach me _.",
    "Would you happen to know _?", "Are you able to tell me _?", "I hope you know _.",
]  # fmt: skip
# _: "{n} is prime"
WHETHER = [
    "Tell me if _.", "Do you know if _?", "I want to know if _.", "Can you tell me whether _?",
    "Could you check if _?", "I wonder whether _.", "Is it true that _?", "I need to know if _.",
    "Please tell me whether _.", "Can you say if _?", "Would you say that _?", "Check if _.",
    "I am not sure if _.", "Is it right that _?", "Do you think _?", "I believe _. Right?",
    "Someone told me that _. Is that so?", "_, right?", "_, yes or no?", "_?",
]  # fmt: skip
# _: "add {a} and {b}"; what nano is told to do
ORDER = [
    "Can you _?", "Could you _?", "Could you please _?", "Please _.", "Would you _?", "Kindly _.",
    "I want you to _.", "I need you to _.", "I would like you to _.", "Will you _?",
    "You should _.",
    "Go ahead and _.", "Now _.", "Then _.", "Just _.", "Try to _.", "Your task: _.", "Task: _",
    "Next, _.", "Are you able to _?", "Is it possible to _?", "It would be nice if you could _.",
    "Would you be so kind and _?", "Do me a favor and _.", "_, please.", "Can you quickly _?",
    "First, _.", "Would you please _?", "Once more, _.", "Can u _", "pls _", "You have to _.",
    "Would you mind to _?", "Will you please _?", "I ask you to _.", "Your job is to _.", "_ now.",
]  # fmt: skip
# _: "add {a} and {b}"; what the user wants done
WISH = [
    "Help me _.", "Help me to _.", "Let us _.", "Let's _.", "Can you help me _?", "I have to _.",
    "I need to _.", "I want to _.", "I would like to _.", "For my homework I must _.", "_ for me.",
    "I am trying to _.", "Do you know how to _?", "Can you _ for me?", "How do I _?",
    "We have to _.", "Show me how to _.", "I'd like to _.", "How can I _?", "I must _.",
    "My task is to _.",
]  # fmt: skip
ORDERS = set(
    "add calculate subtract multiply divide convert change spell reverse write make sort put order "
    "count find give tell join turn name define explain describe work solve show list read get say "
    "repeat extract compare pick check combine arrange translate compute evaluate express "
    "uppercase capitalize flip copy echo bring link connect square double take share type return "
    "look set start remind wake switch send play check search use put list message open".split()
)
COPIES = set("say repeat copy echo write type".split())  # no words after the text to copy
SLOT = (
    r"(?:(?:the|an?|my|these|this) )?(?:(?:word|words|number|numbers|name|letter|year|verb|"
    r"adjective|symbol|list|month|baby) )?\{\w+\}(?:'s)?"
)
WH = r"(?:(?:in|on|of|to|at|with|from) )?(?:what|which|who|how|where|when|why)\b.*?"
NAMED = re.compile(r"(?:what|which|who) (?:is|are|was) (the .+)\?")
BE = re.compile(rf"({WH}) (is|are|was|were|has|can) ({SLOT})(.*)\?")
DO = re.compile(rf"({WH}) (do|does) ({SLOT}|people|i|you|we) (\w+)(.*)\?")
YES = re.compile(rf"(is|are|was|can|will|has) ({SLOT}|it|there) (.+)\?")
YES_DO = re.compile(rf"(do|does) ({SLOT}|people|it) (\w+)(.*)\?")
AFTER = re.compile(r"(.*?)( (?:\w+ed|\w+ing|made|built|written|spoken|known|spelled|famous)\b.*)")
THIRD = {"have": "has", "do": "does", "go": "goes"}


def _verb(auxiliary: str, verb: str) -> str:
    """The verb of a statement: 'does have' -> 'has'."""
    return THIRD.get(verb, f"{verb}s") if auxiliary == "does" else verb


@lru_cache(maxsize=4096)
def parsed(phrasing: str) -> list[tuple[list[str], str]]:
    """The frames that fit a phrasing, each list with what fills its gap."""
    text = (phrasing[0].lower() + phrasing[1:]).replace(" I ", " i ")
    found: list[tuple[list[str], str]] = []
    if match := NAMED.fullmatch(text):
        found += [(NOUN, match[1]), (CLAUSE, f"what {match[1]} is")]
    elif match := DO.fullmatch(text):
        subject = "I" if match[3] == "i" else match[3]
        found.append((CLAUSE, f"{match[1]} {subject} {_verb(match[2], match[4])}{match[5]}"))
        if subject == "I":
            found.append((CLAUSE, f"{match[1]} to {match[4]}{match[5]}"))
    elif match := BE.fullmatch(text):
        rest, after = match[4], ""
        if split := AFTER.fullmatch(rest):
            rest, after = split[1], split[2]
        found.append((CLAUSE, f"{match[1]} {match[3]}{rest} {match[2]}{after}"))
    elif match := YES.fullmatch(text):
        found.append((WHETHER, f"{match[2]} {match[1]} {match[3]}"))
    elif match := YES_DO.fullmatch(text):
        found.append((WHETHER, f"{match[2]} {_verb(match[1], match[3])}{match[4]}"))
    elif re.fullmatch(rf"{WH}\?", text):
        found.append((CLAUSE, text[:-1].replace(" i ", " I ")))
    elif text.split(" ")[0] in ORDERS and not re.search(r"[.?!] ", text):
        order = text.rstrip(".?!").replace(" i ", " I ")
        if order.split(" ")[0] in COPIES or order.endswith("}"):
            return [([frame for frame in ORDER if len(frame.partition("_")[2]) < 2], order)]
        addressed = " me" in order or order.split(" ")[0] in ("tell", "give", "show", "say", "name")
        found += [(ORDER, order)] if addressed else [(ORDER, order), (ORDER, order), (WISH, order)]
    return found


def reframed(rng: Random, phrasing: str) -> str:
    """The phrasing in another frame, or as it is if none fits."""
    found = parsed(phrasing)
    if not found:
        return phrasing
    frames, filling = rng.choice(found)
    frame = rng.choice(frames)
    return frame.replace("_", filling)


ADVERBS = (
    "now still just always often already truly sometimes usually mostly actually currently "
    "honestly simply also really recently finally surely only certainly even proudly happily"
).split()


def qualified(rng: Random, statement: str) -> str:
    """A statement about the user with an adverb: 'I have a cat' -> 'I still have a cat'."""
    head = next((h for h in ("I am ", "I'm ", "I ", "we ") if statement.startswith(h)), "")
    return f"{head}{rng.choice(ADVERBS)} {statement[len(head) :]}" if head else statement
