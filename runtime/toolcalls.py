"""Tool calls in generated text, while it streams.

The markup is that of the Nemotron 3 format:

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Models slip, so these are accepted: `<function=` without `<tool_call>`, a value without
`</parameter>`, a call without `</function>` or `</tool_call>`, text that ends inside a call. What a
`<tool_call>` holds that is no call is text. White space beside calls is dropped.

A value is the text between its tags without the newline on either side, which is what chat
templates put around it: stripping more would break indented code. Where the tool's JSON schema
wants something other than a string, it is converted; what cannot be stays a string. A value may
hold any `<`: a missing `</parameter>` is only believed where the next tag begins a line, which is
where the format has it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.runtime.stopping import PartialMatch

CALL, END_CALL = "<tool_call>", "</tool_call>"
FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"

_BODY_TAGS = (PARAMETER, END_FUNCTION, END_CALL, FUNCTION, CALL)
_VALUE_END = re.compile(
    f"{END_PARAMETER}|{END_CALL}|{CALL}|\n(?={PARAMETER}|{END_FUNCTION}|{FUNCTION})"
)
_VALUE_HOLD = PartialMatch(
    (
        f"\n{END_PARAMETER}",
        f"\n{END_CALL}",
        f"\n{CALL}",
        f"\n{PARAMETER}",
        f"\n{END_FUNCTION}",
        f"\n{FUNCTION}",
        END_PARAMETER,
        END_CALL,
        CALL,
    )
)
_TEXT_HOLD = PartialMatch((CALL, FUNCTION))
_NAME_END = re.compile("[>\n]")


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text outside of calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; `index` counts the calls of one answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


ToolDelta = TextDelta | CallStart | CallArguments


class ToolCallParser:
    """One answer's content, divided into text and calls.

    What `push` and `finish` return does not depend on how the text was divided, except that
    neighbouring text, or neighbouring arguments of a call, come in other pieces.

    Args:
        tools: the request's tools, `{"type": "function", "function": {...}}` or the inner mapping;
            their schemas say what values are.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        functions = [tool.get("function", tool) for tool in tools]
        self._schemas = {f.get("name"): _properties(f.get("parameters")) for f in functions}
        self._held = ""
        self._deltas: list[ToolDelta] = []
        self._state: Callable[[bool], bool] = self._text
        self._opening = ""  # of a call whose name is not complete yet, as written
        self._calls = 0
        self._name = ""
        self._keys: set[str] = set()
        self._key: str | None = None  # None for a value that is dropped
        self._streams = False
        self._begun = False
        self._said_text = False

    @property
    def calls(self) -> int:
        """Calls begun so far."""
        return self._calls

    def push(self, text: str) -> list[ToolDelta]:
        """What is certain now."""
        self._held += text
        return self._advance(final=False)

    def finish(self) -> list[ToolDelta]:
        """What was held back, when the text ends here. A call that is open is closed."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> list[ToolDelta]:
        self._deltas = []
        while self._state(final):
            pass
        return self._deltas

    # Each state consumes from _held and returns whether another has to look at the rest.

    def _text(self, final: bool) -> bool:
        found = [(at, tag) for tag in (CALL, FUNCTION) if (at := self._held.find(tag)) >= 0]
        if found:
            at, tag = min(found)
            text = self._held[:at].rstrip()
            self._say(text)
            begin = at + (len(CALL) if tag == CALL else 0)
            self._opening, self._held = self._held[len(text) : begin], self._held[begin:]
            self._state = self._before_function
            return True
        end = len(self._held) - (0 if final else _TEXT_HOLD.length(self._held))
        body = self._held[:end]
        kept = len(body.rstrip())  # white space may come before a call
        if final and not self._calls:
            kept = end
        self._say(body[:kept])
        self._held = "" if final else self._held[kept:]
        return False

    def _before_function(self, final: bool) -> bool:
        """After `<tool_call>`, or at `<function=`."""
        rest = self._held.lstrip()
        if not final and any(tag.startswith(rest) for tag in (FUNCTION, CALL, END_CALL)):
            return False
        if not rest.startswith(FUNCTION):
            if rest.startswith(CALL):  # said twice
                self._held = rest.removeprefix(CALL)
                return True
            self._state = self._text
            if rest.startswith(END_CALL):  # an empty call
                self._held = rest.removeprefix(END_CALL)
            else:
                self._say(self._opening)
            return True
        named = rest.removeprefix(FUNCTION)
        end = _NAME_END.search(named)
        if end is None:
            if final:
                self._say(self._opening + self._held)
                self._held = ""
            return False
        self._held = named[end.end() :]
        self._name, self._keys = named[: end.start()].strip(), set()
        self._deltas.append(CallStart(self._calls, self._name))
        self._calls += 1
        self._state = self._body
        return True

    def _body(self, final: bool) -> bool:
        """Between values: everything up to a tag is dropped."""
        found = [(at, tag) for tag in _BODY_TAGS if (at := self._held.find(tag)) >= 0]
        if not found:
            if final:
                self._end_call()
                self._held = ""
            else:
                self._held = self._held[-max(map(len, _BODY_TAGS)) :]
            return False
        at, tag = min(found)
        rest = self._held[at + len(tag) :]
        if tag == PARAMETER:
            end = _NAME_END.search(rest)
            if end is None:
                self._held = self._held[at:]
                if final:
                    self._end_call()
                    self._held = ""
                return False
            self._held = rest[end.end() :]
            self._begin_value(rest[: end.start()].strip(), skipped_newline=end[0] == "\n")
            return True
        self._end_call()
        self._opening = CALL if tag == CALL else ""
        self._held = rest if tag in (END_FUNCTION, END_CALL, CALL) else self._held[at:]
        if tag == END_FUNCTION:
            self._state = self._after_function
        elif tag == END_CALL:
            self._state = self._text
        else:
            self._state = self._before_function
        return True

    def _after_function(self, final: bool) -> bool:
        """`</tool_call>` may follow."""
        rest = self._held.lstrip()
        if END_CALL.startswith(rest) and not final:
            return False
        if rest.startswith(END_CALL):
            self._held = rest.removeprefix(END_CALL)
        self._state = self._text
        return True

    def _value(self, final: bool) -> bool:
        end = _VALUE_END.search(self._held)
        if end is not None:
            self._end_value(self._value_text(end.start()).removesuffix("\n"))
            self._held = self._held[end.start() :].removeprefix(END_PARAMETER)
            self._state = self._body
            return True
        # The newline that may end the value is held with the tag it may belong to.
        cut = len(self._held) - _VALUE_HOLD.length(self._held)
        if final:
            self._end_value(self._value_text(cut))
            self._held = ""
            self._end_call()
        elif self._streams and cut:
            self._argue(_escaped(self._value_text(cut)))
            self._held = self._held[cut:]
        return False

    def _value_text(self, end: int) -> str:
        """What is held before `end`, without the newline after the opening tag."""
        text = self._held[:end]
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix("\n")
        return text

    # What states do

    def _say(self, text: str) -> None:
        if text and self._calls and not self._said_text:
            text = text.lstrip()
        if text:
            self._said_text = True
            self._deltas.append(TextDelta(text))

    def _argue(self, text: str) -> None:
        if text:
            self._deltas.append(CallArguments(self._calls - 1, text))

    def _begin_value(self, key: str, *, skipped_newline: bool) -> None:
        schema = self._schemas.get(self._name, {}).get(key)
        self._begun = skipped_newline
        self._state = self._value
        self._schema = schema
        self._streams = False
        if key in self._keys:
            self._key = None
            return
        self._key = key
        self._argue(("{" if not self._keys else ", ") + _dumped(key) + ": ")
        self._keys.add(key)
        if schema_types(schema) <= {"string"}:
            self._streams = True
            self._argue('"')

    def _end_value(self, text: str) -> None:
        if self._streams:
            self._argue(_escaped(text) + '"')
        elif self._key is not None:
            self._argue(_dumped(converted(text, self._schema)))

    def _end_call(self) -> None:
        self._argue("}" if self._keys else "{}")
        self._said_text = False
        self._state = self._text


def converted(text: str, schema: Any) -> Any:
    """A value as its schema wants it; the text itself where it cannot be."""
    types = schema_types(schema)
    stripped = text.strip()
    if "null" in types and stripped in ("null", "None"):
        return None
    if "boolean" in types and stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    value = _json(stripped) if types & {"integer", "number", "object", "array"} else None
    if isinstance(value, bool):
        return text
    if isinstance(value, int) and types & {"integer", "number"}:
        return value
    if isinstance(value, float):
        if "number" in types:
            return value
        return int(value) if "integer" in types and value.is_integer() else text
    if (isinstance(value, dict) and "object" in types) or (
        isinstance(value, list) and "array" in types
    ):
        return value
    return text


def _json(text: str) -> Any:
    """The JSON value a text is, None where it is none or has no finite size."""
    try:
        value = json.loads(text, parse_constant=lambda constant: None)
    except (ValueError, RecursionError):
        return None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def schema_types(schema: Any, depth: int = 0) -> set[str]:
    """The JSON types a schema allows; nothing where it does not say."""
    if not isinstance(schema, Mapping) or depth > 8:
        return set()
    given = schema.get("type")
    types = {given} if isinstance(given, str) else set(given or ())
    for key in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(key) or ():
            types |= schema_types(part, depth + 1)
    if not types:
        values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        types = {_type_of(value) for value in values}
    return types


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "string")


def _properties(parameters: Any) -> Mapping[str, Any]:
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    """The inside of a JSON string; pieces may be escaped one by one."""
    return _dumped(text)[1:-1]
