"""A conversation that needs no model, and the command line with it: for tests of what is shown.

It answers "Echo: " and the message, one word an event, after thinking "hm hm". A message with the
word `long` is answered until somebody stops it; one with `only think` is not answered at all.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from edgekit.cli import chat, main
from edgekit.errors import DoesNotFitError
from edgekit.runtime.events import Channel, Events, GenerationEvent, GenerationStats, SamplingParams


class FakeConversation:
    """The part of `edgekit.runtime.conversation.Conversation` that the command line uses."""

    def __init__(self, system: str | None = None, thinking: bool = True) -> None:
        self.system = system
        self.thinking = thinking
        self.params = SamplingParams(temperature=0.6)
        self.messages: list[dict[str, str]] = []

    def send(self, text: str) -> Events:
        if text == "too long":
            raise DoesNotFitError("the prompt is longer than the context", hint="/clear")
        if text == "break":
            raise RuntimeError("nobody foresaw this")
        self.messages.append({"role": "user", "content": text})
        yield from self._generate(text)

    def regenerate(self) -> Events:
        self.messages.pop()
        yield from self._generate(self.messages[-1]["content"] + " again")

    def undo(self) -> str | None:
        if not self.messages:
            return None
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        return question

    def clear(self) -> None:
        self.messages.clear()

    def token_count(self) -> int:
        return sum(len(message["content"].split()) for message in self.messages)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.messages))

    def load(self, path: Path) -> None:
        self.messages = json.loads(path.read_text())

    def _generate(self, text: str) -> Events:
        reasoning = ["hm ", "hm"] if self.thinking else []
        if "only think" in text:
            yield GenerationEvent("hm", "reasoning", (1,), GenerationStats(7, 0, 1, 1), "length")
            return
        words = [f"word{i} " for i in range(10_000)] if "long" in text else ["Echo: ", text]
        said: list[str] = []
        pieces: list[tuple[Channel, str]] = [("reasoning", piece) for piece in reasoning]
        pieces += [("content", word) for word in words]
        try:
            for index, (channel, piece) in enumerate(pieces):
                if channel == "content":
                    said.append(piece)
                stats = GenerationStats(7, 0, index + 1, min(index + 1, len(reasoning)), 0.1, 0.2)
                last = index + 1 == len(pieces)
                yield GenerationEvent(piece, channel, (index,), stats, "stop" if last else None)
                if "long" in text:
                    time.sleep(0.02)
        finally:
            self.messages.append({"role": "assistant", "content": "".join(said)})


def fake_open(bundle: Path, settings: Any, stop: tuple[str, ...]) -> FakeConversation:
    """Takes the place of `edgekit.cli.chat.open_conversation`."""
    think = settings.values.think
    conversation = FakeConversation(settings.values.system, True if think is None else think)
    conversation.params = chat.sampling(settings, conversation.params)
    return conversation


if __name__ == "__main__":
    chat.open_conversation = fake_open  # type: ignore[assignment]
    sys.exit(main())
