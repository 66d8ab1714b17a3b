"""What generation is asked for and what it tells: one vocabulary of REPL, `--json` and server."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

Channel = Literal["reasoning", "content"]
FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen and when generation ends.

    Attributes:
        temperature: 0 is greedy.
        top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
        repetition_penalty: 1 is off; divides positive and multiplies negative logits of tokens
            seen in prompt or answer (Keskar et al. 2019, arXiv:1909.05858).
        presence_penalty, frequency_penalty: 0 is off; subtracted once, or once an occurrence, for
            tokens of the answer.
        seed: None draws a fresh one.
        max_tokens: None runs to the end of the context.
        stop: strings that end the answer and are not part of it; reasoning may hold them.
        stop_token_ids: in addition to the model's own.
        logit_bias: (token, added to its logit) before everything else.
        logprobs: report each token's log probability and this many best alternatives; None is off.
            They are the model's own: of the logits as they come, at temperature 1.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """What the model thought of a token: natural logarithms.

    Attributes:
        top: (token, logprob) of the likeliest, best first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """What drafting did so far in one generation.

    Attributes:
        drafter: its name.
        rounds: verify steps. plain_steps: steps without a draft.
        offered: by position, rounds that drafted a token there.
        accepted: by position, rounds that kept it and all before it.
        draft_seconds, verify_seconds, commit_seconds: verify includes the plain steps.
        why: why so many tokens are drafted, for people.
    """

    drafter: str
    rounds: int
    plain_steps: int
    offered: tuple[int, ...]
    accepted: tuple[int, ...]
    draft_seconds: float
    verify_seconds: float
    commit_seconds: float
    why: str = ""

    @property
    def tokens_per_round(self) -> float:
        """Tokens a verify step gave, the target's own included."""
        return 1 + sum(self.accepted) / self.rounds if self.rounds else 1.0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """By position, the share of drafted tokens that were kept."""
        return tuple(
            kept / offered for kept, offered in zip(self.accepted, self.offered, strict=True)
        )


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """Counts and seconds so far in one generation. `speculation` is None without a drafter."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    speculation: SpeculationStats | None = None

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens computed (not reused) a second."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.prompt_seconds if self.prompt_seconds > 0 else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens a second after the first."""
        decoded = self.completion_tokens - 1
        return decoded / self.decode_seconds if decoded > 0 and self.decode_seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class GenerationEvent:
    """One step of a generation: new text, the tokens behind it, and the counts so far.

    `text` may be empty while a character or a possible stop string is incomplete, and has no tokens
    while a long prompt is read. The last event has a finish_reason, and the stop string if one was
    found. `logprobs` has one entry a token when they were asked for.
    """

    text: str
    channel: Channel
    tokens: tuple[int, ...]
    stats: GenerationStats
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    stop: str | None = None


Events = Generator[GenerationEvent, None, None]
"""A generation. Closing it ends it where it is."""
