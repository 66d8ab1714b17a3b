"""A conversation as the command line uses it, and how one is opened."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.cli.options import EMBEDDED, bundle_path, bundles_dir
from edgekit.cli.output import out
from edgekit.errors import BundleError

if TYPE_CHECKING:
    from edgekit.cli.interrupt import Interrupt
    from edgekit.cli.render import AnswerView
    from edgekit.runtime.conversation import Conversation
    from edgekit.runtime.events import GenerationEvent, SamplingParams
    from edgekit.settings import Settings

SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
)
"""Settings that are fields of SamplingParams by the same name."""


def locate_bundle(settings: Settings, name: str | None) -> Path:
    """The bundle to run. The embedded model is built for this machine when it is not there yet, or
    when it is from another version of edgekit.

    Raises:
        BundleError: no such bundle.
    """
    from edgekit.bundle import MANIFEST, Bundle

    if name not in (None, EMBEDDED):
        return bundle_path(settings, name)
    path = bundles_dir(settings) / EMBEDDED
    if (path / MANIFEST).exists():
        try:
            Bundle.open(path)
            return path
        except BundleError as error:
            out.note(f"building {EMBEDDED} again: {error.message}")
    else:
        out.note(f"building {EMBEDDED}, the embedded model, for this machine")
    return _build_embedded(settings)


def _build_embedded(settings: Settings) -> Path:
    from edgekit.cli.build import execute, prepare

    return execute(prepare(settings, EMBEDDED, name=EMBEDDED, force=True))


def open_conversation(bundle: Path, settings: Settings, stop: tuple[str, ...]) -> Conversation:
    """Loads a bundle and starts a conversation with the settings."""
    from edgekit.runtime.conversation import Conversation
    from edgekit.runtime.model import load_model

    model = load_model(bundle)
    params = replace(sampling(settings, model.sampling), stop=stop)
    think = settings.values.think
    return Conversation(
        model,
        system=settings.values.system,
        params=params,
        thinking=True if think is None else think,
    )


def sampling(settings: Settings, base: SamplingParams) -> SamplingParams:
    """Sampling parameters: the model's own where nobody set one."""
    chosen = {name: getattr(settings.values, name) for name in SAMPLING if settings.is_set(name)}
    return replace(base, **chosen)


def follow(events: Iterator[GenerationEvent], view: AnswerView, interrupt: Interrupt) -> None:
    """Shows events until the answer ends or Ctrl-C asks it to."""
    for event in events:
        view.feed(event)
        if interrupt.requested and event.finish_reason is None:
            view.stop()
            break
    give_up(events)


def give_up(events: Iterator[GenerationEvent]) -> None:
    """Closes a generation, so that what it said so far is kept now and not when it is collected."""
    if isinstance(events, Generator):
        events.close()
