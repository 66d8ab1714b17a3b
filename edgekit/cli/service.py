"""`edgekit service`."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.options import EMBEDDED, bundle_path, complete_bundle, globals_of
from edgekit.cli.output import out

if TYPE_CHECKING:
    from edgekit.service.unit import Unit


class Action(StrEnum):
    """What to do with the service."""

    install = "install"
    uninstall = "uninstall"
    status = "status"
    logs = "logs"
    restart = "restart"


def service(
    ctx: typer.Context,
    action: Annotated[Action, typer.Argument(help="What to do.", show_default=False)],
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUNDLE]",
            autocompletion=complete_bundle,
            help="For install: the bundle to serve; the embedded model `nano` when left out.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, metavar="N", help="Port to listen on.")
    ] = 8080,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing new logs.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the unit or the commands, change nothing.")
    ] = False,
) -> None:
    """Serve a model from boot on, as a systemd service.

    install writes, enables and starts edgekit.service; uninstall removes it with its state.
    """
    from edgekit.service import manage
    from edgekit.service.unit import NAME

    if action is Action.install:
        unit = _unit(ctx, bundle, host, port, check=not dry_run)
        if dry_run:
            out.print(unit.text().rstrip())
            return
        path = manage.install(unit)
        out.note(f"wrote {path}; the model is being loaded")
        out.hint("edgekit service status, edgekit service logs -f")
        return
    if action is Action.uninstall and not dry_run:
        out.note("removed" if manage.uninstall() else "there was no service")
        return
    commands = {
        Action.uninstall: ["systemctl", "disable", "--now", NAME],
        Action.status: ["systemctl", "status", "--no-pager", NAME],
        Action.logs: ["journalctl", "-u", NAME, *(["-f"] if follow else ["--no-pager"])],
        Action.restart: ["systemctl", "restart", NAME],
    }
    if dry_run:
        out.print(" ".join(commands[action]))
        return
    raise typer.Exit(manage.run(commands[action]))


def _unit(ctx: typer.Context, bundle: str | None, host: str, port: int, *, check: bool) -> Unit:
    from edgekit.bundle import Bundle
    from edgekit.errors import EdgekitError
    from edgekit.profile import load_profile
    from edgekit.runtime.serve.server import ServerConfig
    from edgekit.service.unit import Unit, check_reachable, device_gids

    path = bundle_path(globals_of(ctx).settings(), bundle or EMBEDDED).absolute()
    beside = Path(sys.executable).with_name("edgekit")
    found = beside if beside.is_file() else shutil.which("edgekit")
    if found is None:
        raise EdgekitError("the command edgekit is not installed", hint="pip install .")
    python = Path(sys.executable).resolve()
    if check:
        for needed in (path, Path(found), python):
            check_reachable(needed)
    if not ServerConfig(path, host=host).is_local:
        out.warn(f"anybody who reaches {host} can use this server")
        out.hint("set EDGEKIT_API_KEY in /etc/edgekit/service.env")
    manifest = Bundle.open(path).manifest
    profile = load_profile(manifest.profile)
    need = manifest.nbytes // (1 << 20) + int(profile.memory.reserve_mib.value)
    return Unit(
        command=Path(found).absolute(),
        python=python,
        bundle=path,
        host=host,
        port=port,
        need_mib=need,
        gpu=profile.family != "cpu",
        gids=device_gids(),
    )
