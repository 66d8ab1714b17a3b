"""The way people type: openings, lower case, missing marks, typing errors."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

TYPABLE = set(
    "what which where tell please capital currency many much memory does spell word letters sort "
    "number explain know about have people country language called write sentence story remember "
    "name from live today tomorrow after before define meaning number convert calculate largest "
    "opposite animal favorite because would could should there their right your with question "
    "answer device command model weather server install thanks hello good morning nice meet very "
    "stupid wrong useless great funny symbol element color between through minutes "
    "alphabetical".split()
)
OPENINGS = ["Please tell me: ", "Quick question: ", "Hey, ", "I have a question. ", "Hi nano! ",
            "Tell me, ", "Next question: ", "Ok. ", "And ", "Now: ", "Nano, ", "Hello! ", "Hi! ",
            "So, ", "Well, ", "Um, ", "Hmm, ", "Okay, ", "Great! ", "Thanks. ", "Cool. ",
            "I see. ", "By the way, ", "Just wondering, ", "Sorry, ", "Good. ", "Also, ",
            "One more question: ", "Another question: ", "Hey nano, ", "Oh, ", "Alright, ",
            "Dear nano, ", "Interesting. ", "But ", "Excuse me, ", "hi, ", "Hello nano. ",
            "Right. ",
            "Let me ask you something: ", "Here is a question: ", "I would like to ask: ", "Yes. ",
            "Just one thing: ", "Good morning! ", "Good evening. ", "Now tell me: ", "No. ",
            "Wow. ",
            "Help me, ", "Please, ", "My friend, ", "Then: ", "Next: ", "Fine. ", "Perfect. ",
            "Sure. ", "Ah, ", "Ok nano, ", "Dear friend, ", "Question: ", "Test: ", "Also: ",
            "I am back. ", "Let us go on. ", "Something else: ", "Actually, ", "Wait, ", "Ok so ",
            "Let me test you. ", "For a quiz: ", "I was thinking: ", "Seriously, "]  # fmt: skip
CLOSINGS = [" Thanks!", " Thank you.", " I forgot.", " I need to know.", " Do you know?",
            " Please.", " Just curious.", " It is for my homework.", " Any idea?",
            " Can you help me?", " I am curious.", " Be quick.", " It is important.", " Tell me.",
            " I cannot remember.", " Answer please.", " My son asks.", " Help!", " You know that?",
            " I have no idea.", " Short answer, please.", " Thanks in advance.",
            " I wonder."]  # fmt: skip
CONTRACTIONS = [("What is", "What's"), ("what is", "what's"), ("I am", "I'm"), ("I am", "im"),
                ("You are", "You're"), ("You are", "ur"), ("do not", "don't"), ("is not", "isn't"),
                ("What is", "Whats"), ("what is", "whats"), ("you", "u"), ("are", "r"),
                ("please", "pls"), ("Please", "Pls"), ("Where is", "Where's"),
                ("Who is", "Who's")]  # fmt: skip


def mistype(rng: Random, text: str) -> str:
    """One typing error in a common word; words that matter stay right."""
    words = text.split(" ")
    places = [i for i, w in enumerate(words) if w.strip(".,?!:").lower() in TYPABLE]
    if not places:
        return text
    i = rng.choice(places)
    w = words[i]
    k = rng.randrange(1, max(2, len(w.strip(".,?!:")) - 1))
    kind = rng.randrange(3)
    words[i] = [w[:k] + w[k + 1 :], w[:k] + w[k] + w[k:],
                w[:k] + w[k + 1 : k + 2] + w[k] + w[k + 2 :]][kind]  # fmt: skip
    return " ".join(words)


def casual(rng: Random, text: str, exact: bool = False) -> str:
    """The way people type: lower case, no final mark, a polite opening, a typing error.

    ``exact``: the answer repeats words of the text, so their case stays and no mark is added.
    """
    if "\n" in text or len(text) > 160:
        return text
    if rng.random() < 0.14 and text[-1] == "?" and len(text) > 8:
        opening = rng.choice(OPENINGS)
        text = opening + (text if opening[-2] in ".!" else text[0].lower() + text[1:])
    elif rng.random() < 0.06 and text[-1] in ".?":
        text = f"{text[:-1]}, please{text[-1]}"
    if rng.random() < 0.04 and text[-1] == "?":
        text += rng.choice(CLOSINGS)
    if rng.random() < 0.1:
        old, new = rng.choice(CONTRACTIONS)
        text = f" {text} ".replace(f" {old} ", f" {new} ", 1).strip()
    if rng.random() < 0.07:
        text = mistype(rng, text)
    roll = rng.random() + exact
    if roll < 0.12:
        text = text[0].lower() + text[1:]
    elif roll < 0.22 and '"' not in text:
        text = text.lower()
    elif roll < 0.225 and '"' not in text and "{" not in text:
        text = text.upper()
    roll = rng.random() + exact
    if roll < 0.2 and text[-1] in ".?!":
        text = text[:-1]
    elif roll < 0.24 and text[-1] in "?!":
        text += text[-1] * rng.randrange(1, 3)
    elif roll < 0.26 and text[-1] == "?":
        text = text[:-1] + " ?"
    return text
