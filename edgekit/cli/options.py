"""What several commands share: the global options, common flags and their completion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from edgekit.settings import Settings

EMBEDDED = "nano"
"""The model that comes with edgekit."""


@dataclass(frozen=True, slots=True)
class Globals:
    """The options before the command."""

    use_config: bool = True
    verbose: int = 0

    def settings(self, **flags: object) -> Settings:
        """The settings with a command's flags on top. Warns once about what looks like one."""
        from edgekit.cli.output import out
        from edgekit.settings import load_settings

        settings = load_settings(use_config=self.use_config)
        for warning in settings.warnings:
            out.warn(warning)
        return settings.with_flags(**flags)


def globals_of(ctx: typer.Context) -> Globals:
    """The global options of a command's context."""
    return ctx.obj if isinstance(ctx.obj, Globals) else Globals()


def bundles_dir(settings: Settings) -> Path:
    """The folder that holds the bundles."""
    from edgekit import paths

    return settings.values.bundles_dir or paths.bundles_dir()


def embedded_checkpoint() -> Path:
    """The folder of the model that comes with edgekit."""
    from importlib.resources import files

    from edgekit.errors import EdgekitError

    path = Path(str(files("edgekit"))) / "recipes" / EMBEDDED / "checkpoint"
    if not (path / "config.json").is_file():
        raise EdgekitError(
            "the embedded model is missing from this installation",
            cause=f"no config.json in {path}",
            hint="install edgekit again",
        )
    return path


def bundle_names(folder: Path) -> list[str]:
    """Names of the bundles in a folder, sorted."""
    from edgekit.bundle import MANIFEST

    names = (path.parent.name for path in folder.glob(f"*/{MANIFEST}"))
    return sorted(name for name in names if not name.startswith("."))


def bundle_path(settings: Settings, name: str) -> Path:
    """The bundle that a name or path means.

    Raises:
        BundleError: there is none; says which was meant, or that the embedded one can be built.
    """
    from edgekit.bundle import find_bundle
    from edgekit.errors import BundleError
    from edgekit.names import closest

    folder = bundles_dir(settings)
    try:
        return find_bundle(name, folder)
    except BundleError as error:
        match = closest(name, bundle_names(folder))
        if name == EMBEDDED:
            error.hint = f"edgekit build {EMBEDDED}"
        elif match is not None:
            error.hint = f"did you mean {match!r}?"
        raise


# Completers see the word typed so far and must neither fail nor print: a broken configuration
# should not break the shell.


def complete_bundle(incomplete: str) -> Iterator[tuple[str, str]]:
    from edgekit.errors import EdgekitError
    from edgekit.settings import load_settings

    try:
        names = bundle_names(bundles_dir(load_settings()))
    except EdgekitError:
        return
    for name in sorted({*names, EMBEDDED}):
        if name.startswith(incomplete):
            yield name, "" if name in names else "the embedded model"


def complete_profile(incomplete: str) -> Iterator[tuple[str, str]]:
    from edgekit.profile import load_profile, profile_names

    for name in profile_names():
        if name.startswith(incomplete):
            yield name, load_profile(name).title


def complete_recipe(incomplete: str) -> Iterator[tuple[str, str]]:
    from edgekit.recipe import load_recipe, recipe_names

    for name in recipe_names():
        if name.startswith(incomplete):
            yield name, load_recipe(name).summary


def complete_model(incomplete: str) -> Iterator[tuple[str, str]]:
    from edgekit.catalog import catalog

    if EMBEDDED.startswith(incomplete):
        yield EMBEDDED, "the embedded model"
    for name, model in catalog().items():
        if name.startswith(incomplete):
            yield name, model.title
    base = Path(incomplete or ".")
    folder, prefix = (
        (base, "") if incomplete.endswith("/") or not incomplete else (base.parent, base.name)
    )
    try:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name.startswith(prefix) and not path.name.startswith("."):
                yield f"{path}/", "checkpoint" if (path / "config.json").exists() else ""
    except OSError:
        return


def complete_setting(incomplete: str) -> Iterator[tuple[str, str]]:
    from edgekit.settings import SettingValues

    for name, info in SettingValues.model_fields.items():
        if name.startswith(incomplete):
            yield name, info.description or ""


class SpeculateChoice(StrEnum):
    """Where drafted tokens come from."""

    auto = "auto"
    off = "off"
    dspark = "dspark"
    dflash = "dflash"
    mtp = "mtp"
    ngram = "ngram"


Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, one object a line.")]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="PROFILE",
        autocompletion=complete_profile,
        help="Device profile, by name or as a TOML file; this machine's when left out.",
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        autocompletion=complete_recipe,
        help="Recipe, by name or as a YAML file.",
    ),
]
Context = Annotated[
    int | None, typer.Option("--context", min=1, metavar="N", help="Tokens of context.")
]
PrefixCache = Annotated[
    int | None,
    typer.Option(
        "--prefix-cache",
        min=0,
        metavar="MIB",
        help="Memory for computed prompts; the device profile's when left out, 0 is off.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, metavar="N", help="CPU threads; as many as suit."),
]
Speculate = Annotated[
    SpeculateChoice | None,
    typer.Option(
        "--speculate", help="What drafts tokens for the model to verify.", show_default=False
    ),
]
DraftTokens = Annotated[
    str | None,
    typer.Option(
        "--draft-tokens", metavar="auto|N", help="Drafted at once, 1 to 7; auto measures."
    ),
]
PrefillChunk = Annotated[
    int | None,
    typer.Option("--prefill-chunk", min=1, metavar="N", help="Tokens one prefill step takes."),
]
