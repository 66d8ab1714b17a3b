"""Shows a generation while it happens: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import shutil
import time
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.cli.output import out
from edgekit.units import rate_text, size_text

if TYPE_CHECKING:
    from edgekit.runtime.events import GenerationEvent, GenerationStats, SpeculationStats

Thinking = Literal["hide", "show", "fold"]


class AnswerView:
    """Writes events as they come.

    Args:
        thinking: drop the reasoning, leave it on the screen, or replace it with one line when
            the answer starts.
    """

    def __init__(self, thinking: Thinking) -> None:
        self.thinking = thinking
        self.text = ""
        self.stats: GenerationStats | None = None
        self._started: float | None = None
        self._shown = False
        self._rows = _Rows()

    def feed(self, event: GenerationEvent) -> None:
        """Shows one event."""
        self.stats = event.stats
        if event.channel == "reasoning":
            # Prefill has events without tokens, which are no thinking yet.
            if event.tokens and self._started is None:
                self._started = time.monotonic()
            self._reason(event.text)
        elif event.text:
            self._end_reasoning()
            self.text += event.text
            out.stdout.write(event.text)
            out.stdout.flush()
        if event.finish_reason is not None:
            self._finish(event.finish_reason)

    def stop(self) -> None:
        """Ends what was cut off before its last event."""
        self._finish("cancelled")

    def _reason(self, text: str) -> None:
        if self.thinking == "hide" or not text or (not self._shown and not text.strip()):
            return
        if not self._shown:
            self._shown = True
            self._dim("thinking…\n")
        self._dim(text)

    def _end_reasoning(self) -> None:
        if not self._shown or self._started is None:
            return
        seconds = time.monotonic() - self._started
        self._started = None
        tokens = self.stats.reasoning_tokens if self.stats is not None else 0
        if self.thinking == "fold" and self._rows.fit_the_screen():
            up = f"\x1b[{self._rows.above}A" if self._rows.above else ""
            out.stderr.write(f"\r{up}\x1b[J")
        elif self._rows.column:
            self._dim("\n")
        note = f"thought for {seconds:.1f} s ({tokens} tokens)"
        out.stderr.write(out.styled(note, "dim") + "\n")
        out.stderr.flush()

    def _dim(self, text: str) -> None:
        self._rows.add(text)
        out.stderr.write(out.styled(text, "dim"))
        out.stderr.flush()

    def _finish(self, reason: str) -> None:
        self._end_reasoning()
        if self.text and not self.text.endswith("\n"):
            out.stdout.write("\n")
            out.stdout.flush()
        if reason == "cancelled":
            out.note(out.styled("(stopped)", "dim"))
        elif reason == "length" and out.stderr.isatty():
            out.note(out.styled("(cut short: --max-tokens or the end of the context)", "dim"))


class _Rows:
    """How many screen rows the text written so far takes, from a fresh row on."""

    def __init__(self) -> None:
        self.above = 0
        self.column = 0
        self._size = shutil.get_terminal_size()

    def add(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self.above, self.column = self.above + 1, 0
                continue
            width = _width(character)
            if self.column + width > self._size.columns:
                self.above, self.column = self.above + 1, 0
            self.column += width

    def fit_the_screen(self) -> bool:
        """Rows that scrolled away cannot be taken back."""
        return self.above < self._size.lines - 1


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def stats_line(stats: GenerationStats) -> str:
    """Counts and rates of one generation."""
    prompt = f"prompt {stats.prompt_tokens} tok"
    if stats.cached_tokens:
        prompt += f" ({stats.cached_tokens} cached)"
    if stats.prompt_rate:
        prompt += f" · {rate_text(stats.prompt_rate)}"
    answer = f"answer {stats.completion_tokens} tok"
    if stats.decode_rate:
        answer += f" · {rate_text(stats.decode_rate)}"
    parts = [prompt, answer]
    if stats.speculation is not None:
        parts.append(_speculation_text(stats.speculation))
    return " | ".join([*parts, f"peak {size_text(peak_bytes())}"])


def _speculation_text(stats: SpeculationStats) -> str:
    text = f"{stats.drafter} {stats.tokens_per_round:.2f} tok a round"
    if stats.acceptance:
        text += " · kept " + " ".join(f"{share:.2f}".lstrip("0") for share in stats.acceptance)
    return f"{text} · drafts {stats.why}"


def stats_record(stats: GenerationStats) -> dict[str, object]:
    """The same for programs; seconds, tokens a second, bytes."""
    return {
        "prompt_tokens": stats.prompt_tokens,
        "cached_tokens": stats.cached_tokens,
        "completion_tokens": stats.completion_tokens,
        "reasoning_tokens": stats.reasoning_tokens,
        "prompt_seconds": round(stats.prompt_seconds, 4),
        "decode_seconds": round(stats.decode_seconds, 4),
        "prompt_tokens_per_second": round(stats.prompt_rate, 2),
        "decode_tokens_per_second": round(stats.decode_rate, 2),
        "peak_bytes": peak_bytes(),
        "speculation": None if stats.speculation is None else _speculation(stats.speculation),
    }


def _speculation(stats: SpeculationStats) -> dict[str, object]:
    return {
        "drafter": stats.drafter,
        "rounds": stats.rounds,
        "plain_steps": stats.plain_steps,
        "tokens_per_round": round(stats.tokens_per_round, 3),
        "offered": list(stats.offered),
        "accepted": list(stats.accepted),
        "draft_seconds": round(stats.draft_seconds, 4),
        "verify_seconds": round(stats.verify_seconds, 4),
        "commit_seconds": round(stats.commit_seconds, 4),
        "why": stats.why,
    }


def peak_bytes() -> int:
    """Most memory this process had resident.

    VmHWM, because getrusage still counts the process that this one was forked from.
    """
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) * 1024
