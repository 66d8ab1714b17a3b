"""What an answer may say: grammars, tool calls that must happen, and an end to reasoning.

Grammars are llguidance's: JSON schema, regular expressions, Lark. They hold from the end of the
reasoning on; in the reasoning itself only tokens that would end the answer or begin a tool call are
ruled out. A grammar follows drafted tokens and takes them back, so it works with speculation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from edgekit.errors import MissingDependencyError, UsageError
from edgekit.runtime.tokenizer import Tokenizer
from edgekit.runtime.toolcalls import schema_types

if TYPE_CHECKING:
    import llguidance

F32 = npt.NDArray[np.float32]

_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How JSON is spaced: a small model that may add white space can do so without end."""

GrammarKind = Literal["json_schema", "regex", "lark"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language for the answer's content. `text` is JSON for a schema."""

    kind: GrammarKind
    text: str


class Grammars:
    """Compiles grammars for one tokenizer.

    Args:
        vocab_size: of the model, which may have more rows than the tokenizer tokens.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.tokenizer, self.vocab_size = tokenizer, vocab_size
        self._inner: llguidance.LLTokenizer | None = None
        self._compiled = lru_cache(16)(self._compile)

    def constraint(
        self,
        grammar: Grammar | None,
        *,
        in_reasoning: bool,
        thinking_budget: int | None = None,
    ) -> AnswerConstraint:
        """A fresh constraint for one answer.

        Args:
            in_reasoning: the prompt ended inside `<think>`.
            thinking_budget: most tokens of reasoning; then `</think>` must come.
        """
        matcher = self._compiled(grammar).deep_copy() if grammar is not None else None
        return AnswerConstraint(self.tokenizer, matcher, in_reasoning, thinking_budget)

    def check(self, grammar: Grammar) -> None:
        """Raises UsageError for a grammar that cannot be compiled, MissingDependencyError without
        llguidance."""
        self._compiled(grammar)

    def _compile(self, grammar: Grammar) -> llguidance.LLMatcher:
        library = _llguidance()
        make = {
            "json_schema": lambda text: library.LLMatcher.grammar_from_json_schema(
                text, overrides=_COMPACT
            ),
            "regex": library.LLMatcher.grammar_from_regex,
            "lark": library.LLMatcher.grammar_from_lark,
        }[grammar.kind]
        try:
            matcher = library.LLMatcher(self._llguidance_tokenizer(), make(grammar.text))
        except ValueError as error:
            raise UsageError("the grammar cannot be used", cause=str(error)) from None
        if matcher.is_error():
            cause = matcher.get_error().strip().splitlines()
            raise UsageError("the grammar cannot be used", cause=cause[0] if cause else "")
        compiled: llguidance.LLMatcher = matcher
        return compiled

    def _llguidance_tokenizer(self) -> llguidance.LLTokenizer:
        if self._inner is None:
            library = _llguidance()
            wrapped = library.TokenizerWrapper(_Vocabulary(self.tokenizer, self.vocab_size))
            self._inner = library.LLTokenizer(wrapped, eos_token=list(self.tokenizer.eos_token_ids))
        return self._inner


class AnswerConstraint:
    """A `Constraint` of one answer: reasoning up to a budget, then a grammar; either may be absent.

    Args:
        matcher: in its first state; None allows everything after the reasoning.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        matcher: llguidance.LLMatcher | None,
        in_reasoning: bool,
        thinking_budget: int | None,
    ) -> None:
        self._matcher = matcher
        self._budget = thinking_budget
        self._close = tokenizer.id("</think>")
        call = tokenizer.id("<tool_call>")
        self._ends_reasoning = {token for token in (self._close, call) if token is not None}
        # With a grammar to come, reasoning may end by </think> alone.
        barred = [*tokenizer.eos_token_ids, *([call] if call is not None else [])]
        self._barred = np.array(barred if matcher is not None else [], np.intp)
        self._in_reasoning = in_reasoning and self._close is not None
        self._reasoned = 0
        self._steps: list[Literal["reasoned", "closed", "matched", "free"]] = []

    def mask(self, logits: F32) -> F32:
        if self._in_reasoning:
            if self._budget is not None and self._reasoned >= self._budget:
                masked = np.full_like(logits, -np.inf)
                masked[self._close] = 0.0
                return masked
            if not len(self._barred):
                return logits
            masked = logits.copy()
            masked[self._barred] = -np.inf
            return masked
        if self._matcher is None:
            return logits
        allowed = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        bits = np.unpackbits(allowed, bitorder="little")[: len(logits)]
        if len(bits) < len(logits):
            bits = np.pad(bits, (0, len(logits) - len(bits)))
        return np.where(bits.astype(np.bool_), logits, np.float32(-np.inf))

    def advance(self, token: int) -> None:
        if self._in_reasoning:
            if token in self._ends_reasoning:
                self._in_reasoning = False
                self._steps.append("closed")
            else:
                self._reasoned += 1
                self._steps.append("reasoned")
        elif self._matcher is not None and self._matcher.try_consume_tokens([token]):
            self._steps.append("matched")
        else:
            self._steps.append("free")

    def rewind(self) -> None:
        step = self._steps.pop()
        if step == "reasoned":
            self._reasoned -= 1
        elif step == "closed":
            self._in_reasoning = True
        elif step == "matched":
            assert self._matcher is not None
            self._matcher.rollback(1)


def tool_grammar(
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]],
    *,
    parallel: bool,
    otherwise: Grammar | None = None,
) -> Grammar:
    """The language of calls of these tools, in the markup of `edgekit.runtime.toolcalls`.

    Required parameters come first, in the schema's order, and the others after them, in order, each
    at most once. A string is free text, whatever pattern or format its schema has; an enum is one
    of its values; anything else is JSON by its schema.

    Args:
        tools: each `{"function": {"name", "parameters"}}`, at least one.
        parallel: allow more than one call.
        otherwise: what the answer may be in place of calls.

    Raises:
        UsageError: a name or schema that the markup cannot hold.
    """
    marks = {}
    for mark in ("<tool_call>", "</tool_call>"):
        token = tokenizer.id(mark)
        if token is None:
            raise UsageError(
                "this model cannot be made to call tools",
                cause=f"its tokenizer has no {mark}",
            )
        marks[mark] = f"<[{token}]>"
    calls = f"call{'+' if parallel else ''}"
    lines = [
        f"start: {calls}" + (f" | {_inline(otherwise)}" if otherwise is not None else ""),
        f'call: {marks["<tool_call>"]} "\\n" function {marks["</tool_call>"]} "\\n"?',
        f"function: {' | '.join(f'f{i}' for i in range(len(tools)))}",
    ]
    for i, tool in enumerate(tools):
        function = tool["function"]
        parameters = function.get("parameters") or {}
        properties = parameters.get("properties") or {}
        required = [name for name in parameters.get("required") or () if name in properties]
        optional = [name for name in properties if name not in required]
        parts = []
        for j, name in enumerate([*required, *optional]):
            _check_name(name)
            parts.append(f"p{i}_{j}" + ("" if name in required else "?"))
            schema, value = properties[name], f"v{i}_{j}"
            choices = _choices(schema)
            types = schema_types(schema)
            if choices is None and (not types or "string" in types):
                lines.append(f'{value}[suffix="\\n</parameter>\\n"]: /(?s:.*)/')
            else:
                shared = {k: parameters[k] for k in ("$defs", "definitions") if k in parameters}
                compact = {**shared, **schema, "x-guidance": _COMPACT}
                body = " | ".join(choices or [f"%json {json.dumps(compact)}"])
                lines.append(f"{value}: {body}")
                value += ' "\\n</parameter>\\n"'
            opening = json.dumps(f"<parameter={name}>\n")
            lines.append(f"p{i}_{j}: {opening} {value}")
        _check_name(function["name"])
        opening = json.dumps(f"<function={function['name']}>\n")
        lines.append(f'f{i}: {opening} {" ".join(parts)} "</function>\\n"')
    return Grammar("lark", "\n".join(lines))


def _inline(grammar: Grammar) -> str:
    """A grammar as part of a Lark rule."""
    if grammar.kind == "json_schema":
        schema = json.loads(grammar.text)
        return f"%json {json.dumps({**schema, 'x-guidance': _COMPACT})}"
    if grammar.kind == "regex":
        return "/" + grammar.text.replace("/", "\\/") + "/"
    raise UsageError("a grammar and tools cannot be combined", hint="set tool_choice to none")


def _check_name(name: str) -> None:
    if not name or any(character in name for character in ">\n"):
        raise UsageError(f"a tool or parameter cannot be called {name!r}")


def _choices(schema: Any) -> list[str] | None:
    """What an enum allows, as quoted Lark strings: text as it is, other values as JSON."""
    if not isinstance(schema, Mapping):
        return None
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    if not isinstance(values, list):
        return None
    return [json.dumps(v if isinstance(v, str) else json.dumps(v)) for v in values]


class _Vocabulary:
    """A tokenizer as llguidance takes it: control tokens are special, so no text can spell them."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_token_ids[0]
        self.bos_token_id = None
        self.tokens = [tokenizer.token_bytes(token) for token in range(vocab_size)]
        self.special_token_ids = sorted(tokenizer.controls.values())

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        return self._tokenizer.encode(text)


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise MissingDependencyError(
            "structured output needs llguidance",
            cause=str(error),
            hint="pip install 'edgekit-nemotron[serve]'",
        ) from None
    return llguidance
