"""The slash commands of the chat: one table for what they do, their help and their completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit import paths
from edgekit.cli.chat import SAMPLING, read_text
from edgekit.cli.output import out
from edgekit.errors import EdgekitError, UsageError
from edgekit.names import unknown_name

if TYPE_CHECKING:
    from edgekit.cli.repl import Repl

SETTABLE = (*SAMPLING, "think", "hide_thinking", "stats")
"""What /set changes."""

_SWITCH = ("on", "off")


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command.

    Attributes:
        arguments: as help shows them.
        run: takes the chat and the text after the name.
        complete: the words that may come next, given the words so far.
    """

    name: str
    arguments: str
    summary: str
    run: Callable[[Repl, str], None]
    complete: Callable[[list[str]], Iterable[str]] = lambda words: ()


def dispatch(repl: Repl, line: str) -> None:
    """Runs the command of a line that starts with a slash.

    Raises:
        UsageError: there is no such command.
    """
    name, _, rest = line[1:].partition(" ")
    if name in ("?", ""):
        name = "help"
    command = COMMANDS.get(name)
    if command is None:
        raise unknown_name("command", f"/{name}", [f"/{known}" for known in COMMANDS])
    command.run(repl, rest.strip())


def completions(line: str) -> list[str]:
    """The words that can stand at the end of a line that starts with a slash."""
    words = line[1:].split(" ")
    if len(words) == 1:
        return [f"/{name}" for name in COMMANDS if name.startswith(words[0])]
    command = COMMANDS.get(words[0])
    if command is None:
        return []
    return [word for word in command.complete(words[1:]) if word.startswith(words[-1])]


def _help(repl: Repl, rest: str) -> None:
    width = max(len(f"{c.name} {c.arguments}") for c in COMMANDS.values()) + 2
    for command in COMMANDS.values():
        usage = f"/{command.name} {command.arguments}".rstrip()
        out.note(f"  {usage:<{width}} {command.summary}")
    out.note("")
    out.note('  """ starts and ends a message of several lines; Alt-Enter breaks a line.')
    out.note("  Ctrl-C stops an answer and keeps it, Ctrl-G opens the editor, Ctrl-D leaves.")


def _bye(repl: Repl, rest: str) -> None:
    raise EOFError


def _clear(repl: Repl, rest: str) -> None:
    repl.conversation.clear()
    repl.attached = ""
    out.note("the conversation is empty")


def _regen(repl: Repl, rest: str) -> None:
    repl.answer(repl.conversation.regenerate)


def _undo(repl: Repl, rest: str) -> None:
    question = repl.conversation.undo()
    if question is None:
        out.note("there is nothing to take back")
    else:
        out.note(f"took back the last exchange; {_count(repl)} left")


def _system(repl: Repl, rest: str) -> None:
    if rest:
        repl.conversation.system = "" if rest == "none" else rest
        out.note("the next answer follows it")
    else:
        out.note(repl.conversation.system or "no system prompt: /system TEXT sets one")


def _set(repl: Repl, rest: str) -> None:
    name, _, value = rest.partition(" ")
    if not name:
        for known in SETTABLE:
            out.note(f"  {known:<20} {_shown(repl, known)}")
        return
    name = name.replace("-", "_")
    if name not in SETTABLE:
        raise unknown_name("setting", name, SETTABLE)
    if not value:
        out.note(f"{name} is {_shown(repl, name)}")
        return
    repl.change(name, value.strip())
    out.note(f"{name} is {_shown(repl, name)}")


def _think(repl: Repl, rest: str) -> None:
    _switch(repl, "think", rest)


def _stats(repl: Repl, rest: str) -> None:
    if rest:
        _switch(repl, "stats", rest)
    elif repl.last_stats is not None:
        from edgekit.cli.render import stats_line

        out.note(stats_line(repl.last_stats))
    else:
        out.note("nothing was generated yet")


def _switch(repl: Repl, name: str, value: str) -> None:
    if value not in ("", *_SWITCH):
        raise UsageError(f"/{name} is on or off, not {value!r}")
    if value:
        repl.change(name, "true" if value == "on" else "false")
    out.note(f"{name} is {_shown(repl, name)}")


def _show(repl: Repl, rest: str) -> None:
    for line in repl.banner():
        out.note(line)
    out.note(f"system: {repl.conversation.system or 'none'}")
    out.note(f"{_count(repl)}, {_tokens_text(repl)}")


def _save(repl: Repl, rest: str) -> None:
    path = _conversation_file(rest or "last")
    path.parent.mkdir(parents=True, exist_ok=True)
    repl.conversation.save(path)
    out.note(f"saved {path}")


def _load(repl: Repl, rest: str) -> None:
    path = _conversation_file(rest or "last")
    if not path.is_file():
        known = saved_conversations()
        raise EdgekitError(
            f"no conversation at {path}",
            cause=f"saved: {', '.join(known)}" if known else "none is saved yet",
        )
    repl.conversation.load(path)
    out.note(f"loaded {path}: {_count(repl)}")


def _read(repl: Repl, rest: str) -> None:
    if not rest:
        raise UsageError("/read needs a FILE")
    path = Path(rest).expanduser()
    try:
        with path.open(encoding="utf-8") as file:
            text = read_text(file, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise EdgekitError(f"cannot read {path}", cause=str(error)) from None
    repl.attached = f"{repl.attached}\n\n{text}".strip("\n")
    out.note(f"{path.name} ({len(text)} characters) goes before your next message")


def _tokens(repl: Repl, rest: str) -> None:
    out.note(_tokens_text(repl))


def _edit(repl: Repl, rest: str) -> None:
    from edgekit.cli.editor import edit_text

    text = edit_text(rest)
    if text:
        out.note(text)
        repl.say(text)


def _shown(repl: Repl, name: str) -> str:
    value = repl.value(name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not set" if value is None else str(value)


def _count(repl: Repl) -> str:
    count = len(repl.conversation.messages)
    return f"{count} message{'' if count == 1 else 's'}"


def _tokens_text(repl: Repl) -> str:
    return f"{repl.conversation.token_count()} of {repl.context} tokens of context used"


def _conversation_file(name: str) -> Path:
    if "/" in name or name.endswith(".json"):
        return Path(name).expanduser()
    return paths.state_dir() / "conversations" / f"{name}.json"


def saved_conversations() -> list[str]:
    """Names that /load takes."""
    return sorted(path.stem for path in (paths.state_dir() / "conversations").glob("*.json"))


def _set_words(words: list[str]) -> Iterable[str]:
    if len(words) == 1:
        return SETTABLE
    return ("true", "false") if words[0] in ("think", "hide_thinking", "stats") else ()


def _file_words(words: list[str]) -> Iterable[str]:
    typed = words[-1]
    folder = Path(typed).expanduser() if typed.endswith("/") else Path(typed).expanduser().parent
    prefix = typed[: typed.rfind("/") + 1]
    try:
        return sorted(
            f"{prefix}{path.name}{'/' if path.is_dir() else ''}" for path in folder.iterdir()
        )
    except OSError:
        return ()


def _switch_words(words: list[str]) -> Iterable[str]:
    return _SWITCH


COMMANDS = {
    command.name: command
    for command in (
        SlashCommand("help", "", "this list", _help),
        SlashCommand("bye", "", "leave", _bye),
        SlashCommand("clear", "", "forget the conversation", _clear),
        SlashCommand("regen", "", "answer the last message again", _regen),
        SlashCommand("undo", "", "take back the last exchange", _undo),
        SlashCommand("system", "[TEXT|none]", "show or set the system prompt", _system),
        SlashCommand("set", "[NAME [VALUE]]", "show or set a parameter", _set, _set_words),
        SlashCommand("think", "[on|off]", "reason before answering", _think, _switch_words),
        SlashCommand("stats", "[on|off]", "counts and rates", _stats, _switch_words),
        SlashCommand("show", "", "the bundle and the conversation", _show),
        SlashCommand("save", "[NAME|FILE]", "save the conversation", _save, _file_words),
        SlashCommand(
            "load",
            "[NAME|FILE]",
            "load a conversation",
            _load,
            lambda words: [*saved_conversations(), *_file_words(words)],
        ),
        SlashCommand("read", "FILE", "put a file before your next message", _read, _file_words),
        SlashCommand("tokens", "", "how full the context is", _tokens),
        SlashCommand("edit", "[TEXT]", "write a message in your editor", _edit),
    )
}
