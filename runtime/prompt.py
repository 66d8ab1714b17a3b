"""From a conversation to prompt tokens, in which only the template can place control tokens.

A template's output mixes its own control strings (`<|im_end|>`) with text from users, tools and
the model, and is tokenized with control strings recognised. So before rendering, the text is
*sealed*: the first character of each control string in it is exchanged for a stand-in, a letter
that the conversation does not have. After rendering, what still reads as a control string is the
template's; the stretches between are unsealed and encoded as ordinary characters. A conversation
without such strings needs none of this and is tokenized in one piece, as transformers does it.

Two limits: reasoning and tool markup in an assistant message stays what it is, because the format
has it there; and a template that itself joins pieces of text into a control string is not caught.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from edgekit.runtime.template import ChatTemplate, Message
from edgekit.runtime.tokenizer import MARKUP, START_OF_TURN, Tokenizer

Restore = dict[int, str]
"""A `str.translate` table from stand-ins to the characters they stand for."""

_WORTH = 32
"""Tokens that are worth a copy of the state: computing them takes about as long as copying it."""

_STAND_INS = (range(0x10600, 0x10737), range(0x20000, 0x2A6D0))


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A tokenized conversation.

    Attributes:
        tokens: prompt token ids.
        boundary: how many of them come before the generation prompt; later prompts of the same
            conversation start with those. None where the two cannot be told apart.
        opens_reasoning: the generation prompt ends inside `<think>`.
        turns: where messages after the first begin, up to `boundary`.
    """

    tokens: list[int]
    boundary: int | None
    opens_reasoning: bool
    turns: tuple[int, ...] = ()

    @property
    def snapshot_at(self) -> tuple[int, ...]:
        """Where later prompts may part from this one: after the first message, before the last one,
        and before the generation prompt. A few tokens more or less are not worth a copy."""
        if self.boundary is None:
            return ()
        first = self.first_turn if self.first_turn >= _WORTH else 0
        last = self.turns[-1] if self.turns else 0
        if last - first < _WORTH or self.boundary - last < _WORTH:
            last = 0
        return tuple(sorted({at for at in (first, last, self.boundary) if at}))

    @property
    def first_turn(self) -> int:
        """Tokens of the first message, the system message where there is one; 0 if unknown."""
        return self.turns[0] if self.turns else 0


def encode_chat(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    add_generation_prompt: bool = True,
    **options: Any,
) -> ChatPrompt:
    """Renders and tokenizes a conversation; see `ChatTemplate.render` for arguments and errors."""
    restore: Restore = {}
    if _mentions(messages, tokenizer.controls) or _mentions(tools, tokenizer.controls):
        restore = _stand_ins(tokenizer.controls, [*strings(messages), *strings(tools)])
        messages = [_seal_message(message, tokenizer.controls, restore) for message in messages]
        tools = _seal(tools, tokenizer.controls, restore)
    history = template.render(messages, tools, add_generation_prompt=False, **options)
    if not add_generation_prompt:
        return ChatPrompt(_encode(tokenizer, history, restore), None, False)
    text = template.render(messages, tools, add_generation_prompt=True, **options)
    opening = text.removeprefix(history)
    opens_reasoning = text.rstrip().endswith("<think>")
    # Tokens never reach across a control string, so the two parts may be encoded one by one.
    if history and text != opening and opening.startswith(tuple(tokenizer.controls)):
        before = _encode(tokenizer, history, restore)
        start = tokenizer.id(START_OF_TURN)
        turns = tuple(i for i, token in enumerate(before) if token == start and i)
        tokens = before + _encode(tokenizer, opening, restore)
        return ChatPrompt(tokens, len(before), opens_reasoning, turns)
    return ChatPrompt(_encode(tokenizer, text, restore), None, opens_reasoning)


def _encode(tokenizer: Tokenizer, text: str, restore: Restore) -> list[int]:
    if not restore:
        return tokenizer.encode(text, special=True)
    tokens: list[int] = []
    position = 0
    for start, end, token in tokenizer.find_controls(text):
        tokens += tokenizer.encode(text[position:start].translate(restore))
        tokens.append(token)
        position = end
    return tokens + tokenizer.encode(text[position:].translate(restore))


def strings(value: Any) -> Iterator[str]:
    """Every string in nested lists and mappings, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from strings(item)


def _mentions(value: Any, controls: Iterable[str]) -> bool:
    return any(control in text for text in strings(value) for control in controls)


def _stand_ins(controls: Iterable[str], texts: list[str]) -> Restore:
    """A letter that no text uses for each character a control string starts with.

    Linear A, then rare ideographs: letters without case or variants, which templates pass on
    whatever they do with text (`repr` and `string` would escape private-use characters).
    """
    used = set().union(*texts)
    letters = (code for code in chain(*_STAND_INS) if chr(code) not in used)
    return {next(letters): first for first in sorted({control[0] for control in controls})}


def _seal_message(message: Message, controls: Iterable[str], restore: Restore) -> Message:
    if message.get("role") == "assistant":
        controls = [control for control in controls if control not in MARKUP]
    sealed: Message = _seal(message, controls, restore)
    return sealed


def _seal(value: Any, controls: Iterable[str], restore: Restore) -> Any:
    """The value with every control string in its strings sealed."""
    # The lookahead finds occurrences that overlap as well.
    start = re.compile(f"(?={'|'.join(map(re.escape, controls))}).", re.DOTALL)
    stand_in = {first: chr(code) for code, first in restore.items()}

    def seal(item: Any) -> Any:
        if isinstance(item, str):
            return start.sub(lambda match: stand_in[match[0]], item)
        if isinstance(item, Mapping):
            return {seal(key): seal(entry) for key, entry in item.items()}
        if isinstance(item, Sequence):
            return [seal(entry) for entry in item]
        return item

    return seal(value)
