"""One generation: prefill, then one token after another, as a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter

from edgekit.errors import DoesNotFitError, UsageError
from edgekit.runtime.decoding import Decoding, plain_decoding
from edgekit.runtime.events import (
    Channel,
    Events,
    FinishReason,
    GenerationEvent,
    GenerationStats,
    SamplingParams,
    TokenLogprob,
)
from edgekit.runtime.reasoning import Piece, ReasoningSplitter
from edgekit.runtime.sampling import Constraint, Sampler, check_params, logprob
from edgekit.runtime.session import Session, Snapshot
from edgekit.runtime.speculate.rounds import Speculator
from edgekit.runtime.stopping import StopStrings
from edgekit.runtime.tokenizer import Detokenizer, Tokenizer


def generate(
    session: Session,
    prompt_tokens: Sequence[int],
    params: SamplingParams,
    *,
    tokenizer: Tokenizer,
    stop_token_ids: Collection[int] = (),
    start_in_reasoning: bool | None = None,
    cached_tokens: int = 0,
    snapshot_at: Collection[int] = (),
    keep_snapshot: Callable[[Snapshot], None] | None = None,
    speculator: Speculator | None = None,
    constraint: Constraint | None = None,
) -> Events:
    """Continues a prompt.

    The request is checked at once; work starts with the first event. Prefill gives one event
    without tokens for each chunk but the last, so that it can be given up in between, and then
    each token gives one event (more when a token ends the reasoning and begins the content; only
    the first of them carries it). The end-of-answer token is the last one's token, without text.

    Closing the iterator leaves the session with the tokens of complete steps: the prompt, when
    prefill was done, and all tokens of the events so far but the last.

    Args:
        session: holds the first `cached_tokens` of the prompt and nothing else.
        prompt_tokens: at least one more than are cached.
        params: stop strings are looked for in the content, not in the reasoning.
        stop_token_ids: end the answer, besides those in params.
        start_in_reasoning: whether the prompt ended inside `<think>`. None for text that is no
            chat: all of it is content, as it is.
        snapshot_at: take a snapshot when so many tokens of the prompt are committed, unless they
            are cached ...
        keep_snapshot: ... and give it to this function.
        speculator: drafts tokens; it has observed what is cached. None decodes plainly.
        constraint: fresh; says which tokens may come.

    Raises:
        UsageError: a parameter or token id makes no sense, or the prompt is empty.
        DoesNotFitError: the prompt is longer than the session's capacity.
        BuildError: from the iterator, when the executor fails or gives NaN.
    """
    check_request(session, prompt_tokens, params)
    if cached_tokens != session.length or cached_tokens >= len(prompt_tokens):
        raise ValueError(
            f"{cached_tokens} tokens said to be cached, {session.length} in the session, "
            f"{len(prompt_tokens)} in the prompt"
        )
    text = _Text(tokenizer, params.stop, start_in_reasoning)
    stops = frozenset(stop_token_ids) | frozenset(params.stop_token_ids)
    prompt = list(prompt_tokens)
    places = [at for at in sorted(snapshot_at) if cached_tokens < at < len(prompt)]
    snapshot = (places if keep_snapshot is not None else [], keep_snapshot)
    sampler = Sampler(params, session.vocab_size, constraint)
    return _events(session, prompt, sampler, text, stops, cached_tokens, snapshot, speculator)


def check_request(session: Session, prompt_tokens: Sequence[int], params: SamplingParams) -> None:
    """What `generate` checks before any work; same errors."""
    check_params(params)
    count = len(prompt_tokens)
    if count == 0:
        raise UsageError("the prompt is empty", hint="give at least one token of text")
    if count > session.capacity:
        raise DoesNotFitError(
            f"the prompt has {count} tokens, the context holds {session.capacity}",
            hint="shorten it or start a new conversation, "
            "or build the bundle with a larger --context",
        )
    if any(not 0 <= token < session.vocab_size for token, _ in params.logit_bias):
        raise UsageError(
            "logit_bias names a token id outside the vocabulary",
            cause=f"ids are 0..{session.vocab_size - 1}",
        )
    if min(prompt_tokens) < 0 or max(prompt_tokens) >= session.vocab_size:
        raise UsageError(
            "the prompt holds a token id outside the vocabulary",
            cause=f"ids are 0..{session.vocab_size - 1}",
        )


def _events(
    session: Session,
    prompt: list[int],
    sampler: Sampler,
    text: _Text,
    stops: frozenset[int],
    cached_tokens: int,
    snapshot: tuple[list[int], Callable[[Snapshot], None] | None],
    speculator: Speculator | None,
) -> Events:
    places, keep_snapshot = snapshot
    started = perf_counter()
    prompt_tokens = len(prompt)
    position = cached_tokens
    while True:
        end = min(position + session.prefill_chunk, prompt_tokens)
        end = next((at for at in places if position < at < end), end)
        chunk = prompt[position:end]
        output = session.step(chunk)
        if speculator is not None:
            speculator.observe(chunk, output)
        position = end
        if position == prompt_tokens:
            break
        if position in places and keep_snapshot is not None:
            keep_snapshot(session.snapshot())
        seconds = perf_counter() - started
        stats = GenerationStats(prompt_tokens, cached_tokens, prompt_seconds=seconds)
        yield GenerationEvent("", text.channel, (), stats)

    params = sampler.params
    sampler.observe_prompt(prompt)
    prefilled = perf_counter()
    prompt_seconds = prefilled - started
    limit = session.capacity - prompt_tokens
    if params.max_tokens is not None:
        limit = min(limit, params.max_tokens)
    if limit == 0:
        stats = GenerationStats(prompt_tokens, cached_tokens, prompt_seconds=prompt_seconds)
        yield GenerationEvent("", text.channel, (), stats, "length")
        return

    logits = output.logits[-1]
    decoding: Decoding = (
        plain_decoding(session, sampler, logits)
        if speculator is None
        else speculator.decode(session, sampler, logits, limit)
    )
    draw, push, speculation = decoding.next, text.push, decoding.stats
    reasoning_tokens = 0
    finish_reason: FinishReason | None = None
    try:
        for produced in range(1, limit + 1):
            token = draw()
            channel = text.channel
            if channel == "reasoning":
                reasoning_tokens += 1
            tokens: tuple[int, ...]
            logprobs: tuple[TokenLogprob, ...] = ()
            if params.logprobs is not None:
                logprobs = (logprob(decoding.logits, token, params.logprobs),)
            if token in stops:
                pieces, finish_reason = text.finish(), "stop"
            else:
                pieces = push(token)
                if text.stopped:
                    finish_reason = "stop"
                elif produced == limit:
                    pieces, finish_reason = [*pieces, *text.finish()], "length"
            if text.stopped:
                finish_reason = "stop"
            stats = GenerationStats(
                prompt_tokens,
                cached_tokens,
                produced,
                reasoning_tokens,
                prompt_seconds,
                perf_counter() - prefilled,
                speculation(),
            )
            for i, (where, piece) in enumerate(pieces[:-1]):
                first = ((token,), logprobs) if i == 0 else ((), ())
                yield GenerationEvent(piece, where, first[0], stats, None, first[1])
            if len(pieces) > 1:
                tokens, logprobs = (), ()
            else:
                tokens = (token,)
            channel, piece = pieces[-1] if pieces else (channel, "")
            yield GenerationEvent(
                piece, channel, tokens, stats, finish_reason, logprobs, text.matched
            )
            if finish_reason is not None:
                return
    finally:
        decoding.close()


class _Text:
    """From tokens to pieces of reasoning and content: bytes, then tags, then stop strings."""

    __slots__ = ("_detokenizer", "_push", "_splitter", "_stops")

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str], start_in_reasoning: bool | None
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._push = self._detokenizer.push
        self._stops = StopStrings(stops) if stops else None
        self._splitter = (
            None
            if start_in_reasoning is None
            else ReasoningSplitter(start_in_reasoning=start_in_reasoning)
        )

    @property
    def channel(self) -> Channel:
        """Where the next text goes as far as is known."""
        return "content" if self._splitter is None else self._splitter.channel

    @property
    def matched(self) -> str | None:
        """The stop string that has ended the text."""
        return self._stops.matched if self._stops is not None else None

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.matched is not None

    def push(self, token: int) -> list[Piece]:
        """The pieces that this token completes."""
        return self._pass(self._push(token))

    def finish(self) -> list[Piece]:
        """What was held back, when no token follows."""
        pieces = self._pass(self._detokenizer.finish())
        if self._splitter is not None:
            pieces += self._stop(self._splitter.finish())
        if self._stops is not None and not self.stopped and (held := self._stops.finish()):
            pieces.append(("content", held))
        return pieces

    def _pass(self, text: str) -> list[Piece]:
        if not text:
            return []
        if self._splitter is None:
            return self._stop([("content", text)])
        return self._stop(self._splitter.push(text))

    def _stop(self, pieces: list[Piece]) -> list[Piece]:
        if self._stops is None:
            return pieces
        cut: list[Piece] = []
        for channel, text in pieces:
            shown = self._stops.push(text) if channel == "content" else text
            if shown:
                cut.append((channel, shown))
        return cut
