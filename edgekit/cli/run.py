"""`edgekit run`: chat in the terminal, or one answer."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.options import (
    EMBEDDED,
    Context,
    DraftTokens,
    Json,
    PrefixCache,
    Speculate,
    Threads,
    bundles_dir,
    complete_bundle,
    globals_of,
)
from edgekit.cli.output import out
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.runtime.conversation import Conversation
    from edgekit.settings import Settings


def run(
    ctx: typer.Context,
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUNDLE]",
            autocompletion=complete_bundle,
            help="A bundle by name or path; the embedded model `nano` when left out.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT]", help="Answer this and exit.", show_default=False),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="System prompt.")
    ] = None,
    think: Annotated[
        bool | None,
        typer.Option(
            "--think/--no-think", help="Let the model reason before it answers.", show_default=False
        ),
    ] = None,
    hide_thinking: Annotated[
        bool | None,
        typer.Option("--hide-thinking", help="Do not show the reasoning.", show_default=False),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, metavar="N", help="Most tokens to answer.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0, max=10, metavar="X", help="0 is greedy."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", min=0, max=1, metavar="X", help="Nucleus; 1 is off."),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=0, metavar="N", help="Most likely tokens kept; 0 is off."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option("--min-p", min=0, max=1, metavar="X", help="Share of the best; 0 is off."),
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", metavar="X", help="1 is off.")
    ] = None,
    presence_penalty: Annotated[
        float | None, typer.Option("--presence-penalty", metavar="X", help="0 is off.")
    ] = None,
    frequency_penalty: Annotated[
        float | None, typer.Option("--frequency-penalty", metavar="X", help="0 is off.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Makes sampling repeatable."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="Ends the answer; may be given again."),
    ] = None,
    prefix_cache: PrefixCache = None,
    context: Context = None,
    threads: Threads = None,
    speculate: Speculate = None,
    draft_tokens: DraftTokens = None,
    stats: Annotated[
        bool | None,
        typer.Option(
            "--stats/--no-stats",
            help="Counts and rates after each answer; on in a terminal.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Chat with a model, or answer one prompt.

    Without a bundle the embedded model is built for this machine and runs. With a PROMPT, or text
    on stdin, there is one answer on stdout; text on stdin is put before the prompt. --json writes
    one event a line and a last record with the whole answer and its counts.
    """
    from edgekit.cli.chat import locate_bundle, open_conversation

    out.json = json
    settings = globals_of(ctx).settings(
        system=system,
        think=think,
        hide_thinking=hide_thinking or None,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        seed=seed,
        context=context,
        threads=threads,
        prefix_cache=prefix_cache,
        speculate=speculate.value if speculate is not None else None,
        draft_tokens=count_or_text(draft_tokens),
        stats=stats,
    )
    if bundle is not None and _reads_like_a_prompt(bundle, bundles_dir(settings)):
        hint = f"edgekit run {EMBEDDED} {shlex.quote(bundle)}"
        raise UsageError(f"{bundle!r} is not a bundle", hint=hint)
    text = _prompt(prompt)
    if text is None and (json or not sys.stdout.isatty()):
        raise UsageError(
            "there is nothing to answer",
            cause="stdout is no terminal to chat in" if not json else "--json is for one answer",
            hint="give a PROMPT, or text on stdin",
        )
    path = locate_bundle(settings, bundle)
    conversation = open_conversation(path, settings, tuple(stop or ()))
    if text is None:
        from edgekit.cli.repl import Repl

        Repl(conversation, settings, path).run()
    elif json:
        _answer_json(conversation, text, path)
    else:
        _answer(conversation, text, settings)


def count_or_text(text: str | None) -> int | str | None:
    """A number where the text is one; what is neither is refused with the settings."""
    return int(text) if text is not None and text.isdecimal() else text


def _prompt(prompt: str | None) -> str | None:
    """The text to answer: stdin, if it is no terminal, before PROMPT. None is a chat.

    Raises:
        UsageError: a prompt was promised and is empty.
    """
    from edgekit.cli.chat import read_text

    piped = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        piped = read_text(sys.stdin, "stdin").strip("\n")
    elif prompt is None:
        return None
    parts = [part for part in (piped, prompt) if part]
    if not parts:
        raise UsageError("the prompt is empty", hint="give a PROMPT, or text on stdin")
    return "\n\n".join(parts)


def _answer(conversation: Conversation, text: str, settings: Settings) -> None:
    from edgekit.cli.chat import follow
    from edgekit.cli.interrupt import interruptible
    from edgekit.cli.render import AnswerView, stats_line

    terminal = out.stderr.isatty() and out.stdout.isatty()
    visible = terminal and not settings.values.hide_thinking
    view = AnswerView("show" if visible else "hide")
    with interruptible() as interrupt:
        follow(conversation.send(text), view, interrupt)
    wanted = settings.values.stats
    if view.stats is not None and (terminal if wanted is None else wanted):
        out.note(out.styled(stats_line(view.stats), "dim"))
    if interrupt.requested:
        raise KeyboardInterrupt
    if not view.text and view.stats is not None and view.stats.reasoning_tokens:
        out.warn(f"no answer: all {view.stats.reasoning_tokens} tokens were reasoning")
        out.hint("raise --max-tokens, or pass --no-think")


def _answer_json(conversation: Conversation, text: str, path: Path) -> None:
    from edgekit.cli.interrupt import interruptible
    from edgekit.cli.render import stats_record

    parts: dict[str, list[str]] = {"content": [], "reasoning": []}
    last = None
    with interruptible() as interrupt, closing(conversation.send(text)) as events:
        for last in events:
            parts[last.channel].append(last.text)
            if last.text or last.tokens:
                out.json_line(
                    {
                        "type": "text",
                        "channel": last.channel,
                        "text": last.text,
                        "tokens": list(last.tokens),
                    }
                )
            if interrupt.requested:
                break
    if last is not None:
        out.json_line(
            {
                "type": "result",
                "bundle": path.name,
                "text": "".join(parts["content"]),
                "reasoning": "".join(parts["reasoning"]),
                "finish_reason": last.finish_reason or "cancelled",
                "stats": stats_record(last.stats),
            }
        )
    if interrupt.requested:
        raise KeyboardInterrupt


def _reads_like_a_prompt(bundle: str, folder: Path) -> bool:
    if not any(character.isspace() for character in bundle):
        return False
    try:
        return not (folder / bundle).exists() and not Path(bundle).exists()
    except OSError:  # too long for a file name
        return True
