"""`edgekit bench --compare`: a record of today beside one that was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from edgekit.cli.output import SCHEMA_VERSION, out
from edgekit.errors import UsageError
from edgekit.units import size_text

_MOST_BYTES = 16 << 20
_SAME = ("executor", "executor_version", "profile", "cpu", "gpu", "power_mode")
"""What of the environment must be alike, or figures do not compare."""
_NOTED = ("threads", "speculate", "draft_tokens")


class _Spread(BaseModel):
    median: float


class _Result(BaseModel):
    test: str
    tokens_per_second: _Spread
    first_token_ms: _Spread | None
    token_ms: _Spread | None


class _Bundle(BaseModel):
    name: str
    bytes: int


class Kept(BaseModel):
    """What a comparison reads of a bench record."""

    type: Literal["bench"]
    schema_version: Literal[1]
    date: str
    bundle: _Bundle
    settings: dict[str, Any]
    environment: dict[str, Any]
    load_seconds: float
    peak_rss: int | None
    peak_device: int | None
    results: list[_Result]


def read_record(path: Path) -> Kept:
    """A record that `edgekit bench --json` wrote.

    Raises:
        UsageError: the file cannot be read or holds something else.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _no_record(path, "it is too large")
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read {path}", cause=error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _no_record(path, "it is no text") from None
    try:
        return Kept.model_validate(json.loads(text))
    except (json.JSONDecodeError, RecursionError):
        raise _no_record(path, "it is not one JSON object") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise _no_record(path, f"{where}: {first['msg']}") from None


def _no_record(path: Path, cause: str) -> UsageError:
    return UsageError(
        f"{path} is no record of a measurement",
        cause=cause,
        hint="edgekit bench BUNDLE --json > old.json",
    )


def compare(old: Kept, record: dict[str, Any]) -> dict[str, Any]:
    """Both records' figures side by side, as JSON.

    A row is a figure that both have; `ratio` is how many times better the new one is. `differs`
    says what of the environment is not alike, `changed` which settings are not.
    """
    new = Kept.model_validate({"type": "bench", "schema_version": SCHEMA_VERSION, **record})
    rows: list[dict[str, Any]] = []

    def add(figure: str, unit: str, before: float | None, now: float | None, more: bool) -> None:
        if before and now:
            better = now / before if more else before / now
            rows.append(
                {"figure": figure, "unit": unit, "old": before, "new": now, "ratio": better}
            )

    by_test = {result.test: result for result in old.results}
    for result in new.results:
        kept = by_test.get(result.test)
        if kept is None:
            continue
        rates = kept.tokens_per_second.median, result.tokens_per_second.median
        add(result.test, "tok/s", *rates, more=True)
        if kept.first_token_ms and result.first_token_ms:
            times = kept.first_token_ms.median, result.first_token_ms.median
            add(f"{result.test}, first token", "ms", *times, more=False)
    add("load", "s", old.load_seconds, new.load_seconds, more=False)
    add("peak memory", "bytes", old.peak_rss, new.peak_rss, more=False)
    add("on the GPU", "bytes", old.peak_device, new.peak_device, more=False)
    add("bundle", "bytes", old.bundle.bytes, new.bundle.bytes, more=False)
    return {
        "date": old.date,
        "rows": rows,
        "differs": {
            name: [old.environment.get(name), new.environment.get(name)]
            for name in _SAME
            if old.environment.get(name) != new.environment.get(name)
        },
        "changed": {
            name: [old.settings.get(name), new.settings.get(name)]
            for name in _NOTED
            if old.settings.get(name) != new.settings.get(name)
        },
        "only_old": sorted(set(by_test) - {result.test for result in new.results}),
        "only_new": sorted({result.test for result in new.results} - set(by_test)),
    }


def show_comparison(compared: dict[str, Any]) -> None:
    """The comparison as a table, and on stderr why it may not be one."""
    out.print("")
    rows = []
    for row in compared["rows"]:
        is_size = row["unit"] == "bytes"
        rows.append(
            {
                "figure": row["figure"],
                "unit": "" if is_size else row["unit"],
                "old": size_text(row["old"]) if is_size else f"{row['old']:.4g}",
                "new": size_text(row["new"]) if is_size else f"{row['new']:.4g}",
                "ratio": f"{row['ratio']:.2f}x",
            }
        )
    out.table(["figure", "unit", "old", "new", "ratio"], rows)
    out.note(f"old is of {compared['date']}; a ratio above 1 is better now")
    for name in (*compared["only_old"], *compared["only_new"]):
        which = "old" if name in compared["only_old"] else "new"
        out.note(f"{name} is in the {which} record only")
    for name, (before, now) in compared["changed"].items():
        out.note(f"{name.replace('_', ' ')}: {before or 'auto'} before, {now or 'auto'} now")
    for name, (before, now) in compared["differs"].items():
        out.warn(f"{name.replace('_', ' ')} was {before or 'unknown'} and is {now or 'unknown'}")
