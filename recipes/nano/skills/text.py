"""Letters, words, lists and small JSON objects."""

# ruff: noqa: SIM905  word lists read better as text

import json
from functools import cache
from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import draw, join_words, load, made, made_word
from edgekit.recipes.nano.skills.world import facts

NAMES = (
    "Ana Ben Carl Dora Emma Finn Gina Hans Ida Jack Kim Lena Max Nina Otto Paul Rosa Sam Tina Vera "
    "Anna Bob Clara David Eva Frank Grace Henry Iris John Kate Leo Maria Noah Olga Peter Lucy Tom"
).split()
COLORS = "red blue green yellow black white brown pink orange purple grey".split()
CITIES = (
    "Paris London Berlin Rome Madrid Oslo Tokyo Cairo Lima Vienna Dublin Athens Prague Delhi"
).split()


@cache
def word_pool() -> list[str]:
    """Short plain words."""
    nouns = [w for w, _ in facts()["words"]["noun"]]
    adjectives = [w for w, _ in facts()["words"]["adj"]]
    pool = dict.fromkeys([*load("topics")["things"], *nouns, *adjectives, *COLORS])
    return [w for w in pool if 3 <= len(w) <= 7 and w.isalpha()]


def some_name(rng: Random) -> str:
    """A first name: a known one, or one that nobody has."""
    return rng.choice(NAMES) if rng.random() < 0.5 else made_word(rng).capitalize()


def some_city(rng: Random) -> str:
    """A city: a well-known one, a capital, or an invented one."""
    roll = rng.random()
    if roll < 0.35:
        return rng.choice(CITIES)
    if roll < 0.7:
        return str(rng.choice(facts()["countries"])["capital"])
    return made_word(rng).capitalize()


def _any_word(rng: Random) -> str:
    if rng.random() < 0.25:
        return made_word(rng)
    words: list[str] = word_pool() if rng.random() < 0.4 else facts()["plain"]
    return rng.choice(words)


def _words(rng: Random, count: int, held: bool) -> list[str]:
    return [draw(rng, lambda: _any_word(rng), held) for _ in range(count)]


SPELL = ["Spell {w}.", "How do you spell {w}?", "Spell the word {w}.", "Can you spell {w}?",
         "Show the letters of {w}.", "Spell out {w}.", "What are the letters of {w}?",
         "Write {w} letter by letter.", "Give me the spelling of {w}.", "spell {w}",
         "Spelling: {w}",
         "Tell me how to spell {w}.", "Letters of {w}?", "How is {w} spelled?", "{w}, spelled out?",
         "Please spell {w}.", "What is the spelling of {w}?", "How do I spell {w}?",
         "Name every letter of {w}.", "Split {w} into letters.", "How is {w} written?",
         "Which letters are in {w}?", "List the letters of {w}.", "Take {w} apart into letters.",
         "Write the letters of {w} one by one.", "I cannot spell {w}."]  # fmt: skip
LENGTH = ["How many letters are in {w}?", "How many letters has the word {w}?", "Length of {w}?",
          "Count the letters in {w}.", "How long is the word {w}?",
          "How many letters does {w} have?",
          "Number of letters in {w}?", "Tell me the length of {w}.", "How long is {w}?",
          "What is the length of the word {w}?", "Count the letters of {w}.", "length of {w}",
          "How many characters has {w}?",
          "Letter count of {w}?", "What is the number of letters in {w}?", "{w}: how many letters?",
          "How many signs are in {w}?", "How many characters are in the word {w}?",
          "How many letters do I need for {w}?", "With how many letters is {w} written?",
          "Find the length of {w}.", "What length does {w} have?"]  # fmt: skip
BACKWARDS = ["Reverse the word {w}.", "Spell {w} backwards.", "Write {w} backwards.",
             "What is {w} backwards?", "Reverse {w}.", "Turn {w} around.", "Say {w} backwards.",
             "Write the letters of {w} in reverse.", "Spell {w} in reverse.", "{w} reversed?",
             "Give me {w} backwards.", "{w} backwards?", "Flip the word {w}.", "{w} from the end?",
             "Reverse the letters of {w}.", "Reverse: {w}", "How do you spell {w} backwards?",
             "What do I get when I reverse {w}?", "Mirror the word {w}.", "reverse {w}",
             "What is the reverse of {w}?", "Write {w} from right to left.",
             "Turn the word {w} around.",
             "Show me {w} backwards.", "How is {w} written backwards?", "Put {w} in reverse.",
             "If I read {w} from the end, what do I get?", "Start at the end of {w}.",
             "Which word is {w} backwards?"]  # fmt: skip
CAPITALS = ["Write {w} in capital letters.", "Make {w} uppercase.", "Uppercase {w}.",
            "Convert {w} to uppercase.", "Put {w} in capitals.", "Write {w} in upper case.",
            "{w} in capitals?", "Capitalize all letters of {w}.", "Give me {w} in capital letters.",
            "Change {w} to capitals.", "Turn {w} into capital letters.", "Show {w} in uppercase.",
            "Write {w} in big letters.", "{w} in uppercase, please.", "uppercase {w}",
            "Spell {w} in capital letters.", "Make all letters of {w} capital.", "{w} in all caps",
            "How does {w} look in capital letters?", "How do I write {w} in capitals?",
            "What is the uppercase of {w}?", "Type {w} in caps.", "I need {w} in upper case.",
            "Turn {w} to upper case.", "Make {w} big."]  # fmt: skip
FIRST = ["What is the first letter of {w}?", "Which letter comes first in {w}?",
         "{w} starts with which letter?", "Tell me the first letter of {w}.", "first letter of {w}",
         "With which letter does {w} start?", "What letter does {w} begin with?",
         "First letter of {w}?", "Which letter is first in {w}?", "{w}: first letter?",
         "Give me the first letter of {w}.", "What does {w} start with?", "How does {w} begin?",
         "What letter starts the word {w}?", "{w} begins with which letter?",
         "What is the initial of {w}?", "Name the first letter of {w}.", "Which letter opens {w}?",
         "What is the starting letter of {w}?", "In {w}, which letter is first?",
         "Which letter stands at the beginning of {w}?", "What letter is at the front of {w}?",
         "With what letter does the word {w} begin?"]  # fmt: skip
LAST = ["What is the last letter of {w}?", "Which letter comes last in {w}?",
        "{w} ends with which letter?", "Tell me the last letter of {w}.", "last letter of {w}",
        "With which letter does {w} end?", "What letter does {w} end with?", "How does {w} end?",
        "Last letter of {w}?", "Which letter is last in {w}?", "{w}: last letter?",
        "Give me the last letter of {w}.", "What does {w} end with?",
        "Name the last letter of {w}.",
        "What letter ends the word {w}?", "What is the final letter of {w}?",
        "In {w}, which letter is last?", "Which letter closes {w}?",
        "What is the ending letter of {w}?",
        "Which letter stands at the close of {w}?", "What letter is at the back of {w}?",
        "With what letter does the word {w} end?"]  # fmt: skip
SAY_WORD = ["Repeat the word {w}.", "Say {w}.", "Repeat after me: {w}", "Please say {w}.",
            "Say the word {w}.", "Repeat: {w}", "Write {w}.", "Copy this word: {w}", "Echo {w}",
            "Say it: {w}", "Write the word {w}.", "Copy {w}.", "Just say {w}.", "Answer only {w}.",
            "Answer with {w}.", "Say only {w}.", "Reply with {w}.", "Type {w}.", "Print {w}.",
            "Answer with the word {w}.", "Say nothing but {w}.", "Your answer must be {w}.",
            "Write down the word {w}.", "Repeat {w}.", "Echo the word {w}."]  # fmt: skip
HOW_OFTEN = ["How often does {c} appear in {w}?",
             "Count the letter {c} in {w}.", "How many {c} has {w}?",
             "Number of {c} in {w}?", "Is the letter {c} in {w}?", "Count {c} in {w}.",
             "How many times does {w} contain {c}?", "How many letters {c} are in {w}?",
             "How often is {c} in {w}?", "count {c} in {w}",
             "How many times does {c} appear in {w}?", "How often do I find {c} in {w}?",
             "Count every {c} in {w}.",
             "In {w}, how many {c} are there?", "How often does the word {w} have {c}?",
             "How many of the letters of {w} are {c}?", "{w}: how many {c}?",
             "What is the number of {c}'s in {w}?", "Does {w} contain {c}?",
             "How many times can you find {c} in {w}?"]  # fmt: skip


def letters(rng: Random, held: bool) -> list[Turn]:
    """Spelling, counting and changing the letters of one word."""
    (w,) = _words(rng, 1, held)
    spelled = "-".join(w)
    numbered = ", ".join(f"{c} {i + 1}" for i, c in enumerate(w))
    kind = rng.randrange(8)
    c = rng.choice(w) if rng.random() < 0.8 else rng.choice("aeinorst")
    found = ", ".join(f"{x} {w[: i + 1].count(c)}" for i, x in enumerate(w))
    asks, answer, thought, key = [
        (SPELL, spelled, f"The letters of {w}.", spelled),
        (LENGTH, f"{spelled}: the word {w} has {len(w)} letters.", f"{numbered}.",
         f"has {len(w)} letters"),
        (BACKWARDS, f"{spelled} backwards is {'-'.join(w[::-1])}: {w[::-1]}",
         f"I read {spelled} from the end.", w[::-1]),
        (CAPITALS, f"{'-'.join(w.upper())}: {w.upper()}", f"{spelled} in capitals.", w.upper()),
        (FIRST, f"The first letter of {w} is {w[0]}.", f"{spelled}.", f"is {w[0]}."),
        (LAST, f"The last letter of {w} is {w[-1]}.", f"{spelled}.", f"is {w[-1]}."),
        (SAY_WORD, w, f"The user wants me to say {w}.", w),
        (HOW_OFTEN, f"{spelled} has the letter {c} {w.count(c)} times.", f"{found}.",
         f"letter {c} {w.count(c)} times"),
    ][kind]  # fmt: skip
    quoted = f'"{w}"' if rng.random() < 0.25 else w
    return [made(rng, held, "letters", asks, answer, thought, key, exact=kind in (0, 6),
                 w=quoted, c=c)]  # fmt: skip


SORT_NUMBERS = ["Sort these numbers: {s}", "Sort {s}.", "Put these numbers in order: {s}",
                "Order the numbers {s}.", "Sort the numbers {s} from small to large.", "Sort: {s}",
                "Arrange {s} in order.", "Put {s} in order.", "Bring {s} into order.", "sort {s}",
                "What is the order of {s}?", "Can you sort {s}?", "Please sort these: {s}",
                "List {s} from small to large.", "Sort the list {s}.", "Order: {s}",
                "Arrange these numbers: {s}", "Put the smallest first: {s}", "{s} in order?",
                "Sort {s} in ascending order.", "Order {s} from low to high.", "{s} sorted?",
                "Sort these from the smallest to the largest: {s}",
                "Write {s} in order."]  # fmt: skip
LARGEST = ["What is the largest of {s}?", "Which number is the largest: {s}?", "max of {s}",
           "Find the maximum of {s}.", "What is the biggest number in {s}?", "Largest: {s}",
           "Give me the maximum of {s}.", "Largest of {s}?", "Which of {s} is the biggest?",
           "Pick the largest: {s}", "Maximum of {s}?", "Which is the greatest number: {s}?",
           "Tell me the largest of {s}.", "What is the highest of {s}?",
           "What is the maximum of {s}?",
           "Which number is highest in {s}?", "Choose the biggest of {s}.", "Biggest of {s}?",
           "Look at {s}. Which is the largest?", "Which of these is the largest: {s}?",
           "Find the biggest number: {s}", "What is the top number of {s}?"]  # fmt: skip
SORT_WORDS = ["Sort these words: {s}", "Sort alphabetically: {s}", "Sort {s}.", "sort {s}",
              "Put these words in alphabetical order: {s}", "Order these words: {s}",
              "Sort the words {s} by the alphabet.", "Sort: {s}", "Order {s} by the alphabet.",
              "Arrange these words by alphabet: {s}", "Alphabetical order of {s}?",
              "Put {s} in alphabetical order.", "Sort the words {s}.", "Sort the list {s}.",
              "Bring these words into alphabetical order: {s}", "List {s} alphabetically.",
              "Order by alphabet: {s}", "Can you sort {s}?", "Sort {s} by the alphabet.",
              "Sort from a to z: {s}", "Arrange {s} alphabetically.", "{s} in alphabetical order?",
              "What is the alphabetical order of {s}?", "Write {s} in alphabetical order.",
              "Arrange the list {s} from a to z.", "Put these in order: {s}"]  # fmt: skip
COUNT_ITEMS = ["How many words are in this list: {s}?", "How many items: {s}?", "count {s}",
               "Count the items: {s}", "Count these words: {s}", "How many words are these: {s}?",
               "What is the length of the list {s}?", "Number of items: {s}", "Count: {s}",
               "How many things are in {s}?", "How long is this list: {s}?", "Count the list {s}.",
               "How many entries has {s}?", "Tell me how many words: {s}", "Count the words {s}.",
               "How many words did I write: {s}?", "{s}: how many words are that?",
               "How many items are in the list {s}?", "How many words do I have in {s}?",
               "How many words does this list have: {s}?", "Count how many words: {s}",
               "What is the word count of {s}?"]  # fmt: skip
PICK = ["What is the {n} word of {s}?", "Which word is {n} in this list: {s}?", "{n} of {s}",
        "Give me the {n} item of {s}.", "What is the {n} item: {s}?", "{n} word: {s}",
        "Tell me the {n} word in {s}.", "{s}: what is the {n} word?", "Pick the {n} word: {s}",
        "Find the {n} word of {s}.", "Which is the {n} item of {s}?", "The {n} word of {s}?",
        "Say the {n} word: {s}", "From {s}, take the {n} word.", "Which word stands {n} in {s}?",
        "Look at {s}. What is the {n} word?", "What is the {n} entry of {s}?",
        "Which one is the {n} in the list {s}?", "Read the {n} word of {s}.",
        "Show me the {n} word of this list: {s}",
        "In the list {s}, which word is {n}?"]  # fmt: skip
REVERSE_LIST = ["Reverse this list: {s}", "Reverse the order of {s}.", "Reverse {s}.",
                "Write this list backwards: {s}", "Turn this list around: {s}", "reverse {s}",
                "Reverse these words: {s}", "Reverse: {s}", "{s} in reverse order?",
                "Write {s} in reverse order.", "List {s} backwards.", "Flip this list: {s}",
                "Turn the order around: {s}", "Say this list backwards: {s}", "Flip {s}.",
                "Put {s} in reverse order.", "Reverse the words {s}.", "Reverse the list {s}.",
                "What is {s} in reverse order?", "Begin with the last word: {s}",
                "What is the reverse of the list {s}?", "Start at the end: {s}",
                "List these words from last to first: {s}"]  # fmt: skip
JOIN = ["Make a sentence list of {s}.", "Join these words with and: {s}", "Join {s}.", "join {s}",
        "Write {s} as a phrase with and.", "Join {s} into a phrase.", "Join: {s}",
        "Combine these words with and: {s}", "Put and before the last word: {s}",
        "Connect {s} with and.", "Join with and: {s}", "Join these words: {s}", "Connect: {s}",
        "Make a phrase of {s}.", "Link {s} with and.", "Combine {s} into a phrase.",
        "Combine: {s}", "Join the words {s} with and.", "Write {s} with and.",
        "Make one phrase from these words: {s}", "Connect these words: {s}",
        "Write this list with and: {s}", "Put the words {s} together with and."]  # fmt: skip


def lists(rng: Random, held: bool) -> list[Turn]:
    """Sorting, counting, picking and joining short lists."""
    count = rng.randrange(3, 6)
    words = list(dict.fromkeys(_words(rng, count, held)))
    shown = ", ".join(words)
    kind = rng.randrange(8)
    key = ""
    if kind in (1, 2):
        values = draw(rng, lambda: tuple(rng.sample(range(1, 100), count)), held)
        shown = ", ".join(map(str, values))
    if kind == 1:
        asks, answer = SORT_NUMBERS, ", ".join(map(str, sorted(values)))
        thought = f"The smallest is {min(values)}."
    elif kind == 2:
        asks, answer = LARGEST, f"The largest number is {max(values)}."
        thought, key = f"I compare {shown}.", f"is {max(values)}"
    elif kind in (0, 3):
        asks, answer = SORT_WORDS, ", ".join(sorted(words))
        thought = f"In order: {', '.join(sorted(w[:3] for w in words))}."
    elif kind == 4:
        asks, answer = COUNT_ITEMS, f"There are {len(words)} items."
        thought = ", ".join(f"{w} {i + 1}" for i, w in enumerate(words)) + "."
        key = f"are {len(words)} "
    elif kind == 5:
        names = ["first", "second", "third"][: len(words)]
        i = rng.randrange(-1, len(names))
        name = "last" if i < 0 else names[i]
        asks, answer = PICK, f"The {name} word is {words[i]}."
        thought, key = f"I look for the {name} word.", f"is {words[i]}"
    elif kind == 6:
        asks, answer = REVERSE_LIST, ", ".join(reversed(words))
        thought = f"The last word is {words[-1]}."
    else:
        asks, answer = JOIN, f"{join_words(words)}."
        thought, key = "I put and before the last word.", join_words(words)
    return [made(rng, held, "list", asks, answer, thought, key or answer, s=shown,
                 n=name if kind == 5 else "")]  # fmt: skip


READ_JSON = ["What is the {f} in {j}?", "Read the {f} from this JSON: {j}", "{f} in {j}",
             "{j} What is the {f}?", "Extract the {f}: {j}", "Give me the {f} from {j}",
             "In this JSON, what is the {f}? {j}", "Which {f} is in {j}?", "Get the {f} from {j}",
             "What value has {f} in {j}?", "Find the {f} in this JSON: {j}", "Read {f}: {j}",
             "What does {j} say about the {f}?", "Here is some JSON: {j} Tell me the {f}.",
             "From {j}, take the {f}.", "What is stored under {f} in {j}?", "{j} {f}?",
             "I have {j}. What is the {f}?", "Read this object and say the {f}: {j}"]  # fmt: skip
WRITE_JSON = ["Write this as JSON: {p}", "Make a JSON object: {p}", "Convert to JSON: {p}",
              "JSON for {p}", "Turn this into JSON: {p}", "{p} as JSON", "Make JSON: {p}",
              "Write JSON: {p}", "Put this into a JSON object: {p}", "Format as JSON: {p}",
              "I need this as JSON: {p}", "Change this to JSON: {p}", "Give me JSON for {p}",
              "A JSON object with {p}, please."]  # fmt: skip


def _record(rng: Random) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "name": some_name(rng), "age": rng.randrange(5, 90), "city": some_city(rng),
        "color": rng.choice(COLORS), "pet": rng.choice(["cat", "dog", "bird", "fish", "horse",
                                                        "rabbit"]),
        "job": rng.choice(["baker", "doctor", "farmer", "teacher", "painter", "driver"]),
        "year": rng.randrange(1950, 2030), "id": rng.randrange(1, 1000),
        "item": rng.choice(["book", "lamp", "table", "chair", "phone", "clock"]),
        "price": rng.randrange(1, 300),
    }  # fmt: skip
    return {k: fields[k] for k in rng.sample(list(fields), rng.randrange(2, 5))}


def json_objects(rng: Random, held: bool) -> list[Turn]:
    """Read a value from a JSON object, or write one."""
    record = draw(rng, lambda: _record(rng), held)
    shown = json.dumps(record)
    if rng.random() < 0.7:
        field, value = rng.choice(list(record.items()))
        return [made(rng, held, "json", READ_JSON, "The {f} is {v}.", "I look for the key {f}.",
                     "is {v}.", f=field, v=value, j=shown)]  # fmt: skip
    plain = ", ".join(f"{k} {v}" for k, v in record.items())
    return [made(rng, held, "json", WRITE_JSON, "{j}", f"The keys are {join_words(list(record))}.",
                 "{j}", exact=True, p=plain, j=shown)]  # fmt: skip
