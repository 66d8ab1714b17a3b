"""Jokes, facts, sentences, poems and stories."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import article, ask, load, made, upper_first
from edgekit.recipes.nano.skills.text import COLORS, NAMES, word_pool
from edgekit.recipes.nano.skills.world import facts

MORE = [
    "Another one!",
    "One more, please.",
    "Another one, please.",
    "One more!",
    "More!",
    "Again!",
    "Tell me another one.",
]

ANIMALS = (
    "cat dog horse cow pig sheep goat mouse rabbit lion tiger bear elephant monkey fox wolf bird "
    "duck chicken owl penguin fish whale dolphin frog bee ant butterfly spider"
).split()
HEROES = (
    "robot king queen child farmer teacher baker doctor dragon wizard princess prince girl boy "
    "pirate knight giant witch ghost unicorn monster fairy sailor hunter gardener clown astronaut "
    "alien painter cook"
).split()
TRAITS = "small brave shy kind clever young old hungry happy lonely curious sleepy friendly".split()
PLACES = ["in a green forest", "near a quiet river", "on a small farm", "in a big city",
          "by the sea", "on a high hill",
          "in a little village", "in an old garden"]  # fmt: skip
TROUBLES = [
    ("lost a {o}", "found the {o} under a tree", "looked everywhere"),
    ("wanted to find a friend", "met a {f} who wanted to play", "walked a long way"),
    ("was afraid of the dark", "saw the stars and was not afraid any more", "sat down and waited"),
    ("heard a strange sound at night", "saw that it was only the wind", "went outside to look"),
    ("was very hungry", "shared some food with a {f}", "searched the whole day"),
    ("wanted to see the sea", "stood on the beach and smiled", "followed the river"),
    ("got lost in the rain", "was brought home by a {f}", "called for help"),
    ("wanted to learn to sing", "sang a song with a {f}", "practiced every day"),
]
MORALS = ["From that day on, they were good friends.", "It was a good day.",
          "Then it was time to go home and sleep.",
          "And the {h} was happy.", "The {h} never forgot that day.",
          "A little courage can help a lot."]  # fmt: skip
OBJECTS = "ball key hat book toy bag shoe letter".split()
RHYMES = [("day", "play"), ("light", "night"), ("sea", "free"), ("sky", "high"), ("tree", "me"),
          ("sun", "fun"), ("rain", "again"),
          ("moon", "soon"), ("snow", "slow"), ("star", "far")]  # fmt: skip
RHYME_LINES = {
    "day": "It makes me smile the whole long day,", "play": "it asks the world to come and play.",
    "light": "It fills the room with gentle light,", "night": "and keeps me company at night.",
    "sea": "It dreams about the deep blue sea,", "free": "where every wave is wild and free.",
    "sky": "It looks up to the morning sky,", "high": "where quiet birds are flying high.",
    "tree": "It rests beneath an old green tree,", "me": "and tells a little tale to me.",
    "sun": "It wakes up early with the sun,", "fun": "and fills the morning hours with fun.",
    "rain": "It listens to the falling rain,", "again": "and waits for summer once again.",
    "moon": "It whispers softly to the moon,", "soon": "that better days are coming soon.",
    "snow": "It walks across the silent snow,", "slow": "where all the steps are soft and slow.",
    "star": "It follows one small shining star,", "far": "that calls it home from very far.",
}  # fmt: skip


def lines(rng: Random, held: bool) -> list[Turn]:
    """A joke or a fact."""
    if rng.random() < 0.5:
        first, second = rng.sample(load("talk")["lines"]["jokes"], 2)
        turns = [Turn("joke", ask(rng, "joke", held), first, "The user wants a joke.")]
        if rng.random() < 0.3:
            turns.append(Turn("joke", rng.choice(MORE), second, "The user wants another joke."))
        return turns
    answer = rng.choice(load("talk")["lines"]["facts"])
    if rng.random() < 0.4:
        row = rng.choice(facts()["countries"])
        answer = f"The capital of {row['name']} is {row['capital']}."
        answer = answer.replace("of United", "of the United").replace(
            "of Netherl", "of the Netherl"
        )
    return [Turn("fact", ask(rng, "fact", held), answer, "The user wants a fact.")]


def sentence(rng: Random, word: str) -> str:
    """One plain sentence that uses the word."""
    trait, place, name = rng.choice(TRAITS), rng.choice(PLACES), rng.choice(NAMES)
    if word in ANIMALS:
        return rng.choice([f"The {word} lives {place}.", f"A {trait} {word} sleeps {place}.",
                           f"{name} has a {trait} {word}.",
                           f"The {trait} {word} likes to play {place}.",
                           f"Yesterday {name} saw a {trait} {word} {place}."])  # fmt: skip
    color = rng.choice(COLORS)
    return rng.choice([f"{name} likes the {word} very much.",
                       f"The {word} is {rng.choice(['nice', 'beautiful', 'new', 'old'])}.",
                       f"There is a {color} {word} {place}.", f"{name} told me about the {word}.",
                       f"Every morning {name} looks at the {word}."])  # fmt: skip


def story(rng: Random, hero: str) -> str:
    """A story of five short sentences."""
    trait = rng.choice(TRAITS)
    trouble, solved, tried = rng.choice(TROUBLES)
    friend = rng.choice([a for a in ANIMALS if a != hero])
    thing = rng.choice(OBJECTS)
    fill = {"o": thing, "f": friend, "h": hero}
    return (
        f"Once upon a time there was {article(trait)} {hero} who lived {rng.choice(PLACES)}. "
        f"One day the {hero} {trouble}. The {hero} {tried}. "
        f"In the end the {hero} {solved}. {rng.choice(MORALS)}"
    ).format(**fill)


def poem(rng: Random, subject: str) -> str:
    """Four lines with two rhymes."""
    (a, b), (c, d) = rng.sample(RHYMES, 2)
    first = f"{upper_first(subject)} is here.\n" if rng.random() < 0.3 else ""
    return first + "\n".join(upper_first(RHYME_LINES[w]) for w in (a, b, c, d))


def writing(rng: Random, held: bool) -> list[Turn]:
    """A sentence, a poem or a story about a word."""
    words = list(load("topics")["things"])
    word = rng.choice(
        ANIMALS if rng.random() < 0.4 else words if rng.random() < 0.5 else word_pool()
    )
    roll = rng.random()
    if roll < 0.4:
        x = rng.choice([word, article(word), f"the {word}"])
        return [made(rng, held, "sentence", "sentence", sentence(rng, word),
                     "A short sentence with {w}.", word, x=x, w=word)]  # fmt: skip
    if roll < 0.6 and rng.random() < 0.2:
        return [made(rng, held, "poem", "any poem", poem(rng, "the moon"),
                     "A short poem with rhymes.", "")]  # fmt: skip
    if roll < 0.6:
        x = rng.choice([article(word), f"the {word}", f"my {word}"])
        text = f"The {word}, a friend of mine.\n{poem(rng, f'the {word}')}"
        return [made(rng, held, "poem", "poem", text, "A short poem about {w}.", word, x=x,
                     w=word)]  # fmt: skip
    thought = "I will tell a story about {x}."
    if rng.random() < 0.25:
        hero = rng.choice(ANIMALS)
        return [made(rng, held, "story", "any story", story(rng, hero), thought, "",
                     x=article(hero))]  # fmt: skip
    word = word if word in ANIMALS or rng.random() < 0.3 else rng.choice(HEROES)
    return [made(rng, held, "story", "story", story(rng, word), thought, word, x=article(word))]
