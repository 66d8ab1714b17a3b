"""A conversation as the command line uses it, and how one is opened."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from edgekit.cli.options import EMBEDDED, bundle_path, bundles_dir, embedded_checkpoint
from edgekit.cli.output import out
from edgekit.errors import BundleError, UsageError

if TYPE_CHECKING:
    from edgekit.cli.interrupt import Interrupt
    from edgekit.cli.render import AnswerView
    from edgekit.runtime.conversation import Conversation
    from edgekit.runtime.events import Events, SamplingParams
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


MOST_CHARACTERS = 1 << 26
"""No context holds a text longer than this; reading stops here (/dev/zero has no end)."""


def read_text(stream: TextIO, name: str) -> str:
    """The whole text of a stream.

    Raises:
        UsageError: it is longer than any context. UnicodeDecodeError, OSError: as reading does.
    """
    text = stream.read(MOST_CHARACTERS + 1)
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"{name} is too long: reading stopped after {MOST_CHARACTERS} characters",
            hint="give a shorter text",
        )
    return text


def locate_bundle(settings: Settings, name: str | None) -> Path:
    """The bundle to run. The embedded model is built for this machine when it is not there yet, is
    damaged or from another version of edgekit, or has another context than --context asks for.

    Raises:
        BundleError: no such bundle.
        UsageError: --context is not what the bundle was built for.
    """
    from edgekit.bundle import Bundle

    asked = settings.values.context if settings.origin("context") == "--context" else None
    if name not in (None, EMBEDDED):
        path = bundle_path(settings, name)
        bundle = Bundle.open(path)
        built = bundle.manifest.context
        if asked is not None and asked != built:
            raise UsageError(
                f"bundle {path.name!r} has a context of {built} tokens, not {asked}",
                cause="its memory was planned for that",
                hint=f"build it again: {bundle.rebuild_command} --context {asked}",
            )
        return path
    path = bundles_dir(settings) / EMBEDDED
    reason = _why_build(path, asked)
    if reason is None:
        return path
    from edgekit.cli.build import execute, prepare

    out.note(reason)
    return execute(prepare(settings, EMBEDDED, name=EMBEDDED, force=True))


def _why_build(path: Path, context: int | None) -> str | None:
    """Why the embedded model must be built, None when the bundle at `path` will do."""
    from edgekit import __version__
    from edgekit.bundle import MANIFEST, Bundle

    manifest = path / MANIFEST
    if not manifest.exists():
        return f"building {EMBEDDED}, the embedded model, for this machine"
    try:
        built = Bundle.open(path).manifest
    except BundleError as error:
        return f"building {EMBEDDED} again: {error.message}"
    weights = embedded_checkpoint() / "model.safetensors"
    if built.versions.get("edgekit") != __version__:
        return f"building {EMBEDDED} again: it is from another version of edgekit"
    if weights.stat().st_mtime > manifest.stat().st_mtime:
        return f"building {EMBEDDED} again: its checkpoint is newer"
    if context is not None and context != built.context:
        return f"building {EMBEDDED} again for a context of {context} tokens"
    return None


def prefix_bytes(settings: Settings, bundle: Path) -> int | None:
    """Memory for computed prompts: what was asked for, else what the memory plan sets aside on the
    bundle's device; None where neither says."""
    from edgekit.budget import MAX_SNAPSHOTS
    from edgekit.bundle import Bundle
    from edgekit.profile import load_profile, profile_names

    asked = settings.values.prefix_cache
    if asked is not None:
        return asked << 20
    opened = Bundle.open(bundle)
    if opened.manifest.profile not in profile_names():
        return None
    budget = load_profile(opened.manifest.profile).defaults.snapshot_budget_mib << 20
    return min(budget, MAX_SNAPSHOTS * opened.spec.state_bytes())


def open_conversation(bundle: Path, settings: Settings, stop: tuple[str, ...]) -> Conversation:
    """Loads a bundle and starts a conversation with the settings."""
    from edgekit.runtime.conversation import Conversation
    from edgekit.runtime.model import load_model

    values = settings.values
    model = load_model(
        bundle,
        threads=values.threads,
        speculate=values.speculate,
        draft_tokens=None if values.draft_tokens == "auto" else values.draft_tokens,
        prefix_bytes=prefix_bytes(settings, bundle),
    )
    params = replace(sampling(settings, model.sampling), stop=stop)
    think = values.think
    return Conversation(
        model,
        system=values.system,
        params=params,
        thinking=True if think is None else think,
    )


def sampling(settings: Settings, base: SamplingParams) -> SamplingParams:
    """Sampling parameters: the model's own where nobody set one."""
    chosen = {name: getattr(settings.values, name) for name in SAMPLING if settings.is_set(name)}
    return replace(base, **chosen)


def follow(events: Events, view: AnswerView, interrupt: Interrupt) -> None:
    """Shows events until the answer ends or Ctrl-C asks it to; what it said so far is kept."""
    with closing(events):
        for event in events:
            view.feed(event)
            if interrupt.requested and event.finish_reason is None:
                view.stop()
                break
