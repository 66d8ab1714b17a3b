"""A loaded model: prompts and conversations in, events out, and no token computed twice.

A new prompt goes on from the longest of what is committed and what the model's store of computed
beginnings has (`edgekit.runtime.prefix`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgekit.errors import BundleError, DoesNotFitError, UsageError
from edgekit.runtime.events import Events, SamplingParams
from edgekit.runtime.generate import check_request, generate
from edgekit.runtime.prefix import Prefix, PrefixStore
from edgekit.runtime.prompt import ChatPrompt, encode_chat, strings
from edgekit.runtime.sampling import Constraint, check_params
from edgekit.runtime.session import Rows, Session, Snapshot
from edgekit.runtime.speculate.rounds import Speculator
from edgekit.runtime.template import ChatTemplate, Message
from edgekit.runtime.tokenizer import Tokenizer, read_json

if TYPE_CHECKING:
    from edgekit.model import ModelSpec
    from edgekit.runtime.speculate.choose import Speculate

SNAPSHOTS = 8
"""A store holds as many bytes as so many copies of the recurrent state, if nobody says."""


def load_model(
    path: Path | str,
    *,
    threads: int | None = None,
    prefix_bytes: int | None = None,
    speculate: Speculate = "off",
    draft_tokens: int | None = None,
    beside: Model | None = None,
) -> Model:
    """Opens a bundle and loads it into its executor.

    Args:
        path: the bundle's directory.
        threads: CPU threads; None lets the executor choose.
        prefix_bytes: of computed beginnings to keep; None takes a few copies of the state.
        speculate, draft_tokens: see `edgekit.runtime.speculate.choose.open_speculator`.
        beside: a model of the same bundle to share the weights and beginnings with; the two take
            turns.

    Raises:
        BundleError: the bundle is damaged, or its tokenizer or template does not fit.
        MissingDependencyError: the executor's package is not installed.
        BuildError: the executor cannot load the model.
    """
    from edgekit.bundle import Bundle
    from edgekit.runtime.executors import open_session
    from edgekit.runtime.speculate.choose import open_speculator

    bundle = Bundle.open(Path(path))
    tokenizer = Tokenizer.load(bundle.path)
    tokenizer.check_vocab(bundle.spec.vocab_size)
    template = ChatTemplate.load(bundle.path)
    sampling = sampling_defaults(bundle.path)
    if prefix_bytes is None:
        prefix_bytes = SNAPSHOTS * bundle.spec.state_bytes()
    session = open_session(
        bundle, threads=threads, beside=beside.session if beside is not None else None
    )
    return Model(
        session,
        tokenizer,
        template,
        sampling=sampling,
        spec=bundle.spec,
        name=bundle.manifest.name,
        prefixes=beside.prefixes if beside is not None else PrefixStore(prefix_bytes),
        speculator=open_speculator(
            session,
            bundle,
            speculate,
            draft_tokens,
            threads,
            beside.speculator if beside is not None else None,
        ),
    )


def sampling_defaults(folder: Path) -> SamplingParams:
    """How the checkpoint's generation_config.json asks to be sampled.

    Raises:
        BundleError: it asks for what makes no sense.
    """
    config = read_json(folder / "generation_config.json")
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    given = {name: config[name] for name in names if config.get(name) is not None}
    if config.get("do_sample") is False:
        given["temperature"] = 0.0
    try:
        params = SamplingParams(**given)
        check_params(params)
    except (UsageError, TypeError) as error:
        raise BundleError(
            f"{folder / 'generation_config.json'} asks for impossible sampling", cause=str(error)
        ) from None
    return params


class Model:
    """One sequence on one executor, with everything needed to talk to it.

    At most one generation runs at a time: starting another ends the one before. Not for use from
    several threads at once.

    Args:
        session: fresh; the model owns it from here on.
        template: None if the checkpoint has none; then there is no `chat`.
        sampling: defaults.
        prefixes: computed beginnings, perhaps shared with other models of the same bundle on the
            same thread. None keeps none.
        speculator: drafts tokens for this session; the model owns it too. None decodes plainly.
    """

    def __init__(
        self,
        session: Session,
        tokenizer: Tokenizer,
        template: ChatTemplate | None = None,
        *,
        sampling: SamplingParams | None = None,
        spec: ModelSpec | None = None,
        name: str = "",
        prefixes: PrefixStore | None = None,
        speculator: Speculator | None = None,
    ) -> None:
        self.session = session
        self.speculator = speculator
        self.tokenizer = tokenizer
        self.template = template
        self.sampling = sampling or SamplingParams()
        self.spec = spec
        self.name = name
        self.prefixes = prefixes if prefixes is not None else PrefixStore(0)
        self._committed: list[int] = []
        self._run: _Run | None = None

    @property
    def context(self) -> int:
        """Most tokens a conversation can have."""
        return self.session.capacity

    @property
    def committed(self) -> tuple[int, ...]:
        """The tokens in the session. Ends a running generation."""
        self._settle()
        return tuple(self._committed)

    def generate(
        self,
        prompt_tokens: Sequence[int],
        params: SamplingParams | None = None,
        *,
        start_in_reasoning: bool | None = None,
        snapshot_at: Collection[int] = (),
        pin: int = 0,
        constraint: Constraint | None = None,
    ) -> Events:
        """Continues a prompt; see `edgekit.runtime.generate.generate` for events and errors.

        Args:
            prompt_tokens: the whole prompt. What the model still has of it is not computed again.
            params: None is `sampling`.
            start_in_reasoning: None for text that is no chat.
            snapshot_at: how many tokens of the prompt later prompts are likely to begin with.
            pin: which of these to keep longest: those up to so many tokens.
            constraint: fresh; says which tokens may come.
        """
        params = params or self.sampling
        check_request(self.session, prompt_tokens, params)
        run = _Run(list(prompt_tokens), pin)
        return self._stream(run, params, start_in_reasoning, snapshot_at, constraint)

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool = True,
        **options: Any,
    ) -> Events:
        """Answers a conversation.

        Args:
            messages: role, content, and for earlier answers reasoning_content and tool_calls.
            tools: JSON schemas of callable functions.
            thinking: let the model reason first, if its template has a switch for that.
            options: further switches of the template.

        Raises:
            BundleError: the model has no chat template.
            UsageError, DoesNotFitError, BuildError: see `ChatTemplate.render` and `generate`.
        """
        prompt = self.encode_chat(messages, tools, thinking=thinking, **options)
        return self.generate(
            prompt.tokens,
            params,
            start_in_reasoning=prompt.opens_reasoning,
            snapshot_at=prompt.snapshot_at,
            pin=prompt.first_turn,
        )

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        thinking: bool = True,
        add_generation_prompt: bool = True,
        **options: Any,
    ) -> ChatPrompt:
        """The prompt that `chat` would continue."""
        if self.template is None:
            raise BundleError(
                f"model {self.name!r} has no chat template",
                cause="its checkpoint has neither chat_template.jinja nor a template in "
                "tokenizer_config.json",
                hint="use a checkpoint that was trained to chat",
            )
        self.refuse_endless(messages)
        return encode_chat(
            self.template,
            self.tokenizer,
            messages,
            tools,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=thinking,
            **options,
        )

    def refuse_endless(self, messages: Sequence[Message] | str) -> None:
        """Raises DoesNotFitError for text too long for the context however it is tokenized: no
        seconds are spent on tokenizing it first."""
        characters = sum(len(text) for text in strings(messages))
        # The longest token is looked up only for what is long by any measure.
        if characters > 8 * self.context and characters > self.tokenizer.longest * self.context:
            raise DoesNotFitError(
                f"{characters} characters are too long for a context of {self.context} tokens",
                hint="shorten the text, or build the bundle with a larger --context",
            )

    def reset(self) -> None:
        """Forgets everything but the weights, and what it shares with others."""
        self._settle()
        self._start_over()
        self.prefixes.clear()

    def close(self) -> None:
        """Frees the executor. The model is of no use afterwards."""
        self._settle()
        if self.speculator is not None:
            self.speculator.close()
        self.session.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stream(
        self,
        run: _Run,
        params: SamplingParams,
        start_in_reasoning: bool | None,
        snapshot_at: Collection[int],
        constraint: Constraint | None,
    ) -> Events:
        self._settle()
        run.events = generate(
            self.session,
            run.tokens,
            params,
            tokenizer=self.tokenizer,
            stop_token_ids=self.tokenizer.eos_token_ids,
            start_in_reasoning=start_in_reasoning,
            cached_tokens=self._reuse(run.tokens),
            snapshot_at=snapshot_at,
            keep_snapshot=(lambda snapshot: self._keep(run, snapshot))
            if self.prefixes.budget
            else None,
            speculator=self.speculator,
            constraint=constraint,
        )
        self._run = run
        tokens = run.tokens
        try:
            for event in run.events:
                tokens += event.tokens
                yield event
        except GeneratorExit:
            raise
        except BaseException:
            # A step may have been cut off anywhere, in place updates included.
            run.is_broken = True
            raise
        finally:
            self._settle(run)

    def _settle(self, run: _Run | None = None) -> None:
        """Ends the running generation (or this one, if it is the one) and notes what it left."""
        current = self._run
        if current is None or (run is not None and run is not current):
            return
        self._run = None
        current.events.close()
        if current.is_broken:
            self._start_over()
        else:
            self._committed = current.tokens[: self.session.length]

    def reusable(self, prompt: Sequence[int]) -> int:
        """How many tokens of a prompt would not be computed again. Only between generations."""
        committed = self._committed
        found = self.prefixes.find(prompt, len(prompt) - 1)
        stored = found.length if found is not None else 0
        extends = len(committed) < len(prompt) and list(prompt[: len(committed)]) == committed
        return max(stored, len(committed)) if extends else stored

    def _reuse(self, prompt: list[int]) -> int:
        """Puts the session at the longest beginning of the prompt it can; returns its length.

        One token at least is left to run, because only that gives logits.
        """
        committed = self._committed
        found = self.prefixes.find(prompt, len(prompt) - 1)
        extends = len(committed) < len(prompt) and prompt[: len(committed)] == committed
        if extends and (found is None or found.length <= len(committed)):
            return len(committed)
        if found is None:
            self._start_over()
        else:
            self._resume(found)
        return len(self._committed)

    def _resume(self, prefix: Prefix) -> None:
        """Goes on from a computed beginning."""
        self.prefixes.use(prefix)
        tokens, chain = prefix.tokens, prefix.chain()
        there = _agreed(self._committed, tokens)  # rows of the cache that are right already
        self._committed = []  # whatever fails from here on
        for part in chain:
            if part.length > there:
                self.session.write_rows(part.first, part.rows, max(0, there - part.first))
        self.session.restore(prefix.snapshot)
        if self.speculator is not None:
            self.speculator.resume(tokens, [(part.first, part.draft) for part in chain])
        self._committed = tokens

    def _start_over(self) -> None:
        self.session.reset()
        if self.speculator is not None:
            self.speculator.reset()
        self._committed = []

    def _keep(self, run: _Run, snapshot: Snapshot) -> None:
        """Stores the beginning of a run's prompt that the session has computed."""
        length = snapshot.length

        def read(first: int) -> tuple[Rows, Rows]:
            draft = self.speculator.read_rows(first) if self.speculator is not None else ()
            return self.session.read_rows(first, length), draft

        self.prefixes.add(run.tokens[:length], snapshot, read, pinned=length <= run.pin)


def _agreed(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    agreed = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        agreed += 1
    return agreed


class _Run:
    """One generation.

    Attributes:
        tokens: prompt and answer so far; the session holds the first `session.length` of them.
        pin: see `Model.generate`.
        is_broken: it ended in an error, so the session's state is not to be trusted.
    """

    __slots__ = ("events", "is_broken", "pin", "tokens")

    def __init__(self, prompt: list[int], pin: int) -> None:
        self.tokens = prompt
        self.pin = pin
        self.is_broken = False
        self.events: Events
