"""Questions with known answers, in phrasings and of items that nano's training never saw."""

from dataclasses import dataclass
from random import Random

from edgekit.recipes.nano.chat import Conversation, Turn, prompt_text
from edgekit.recipes.nano.skills import SKILLS

LIMIT = 512  # tokens of an answer
FREE_TEXT = {"fact", "joke", "story", "poem", "sentence"}  # only stopping counts


@dataclass(frozen=True, slots=True)
class Question:
    """One turn, asked with the right answers to those before it."""

    skill: str
    thinking: bool
    turn: Turn
    prompt: str

    @property
    def checked(self) -> bool:
        """Whether an answer can be wrong."""
        return bool(self.turn.key) and self.turn.skill not in FREE_TEXT

    def right(self, answer: str) -> bool:
        """Whether the answer holds what it must."""
        return self.turn.right(answer)


def questions(count: int, seed: int) -> list[Question]:
    """`count` conversations of each skill, every second one thinking."""
    rng = Random(seed)
    conversations = [(skill, skill(rng, True)) for skill in SKILLS for _ in range(count)]
    return [
        Question(
            skill.__name__,
            number % 2 == 0,
            turn,
            prompt_text(Conversation(turns[: i + 1], thinking=number % 2 == 0)),
        )
        for number, (skill, turns) in enumerate(conversations)
        for i, turn in enumerate(turns)
    ]
