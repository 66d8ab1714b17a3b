"""What commands say, and where: data on stdout, everything else on stderr.

One object, `out`, is resolved once a process. With `--json` a command writes JSON to stdout, one
object a line, each with a `schema_version`; tables and messages are for people.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TextIO

from edgekit.errors import EdgekitError

SCHEMA_VERSION = 1

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_CODES: dict[Style, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


class Output:
    """The two streams of a command. `json` is set by the command that was asked for it."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False

    # Streams are looked up at each use: tests and the pager swap them.

    @property
    def stdout(self) -> TextIO:
        return sys.stdout

    @property
    def stderr(self) -> TextIO:
        return sys.stderr

    # -- data, on stdout

    def record(self, fields: Mapping[str, object]) -> None:
        """One object: a JSON line, or `name  value` lines."""
        if self.json:
            self.json_line(fields)
            return
        width = max((len(name) for name in fields), default=0)
        for name, value in fields.items():
            label = self.styled(f"{name:<{width}}", "dim", self.stdout)
            self.print(f"{label}  {_cell(value)}".rstrip())

    def table(
        self, columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, empty: str = ""
    ) -> None:
        """Rows under upper-case headings; numbers align right. With `--json` one line a row, all
        fields, also those that are no column."""
        if self.json:
            for row in rows:
                self.json_line(row)
            return
        if self.quiet:
            for row in rows:
                self.print(_cell(row[columns[0]]))
            return
        if not rows:
            if empty:
                self.note(empty)
            return
        cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
        headings = [column.upper().replace("_", " ") for column in columns]
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        right = [
            all(isinstance(row.get(column), int | float | None) for row in rows)
            for column in columns
        ]
        self.print(self.styled(_line(headings, widths, right), "bold", self.stdout))
        for line in cells:
            self.print(_line(line, widths, right))

    def json_line(self, fields: Mapping[str, object]) -> None:
        """One JSON object on a line of its own."""
        record = {"schema_version": SCHEMA_VERSION, **fields}
        self.print(json.dumps(record, ensure_ascii=False, default=str))

    def print(self, text: str) -> None:
        """A line of data."""
        print(text, file=self.stdout, flush=True)

    # -- the rest, on stderr

    def note(self, text: str) -> None:
        """A line that is no data: what was done, what comes next."""
        print(text, file=self.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Something that deserves attention and stops nothing."""
        self.note(f"{self.styled('warning:', 'yellow')} {text}")

    def hint(self, text: str) -> None:
        """What to do next."""
        self.note(f"{self.styled('hint:', 'cyan')} {text}")

    def error(self, error: EdgekitError) -> None:
        """An error for people on stderr and, with `--json`, for programs on stdout."""
        if self.json:
            self.json_line({"type": "error", **error.as_dict()})
        self.note(f"{self.styled('error:', 'red')} {error.message}")
        if error.cause:
            lines = error.cause.splitlines()
            indent = "\n         "
            self.note(f"  cause: {indent.join(lines)}")
        if error.hint:
            self.note("")
            for line in error.hint.splitlines():
                self.hint(line)

    def confirm(self, question: str) -> bool:
        """Asks on the terminal; False when there is nobody to ask."""
        if not sys.stdin.isatty():
            return False
        print(f"{question} [y/N] ", end="", file=self.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    # -- colour

    def styled(self, text: str, style: Style, stream: TextIO | None = None) -> str:
        """The text in a style, if the stream (stderr unless said) shows colour."""
        if not text or not has_color(self.stderr if stream is None else stream):
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def internal_fault(error: Exception) -> EdgekitError:
    """What to say of an exception that edgekit did not foresee."""
    if os.environ.get("EDGEKIT_DEBUG"):
        traceback.print_exception(error)
    fault = EdgekitError(
        f"edgekit failed: {type(error).__name__}: {error}",
        hint="run it again with EDGEKIT_DEBUG=1 for the traceback, and report it",
    )
    fault.exit_code = 5
    return fault


def has_color(stream: TextIO) -> bool:
    """Whether to colour: NO_COLOR beats FORCE_COLOR beats what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "   ".join(parts).rstrip()


out = Output()
