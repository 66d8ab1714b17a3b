"""A conversation with a model: turns, their undoing, and a file to keep them in."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.runtime.events import Events, SamplingParams
from edgekit.runtime.model import Model

_SCHEMA = 1
_ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message.

    Attributes:
        reasoning: what the model thought before an answer.
        interrupted: the answer was given up before the model ended it.
    """

    role: str
    content: str
    reasoning: str = ""
    interrupted: bool = False

    def as_message(self) -> dict[str, Any]:
        """The message as chat templates take it, and as files hold it."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.interrupted:
            message["interrupted"] = True
        return message


class Conversation:
    """Questions and answers, each answer seeing everything before it.

    An answer is an iterator of events. It joins the conversation when it ends, also when its
    iterator is closed or fails half-way: what there is of it stays, marked as interrupted. If there
    is no text yet, the conversation is as it was before the question. Anything that changes the
    conversation closes an answer that is still running.

    Attributes:
        system: system prompt; empty or None is none.
        params: sampling of the next answer; None is the model's own.
        thinking: let the model reason before the next answer.
    """

    def __init__(
        self,
        model: Model,
        system: str | None = "",
        params: SamplingParams | None = None,
        thinking: bool = True,
    ) -> None:
        self.model = model
        self.system = system
        self.params = params or model.sampling
        self.thinking = thinking
        self._turns: list[Turn] = []
        # Weak, so that an answer whose iterator is dropped is closed like any other.
        self._answering: weakref.ref[Events] | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turns as chat messages, without the system prompt: role, content, and where there is
        some, reasoning_content and interrupted."""
        return [turn.as_message() for turn in self._turns]

    def send(self, text: str) -> Events:
        """Asks, and answers as the iterator is read.

        Raises:
            UsageError, DoesNotFitError, BuildError: from the iterator; see `Model.chat`.
        """
        self._end_answer()
        return self._answer([*self._turns, Turn("user", text)])

    def regenerate(self) -> Events:
        """Answers the last question again. The answer it has stays until there is new text.

        Raises:
            UsageError: nothing was asked yet.
        """
        self._end_answer()
        last = self._last_question()
        if last is None:
            raise UsageError("there is no question to answer again", hint="ask something first")
        return self._answer(self._turns[: last + 1])

    def undo(self) -> str | None:
        """Takes the last question and its answer back; returns the question, None if there is
        none."""
        self._end_answer()
        last = self._last_question()
        if last is None:
            return None
        question = self._turns[last].content
        del self._turns[last:]
        return question

    def clear(self) -> None:
        """Forgets all turns; the system prompt stays."""
        self._end_answer()
        self._turns.clear()

    def token_count(self) -> int:
        """Tokens of the context that the conversation takes."""
        messages = self._prompt(self._turns)
        if not messages:
            return 0
        prompt = self.model.encode_chat(
            messages, thinking=self.thinking, add_generation_prompt=False
        )
        return len(prompt.tokens)

    def save(self, path: Path) -> None:
        """Writes the conversation as JSON: the file changes whole or not at all.

        Raises:
            UsageError: the file cannot be written.
        """
        data = {
            "edgekit_conversation": _SCHEMA,
            "system": self.system or "",
            "thinking": self.thinking,
            "messages": self.messages,
        }
        try:
            _write_atomically(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")
        except OSError as error:
            raise UsageError(f"cannot write {path}", cause=error.strerror or "") from None

    def load(self, path: Path) -> None:
        """Replaces system prompt, thinking and turns by those of a saved conversation.

        Raises:
            UsageError: the file cannot be read or is none that `save` wrote. Nothing changes then.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            system, thinking, turns = _parse(data)
        except OSError as error:
            raise UsageError(f"cannot read {path}", cause=error.strerror or "") from None
        except ValueError as error:
            raise UsageError(f"{path} is not a saved conversation", cause=str(error)) from None
        self._end_answer()
        self.system, self.thinking, self._turns = system, thinking, turns

    def _answer(self, turns: list[Turn]) -> Events:
        events = self._events(turns)
        self._answering = weakref.ref(events)
        return events

    def _events(self, turns: list[Turn]) -> Events:
        """Answers the last of these turns, and makes them and the answer the conversation."""
        before = self._turns
        text: dict[str, list[str]] = {"reasoning": [], "content": []}
        finished = False
        try:
            events = self.model.chat(self._prompt(turns), self.params, thinking=self.thinking)
            self._turns = turns
            with closing(events):
                for event in events:
                    if event.text:
                        text[event.channel].append(event.text)
                    finished = event.finish_reason is not None
                    yield event
        finally:
            reasoning, content = "".join(text["reasoning"]), "".join(text["content"])
            if finished or reasoning or content:
                answer = Turn("assistant", content, reasoning, interrupted=not finished)
                self._turns = [*turns, answer]
            else:
                self._turns = before

    def _prompt(self, turns: list[Turn]) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *(turn.as_message() for turn in turns)]

    def _last_question(self) -> int | None:
        questions = [i for i, turn in enumerate(self._turns) if turn.role == "user"]
        return questions[-1] if questions else None

    def _end_answer(self) -> None:
        events = self._answering() if self._answering is not None else None
        if events is not None:
            events.close()
        self._answering = None


def _parse(data: Any) -> tuple[str, bool, list[Turn]]:
    """System prompt, thinking and turns; ValueError for anything `save` does not write."""
    if not isinstance(data, dict) or data.get("edgekit_conversation") != _SCHEMA:
        raise ValueError(f"it has no edgekit_conversation {_SCHEMA}")
    system, thinking, messages = data.get("system"), data.get("thinking"), data.get("messages")
    if not (isinstance(system, str) and isinstance(thinking, bool) and isinstance(messages, list)):
        raise ValueError("system, thinking or messages is missing or of another type")
    return system, thinking, [_parse_turn(message) for message in messages]


def _parse_turn(message: Any) -> Turn:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise ValueError(f"a message has no role of {', '.join(_ROLES)}")
    turn = Turn(
        message["role"],
        message.get("content", ""),
        message.get("reasoning_content", ""),
        message.get("interrupted", False),
    )
    if not (isinstance(turn.content, str) and isinstance(turn.reasoning, str)):
        raise ValueError("a message's text is not text")
    if not isinstance(turn.interrupted, bool):
        raise ValueError("interrupted is not true or false")
    return turn


def _write_atomically(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
