"""The table of commands, of which one process imports only the one it was asked for."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import edgekit
from edgekit.cli.options import Globals

EPILOG = """\b
Exit codes:
  0    success
  1    something you can fix: a bad bundle, a model that does not fit
  2    usage: flags, values and names
  3    hardware, a driver or an optional package is missing
  4    a build, an engine or an executor failed
  5    a fault in edgekit
  130  interrupted

\b
Settings come from flags, EDGEKIT_* variables, ./edgekit.toml and config.toml, in this
order: `edgekit config` shows each with its origin.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command by name: `function` of edgekit.cli.`module`."""

    name: str
    module: str
    function: str
    summary: str
    hidden: bool = False


COMMANDS = (
    Command("run", "run", "run", "Chat with a model, or answer one prompt."),
    Command("serve", "serve", "serve", "Serve a model with OpenAI's API."),
    Command("service", "service", "service", "Serve a model from boot on, with systemd."),
    Command("build", "build", "build", "Build a bundle from a checkpoint."),
    Command("verify", "verify", "verify", "Check a bundle on this machine."),
    Command("bench", "bench", "bench", "Measure a bundle on this machine."),
    Command("plan", "plan", "plan", "Show the memory a model needs on a device."),
    Command("list", "bundles", "list_", "List bundles."),
    Command("ls", "bundles", "list_", "List bundles.", hidden=True),
    Command("show", "bundles", "show", "Show one bundle."),
    Command("rm", "bundles", "remove", "Remove bundles."),
    Command("doctor", "doctor", "doctor", "Check this machine."),
    Command("profiles", "profiles", "profiles", "List device profiles, or show one."),
    Command("recipes", "recipes", "recipes", "List recipes, or show one."),
    Command("config", "config", "config", "Show settings and where each comes from."),
)


def create_app(args: Sequence[str]) -> typer.Typer:
    """The command line for these arguments: the command they name is imported, the others are
    known by name and summary only. For completion and without a command name all are imported
    when their parameters matter."""
    app = typer.Typer(
        name="edgekit",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True, epilog=EPILOG)(_main)
    completing = "_EDGEKIT_COMPLETE" in os.environ
    wanted = next((arg for arg in args if not arg.startswith("-")), None)
    for command in COMMANDS:
        function: Any = _not_loaded
        if completing or command.name == wanted:
            module = importlib.import_module(f"edgekit.cli.{command.module}")
            function = getattr(module, command.function)
        app.command(command.name, short_help=command.summary, hidden=command.hidden)(function)
    return app


def _not_loaded() -> None:
    raise AssertionError("a command ran that its name did not load")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgekit {edgekit.__version__}")
        raise typer.Exit


def _main(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Log more; twice for all."
        ),
    ] = 0,
    no_config: Annotated[
        bool, typer.Option("--no-config", help="Read no configuration file.")
    ] = False,
) -> None:
    """NVIDIA Nemotron hybrid models on Jetson, DGX Spark and the laptop in front of you.

    Start with `edgekit run`: it builds a small embedded model for this machine and chats.
    """
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", force=True)
    ctx.obj = Globals(use_config=not no_config, verbose=verbose)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit(2)
