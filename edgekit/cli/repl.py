"""The chat prompt."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit import paths
from edgekit.bundle import Bundle
from edgekit.cli import slash
from edgekit.cli.chat import SAMPLING, follow, sampling
from edgekit.cli.interrupt import interruptible
from edgekit.cli.output import internal_fault, out
from edgekit.cli.render import AnswerView, stats_line
from edgekit.errors import EdgekitError
from edgekit.parameters import count_parameters
from edgekit.units import size_text

if TYPE_CHECKING:
    from prompt_toolkit.history import History

    from edgekit.runtime.conversation import Conversation
    from edgekit.runtime.events import Events, GenerationStats
    from edgekit.settings import Settings

PROMPT = ">>> "
CONTINUATION = "... "
FENCE = '"""'


class Repl:
    """A conversation with a person at a terminal."""

    def __init__(self, conversation: Conversation, settings: Settings, bundle: Path) -> None:
        self.conversation = conversation
        self.settings = settings
        self.bundle = Bundle.open(bundle)
        self.context = self.bundle.manifest.context
        self.attached = ""
        self.last_stats: GenerationStats | None = None
        self._base = conversation.params

    def run(self) -> None:
        """Reads and answers until the person leaves."""
        signal.signal(signal.SIGTERM, _leave)
        prompt = _prompt_session()
        for line in self.banner():
            out.note(out.styled(line, "dim"))
        while True:
            try:
                text = prompt()
            except KeyboardInterrupt:
                out.note(out.styled("Ctrl-D or /bye leaves", "dim"))
                continue
            except EOFError:
                return
            try:
                self.handle(text)
            except EOFError:
                return
            except EdgekitError as error:
                out.error(error)
            except Exception as error:  # a fault of ours must not cost the conversation
                out.error(internal_fault(error))

    def handle(self, text: str) -> None:
        """A slash command or a message.

        Raises:
            EOFError: the person leaves.
            EdgekitError: it did not work; the chat goes on.
        """
        stripped = text.strip()
        if stripped.startswith("/") and "\n" not in stripped:
            slash.dispatch(self, stripped)
            return
        message = unfence(stripped)
        if message:
            self.say(message)

    def say(self, message: str) -> None:
        """Sends a message, with the files read before it, and shows the answer."""
        if self.attached:
            message = f"{self.attached}\n\n{message}"
        self.answer(lambda: self.conversation.send(message))
        self.attached = ""

    def answer(self, generate: Callable[[], Events]) -> None:
        """Shows a generation; Ctrl-C stops it and keeps what there is."""
        view = AnswerView("hide" if self.settings.values.hide_thinking else "fold")
        with interruptible() as interrupt:
            follow(generate(), view, interrupt)
        self.last_stats = view.stats
        if view.stats is not None and self.value("stats"):
            out.note(out.styled(stats_line(view.stats), "dim"))

    def value(self, name: str) -> Any:
        """What a setting is in this chat."""
        if name in SAMPLING:
            return getattr(self.conversation.params, name)
        if name == "think":
            return self.conversation.thinking
        if name == "stats":
            chosen = self.settings.values.stats
            return out.stderr.isatty() if chosen is None else chosen
        return getattr(self.settings.values, name)

    def change(self, name: str, text: str) -> None:
        """Sets a setting as the person typed it.

        Raises:
            UsageError: the value makes no sense.
        """
        settings = self.settings.with_text(name, text, "/set")
        if name in SAMPLING:
            params = sampling(settings, self._base)
            self.conversation.params = replace(params, stop=self.conversation.params.stop)
        elif name == "think":
            self.conversation.thinking = bool(settings.values.think)
        self.settings = settings

    def banner(self) -> list[str]:
        """Three lines: the model, what runs it, how to go on."""
        from edgekit.detect import read_meminfo

        manifest, spec = self.bundle.manifest, self.bundle.spec
        parameters = count_parameters(spec).total
        count = f"{parameters / 1e9:.1f} B" if parameters >= 1e9 else f"{parameters / 1e6:.1f} M"
        free = size_text(read_meminfo()["MemAvailable"])
        return [
            f"{manifest.name} · {count} parameters in {spec.num_hidden_layers} layers · "
            f"{manifest.weights_format}, {size_text(manifest.nbytes)}",
            f"{manifest.executor} for {manifest.profile} · {self.context} tokens of context · "
            f"{free} free",
            "/help lists commands, Ctrl-D leaves",
        ]


def unfence(text: str) -> str:
    """A message without the triple quotes around it."""
    if text.startswith(FENCE):
        text = text.removeprefix(FENCE)
        text = text.removesuffix(FENCE)
    return text.strip("\n")


def is_open(text: str) -> bool:
    """Whether a message started with triple quotes that are not closed yet."""
    stripped = text.strip()
    return stripped.startswith(FENCE) and stripped.count(FENCE) < 2


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    """Ends by an exception, so that the terminal gets its modes back."""
    raise SystemExit(128 + signum)


def _history() -> History:
    """What was typed before; in memory where it cannot be kept."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    path = paths.history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)  # one written before this rule may be readable to others
    except OSError as error:
        out.warn(f"what you type is not kept: {error.strerror} ({path})")
        return InMemoryHistory()
    return FileHistory(str(path))


def _prompt_session() -> Callable[[], str]:
    """A function that reads one message with history, completion and the keys of the chat."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.filters import is_searching
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    class Slash(Completer):  # type: ignore[misc, unused-ignore]
        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterator[Completion]:
            line = document.text_before_cursor
            if not line.startswith("/") or "\n" in line:
                return
            word = line.split(" ")[-1]
            for candidate in slash.completions(line):
                yield Completion(candidate, start_position=-len(word))

    keys = KeyBindings()
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=Slash(),
        complete_while_typing=False,
        multiline=True,
        key_bindings=keys,
        enable_open_in_editor=True,
        tempfile_suffix=".md",
    )

    @keys.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-g", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    def continuation(width: int, line: int, wraps: int) -> FormattedText:
        return FormattedText([("", CONTINUATION)])

    return lambda: session.prompt(
        FormattedText([("bold", PROMPT)]), prompt_continuation=continuation
    )
