"""Divides generated text into reasoning and content, while it streams.

The rules are those of the Nemotron 3 format, as vLLM's parser `nemotron_v3` has them:

- Text starts in the reasoning when the prompt ended inside `<think>`. A `<think>` that the model
  writes itself at the start opens the reasoning too, and is dropped, however often it is written.
- `</think>` ends the reasoning. So does `<tool_call>`, which belongs to the content.
- White space around the reasoning is dropped, and so are newlines before the content, and any
  `</think>` before it. After that the content is passed on as it is.
"""

from __future__ import annotations

from enum import Enum, auto

from edgekit.runtime.events import Channel
from edgekit.runtime.stopping import PartialMatch

_OPEN = "<think>"
_CLOSE = "</think>"
_CALL = "<tool_call>"

Piece = tuple[Channel, str]


class _State(Enum):
    START = auto()  # white space so far; the text decides where it begins
    REASONING = auto()
    BEFORE_CONTENT = auto()  # white space and closing tags so far
    CONTENT = auto()


class ReasoningSplitter:
    """One generation's text, divided into pieces whose order and sum do not depend on the chunks.

    Args:
        start_in_reasoning: the prompt ended inside `<think>`.
    """

    __slots__ = ("_held", "_partial", "_start_in_reasoning", "_state")

    def __init__(self, *, start_in_reasoning: bool) -> None:
        self._start_in_reasoning = start_in_reasoning
        self._state = _State.START
        self._held = ""
        self._partial = PartialMatch((_CLOSE, _CALL))

    @property
    def channel(self) -> Channel:
        """Where the next text goes as far as is known."""
        if self._state is _State.START:
            return "reasoning" if self._start_in_reasoning else "content"
        return "reasoning" if self._state is _State.REASONING else "content"

    def push(self, text: str) -> list[Piece]:
        """Pieces that are certain now, none of them empty."""
        if self._state is _State.CONTENT:
            return [("content", text)] if text else []
        self._held += text
        return self._advance(final=False)

    def finish(self) -> list[Piece]:
        """What was held back, when the text ends here."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> list[Piece]:
        pieces: list[Piece] = []
        if self._state is _State.START and not self._begin(final):
            return pieces
        if self._state is _State.REASONING and not self._reason(pieces, final):
            return pieces
        if self._state is _State.BEFORE_CONTENT:
            self._enter_content(pieces, final)
        return pieces

    # Each of these returns whether the state is done.

    def _begin(self, final: bool) -> bool:
        rest = self._held.lstrip()
        while rest.startswith(_OPEN):
            self._start_in_reasoning = True
            rest = self._held = rest[len(_OPEN) :].lstrip()
        if _OPEN.startswith(rest) and not final:
            return False
        if self._start_in_reasoning:
            self._held = rest
        self._state = _State.REASONING if self._start_in_reasoning else _State.BEFORE_CONTENT
        return True

    def _reason(self, pieces: list[Piece], final: bool) -> bool:
        text = self._held
        ends = [at for mark in (_CLOSE, _CALL) if (at := text.find(mark)) >= 0]
        if ends:
            end = min(ends)
            body = text[:end].rstrip()
            self._held = text[end:]
            self._state = _State.BEFORE_CONTENT
        else:
            body = (text if final else text[: len(text) - self._partial.length(text)]).rstrip()
            self._held = text[len(body) :]
        if body:
            pieces.append(("reasoning", body))
        return bool(ends)

    def _enter_content(self, pieces: list[Piece], final: bool) -> None:
        rest = self._held.lstrip()
        while rest.startswith(_CLOSE):
            self._held = rest[len(_CLOSE) :]
            rest = self._held.lstrip()
        if _CLOSE.startswith(rest) and not final:
            return
        text = self._held.lstrip("\r\n")
        self._held = ""
        self._state = _State.CONTENT
        if text:
            pieces.append(("content", text))
