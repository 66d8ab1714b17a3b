"""Chat templates: messages to the text a model was trained on.

A template comes with the checkpoint and is someone else's program, so it runs in jinja2's sandbox:
it sees JSON values only, cannot reach Python internals or change what it is given, and its output
is bounded. Its running time is not: a template may loop for long.

The environment is the one that checkpoints' templates are written for, transformers'
`apply_chat_template`: trim_blocks, lstrip_blocks, loop controls, `tojson` that leaves non-ASCII
and HTML alone, `raise_exception`, `strftime_now`, and `generation` blocks, which change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.errors import BundleError, UsageError
from edgekit.runtime.tokenizer import read_json

if TYPE_CHECKING:
    import jinja2

Message = Mapping[str, Any]
"""A chat message: role, content, and reasoning_content, tool_calls and the like."""

_MAX_CHARACTERS = 64 << 20
_TOKEN_VARIABLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class ChatTemplate:
    """One compiled template.

    Args:
        source: jinja2.
        variables: what it may use besides the messages, such as `bos_token`.

    Raises:
        BundleError: the source is no jinja2 template.
    """

    def __init__(self, source: str, variables: Mapping[str, Any] | None = None) -> None:
        import jinja2

        self._variables = dict(variables or {})
        self._source = source
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise BundleError(
                "the chat template cannot be compiled",
                cause=f"line {error.lineno}: {error.message}",
                hint="take chat_template.jinja from the checkpoint again",
            ) from None

    @cached_property
    def switches(self) -> frozenset[str]:
        """Names a caller may set with `options`, such as enable_thinking."""
        import jinja2.meta

        environment = _environment()
        names = jinja2.meta.find_undeclared_variables(environment.parse(self._source))
        given = {"messages", "tools", "documents", "add_generation_prompt", *self._variables}
        return frozenset(names - given - environment.globals.keys())

    @classmethod
    def load(cls, folder: Path) -> ChatTemplate | None:
        """The template of a bundle or checkpoint: chat_template.jinja, else the one in
        tokenizer_config.json, else None.

        Raises:
            BundleError: the template or tokenizer_config.json is malformed.
        """
        config = read_json(folder / "tokenizer_config.json")
        path = folder / "chat_template.jinja"
        try:
            source = path.read_text(encoding="utf-8") if path.is_file() else None
        except UnicodeDecodeError as error:
            raise BundleError(f"{path} is not text", cause=str(error)) from None
        if source is None:
            source = config.get("chat_template")
        if isinstance(source, list) and all(isinstance(entry, dict) for entry in source):
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
        if source is None:
            return None
        if not isinstance(source, str):
            raise BundleError("tokenizer_config.json: chat_template is not text")
        variables = {}
        for name in _TOKEN_VARIABLES:
            token = config.get(name)
            if isinstance(token, dict):
                token = token.get("content")
            if token is not None:
                variables[name] = token
        return cls(source, variables)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> str:
        """The text of a conversation.

        Args:
            messages: JSON values; keys that hold None count as absent.
            tools: JSON schemas of callable functions.
            add_generation_prompt: end with the opening of the assistant's turn.
            options: switches of this template, such as enable_thinking.

        Raises:
            UsageError: the template refuses these messages or fails on them.
            BundleError: the template does what the sandbox forbids, or writes without end.
        """
        import jinja2

        given = [
            {key: value for key, value in message.items() if value is not None}
            for message in messages
        ]
        context = {
            **self._variables,
            **_plain(options),
            "messages": _plain(given),
            "tools": _plain(tools),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.generate(context):
                pieces.append(piece)
                length += len(piece)
                if length > _MAX_CHARACTERS:
                    raise jinja2.exceptions.SecurityError("it writes without end")
        except _RefusalError as refusal:
            raise UsageError(
                "the chat template refuses this conversation", cause=str(refusal)
            ) from None
        except jinja2.exceptions.SecurityError as error:
            raise BundleError(
                "the chat template does something a template must not do",
                cause=str(error),
                hint="use a checkpoint from a source you trust",
            ) from None
        except Exception as error:  # a template can raise whatever Python operators raise
            raise UsageError(
                "the chat template fails on this conversation",
                cause=f"{type(error).__name__}: {error}",
                hint="check the messages' roles and fields, or the template itself",
            ) from None
        return "".join(pieces)


class _RefusalError(Exception):
    """What a template's `raise_exception` raises."""


def _plain(value: Any) -> Any:
    """A copy made of JSON types alone: no object with methods of its own reaches a template."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise UsageError(
        f"a chat message holds a {type(value).__name__}", cause="messages are made of JSON values"
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %}` marks what the assistant wrote, for training; here it only scopes."""

        tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> NoReturn:
        raise _RefusalError(message)

    def strftime_now(form: str) -> str:
        return datetime.now().strftime(form)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, Generation],
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    del environment.globals["lipsum"]
    return environment
