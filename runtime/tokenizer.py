"""Text to token ids and back, over the `tokenizers` package.

A *control string* is the spelling of a token that structures a conversation: every special token
and the reasoning and tool markup. `encode` reads control strings as ordinary characters unless
asked otherwise, so text from outside cannot end a turn or start one; `edgekit.runtime.prompt`
builds whole conversations on that.

Decoding is done here, from each token's bytes, because a stream must give back exactly what
decoding everything at once would.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import BundleError
from edgekit.model import token_ids

if TYPE_CHECKING:
    import tokenizers

MARKUP = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
"""Control strings that parsers of generated text read: decoding never leaves them out."""

START_OF_TURN, END_OF_TURN = "<|im_start|>", "<|im_end|>"


class Tokenizer:
    """A byte-level BPE tokenizer.

    Args:
        inner: the loaded tokenizer.
        eos_token_ids: tokens that end an answer.

    Raises:
        BundleError: its tokens are not byte-level.
    """

    def __init__(self, inner: tokenizers.Tokenizer, eos_token_ids: tuple[int, ...] = ()) -> None:
        _require_byte_level(inner)
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self._special = {
            token: entry.content
            for token, entry in inner.get_added_tokens_decoder().items()
            if entry.special and entry.content not in MARKUP
        }
        # A single character cannot be cut in two, and no format uses one.
        controls = {text: token for token, text in self._special.items() if len(text) > 1}
        markup = {text: token for text in MARKUP if (token := inner.token_to_id(text)) is not None}
        self.controls: dict[str, int] = controls | markup
        self._control_ids = frozenset(self.controls.values())
        self.size = inner.get_vocab_size(with_added_tokens=True)
        self.eos_token_ids = eos_token_ids
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Reads tokenizer.json, and the end-of-answer tokens: those that generation_config.json and
        config.json name, and `<|im_end|>`.

        Raises:
            BundleError: tokenizer.json is missing, unreadable or not byte-level, or one of the
                configurations is no JSON.
            CheckpointError: an eos_token_id is no id.
        """
        import tokenizers

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise BundleError(
                f"no tokenizer.json in {folder}",
                cause="edgekit reads tokenizers in this one format",
                hint="download the checkpoint's tokenizer.json and build the bundle again",
            )
        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises plain Exception
            raise BundleError(
                f"{path} cannot be read",
                cause=str(error),
                hint="download the checkpoint's tokenizer.json and build the bundle again",
            ) from None
        eos = [
            token
            for name in ("generation_config.json", "config.json")
            for token in token_ids(read_json(folder / name).get("eos_token_id"))
        ]
        end_of_turn = inner.token_to_id(END_OF_TURN)
        if end_of_turn is not None:
            eos.append(end_of_turn)
        return cls(inner, tuple(dict.fromkeys(eos)))

    def check_vocab(self, vocab_size: int) -> None:
        """Raises BundleError if it has tokens for which a model of this vocabulary has no row."""
        if self.size > vocab_size:
            raise BundleError(
                f"the tokenizer has {self.size} tokens, the model only {vocab_size}",
                cause="they come from different checkpoints",
                hint="take tokenizer.json and config.json from the same checkpoint",
            )

    def id(self, token: str) -> int | None:
        """The id of a token by its string, such as `<|im_end|>`."""
        return self._inner.token_to_id(token)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; nothing is put before or after it.

        Args:
            special: read control strings as the tokens they spell. Only for text that edgekit or
                the chat template wrote.
        """
        text = _well_formed(text)
        if special or not any(control in text for control in self.controls):
            return self._inner.encode(text, add_special_tokens=False).ids
        # Cut inside each control string, the parts read as what they are: characters.
        parts = self._inside_controls.split(text)
        return [
            token
            for part in parts
            for token in self._inner.encode(part, add_special_tokens=False).ids
        ]

    @cached_property
    def _inside_controls(self) -> re.Pattern[str]:
        """Matches, without width, after the first character of every control string."""
        rests: dict[str, list[str]] = {}
        for control in self.controls:
            rests.setdefault(control[0], []).append(re.escape(control[1:]))
        return re.compile(
            "|".join(f"(?<={re.escape(c)})(?={'|'.join(rest)})" for c, rest in rests.items())
        )

    def find_controls(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Control strings in a text as `encode(special=True)` finds them.

        Yields:
            (start, end, token id), start and end in characters.
        """
        encoding = self._inner.encode(_well_formed(text), add_special_tokens=False)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token in self._control_ids:
                yield start, end, token

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; empty for an id that has no token."""
        found = self._bytes.get(token)
        if found is None:
            text = self._inner.id_to_token(token)
            found = self._bytes[token] = b"" if text is None else _spelled(text)
        return found

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(len(self.token_bytes(token)) for token in range(self.size))

    def decode(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of a token sequence; bytes that are no UTF-8 become U+FFFD.

        Args:
            skip_special: leave special tokens out, except for the markup in `MARKUP`.
        """
        detokenizer = Detokenizer(self, skip_special=skip_special)
        return "".join(map(detokenizer.push, tokens)) + detokenizer.finish()

    def is_skipped(self, token: int) -> bool:
        """Whether `skip_special` leaves this token out."""
        return token in self._special


class Detokenizer:
    """Decodes a token stream: text comes as soon as its UTF-8 is complete.

    What `push` and then `finish` return, joined, is `Tokenizer.decode` of all tokens.
    """

    __slots__ = ("_bytes", "_decode", "_skip_special", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._bytes: dict[int, bytes] = {}
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def push(self, token: int) -> str:
        """The text that this token completes, often all of its own, sometimes none."""
        found = self._bytes.get(token)
        if found is None:
            tokenizer = self._tokenizer
            skipped = self._skip_special and tokenizer.is_skipped(token)
            found = self._bytes[token] = b"" if skipped else tokenizer.token_bytes(token)
        return self._decode(found)

    def finish(self) -> str:
        """What is left when no token follows: U+FFFD for an incomplete character, else nothing."""
        return self._decode(b"", True)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that may be missing (an empty one then).

    Raises:
        BundleError: the file holds anything else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} is not valid JSON", cause=str(error)) from None
    if not isinstance(value, dict):
        raise BundleError(f"{path} does not hold a JSON object")
    return value


def _require_byte_level(inner: tokenizers.Tokenizer) -> None:
    state = json.loads(inner.decoder.__getstate__()) if inner.decoder is not None else {}
    kinds = {part.get("type") for part in state.get("decoders", [state])}
    if "ByteLevel" not in kinds or not kinds <= {"ByteLevel", "Fuse"}:
        raise BundleError(
            "tokenizer.json is not a byte-level tokenizer",
            cause=f"its decoder is {', '.join(sorted(map(str, kinds)))}",
            hint="edgekit runs NemotronH checkpoints, whose tokenizers are byte-level BPE",
        )


def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins: a printable Latin-1 byte is its own character, and the others
    are U+0100, U+0101, ... in order (Radford et al. 2019)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return table


_BYTES = _byte_of_character()


def _spelled(token: str) -> bytes:
    """The bytes of a token string; one with a character that is no stand-in is added text."""
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:
        return token.encode("utf-8")


def _well_formed(text: str) -> str:
    """Text with each lone surrogate, which Python makes of bytes that are not UTF-8, replaced.

    One character stands for one, so positions in the text stay what they were.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text
