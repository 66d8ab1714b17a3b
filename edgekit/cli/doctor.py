"""`edgekit doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.options import Json, bundles_dir, complete_profile, globals_of
from edgekit.cli.output import Style, out

if TYPE_CHECKING:
    from edgekit.doctor import Status

_COLORS: dict[Status, Style] = {"ok": "green", "warn": "yellow", "fail": "red", "unknown": "dim"}


def doctor(
    ctx: typer.Context,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="PROFILE",
            autocompletion=complete_profile,
            help="Device profile; this machine when left out.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, metavar="N", help="The server's port.")
    ] = 8080,
    wait_mib: Annotated[
        int | None,
        typer.Option(
            "--wait-mib",
            min=0,
            metavar="N",
            help="Check nothing: wait until so much memory is available.",
            show_default=False,
        ),
    ] = None,
    wait_gpu: Annotated[
        bool, typer.Option("--wait-gpu", help="With --wait-mib: wait for the GPU, too.")
    ] = False,
    wait_seconds: Annotated[
        float, typer.Option("--wait-seconds", min=0, metavar="N", help="How long to wait.")
    ] = 120.0,
    json: Json = False,
) -> None:
    """Check this machine: driver, libraries, memory, power, permissions, disk and bundles.

    Each row says what was found and which command helps. Exits 1 when a row says fail.
    """
    from edgekit.detect import detect_profile
    from edgekit.doctor import examine
    from edgekit.doctor.check import this_machine
    from edgekit.profile import load_profile

    out.json = json
    if wait_mib is not None:
        from edgekit.doctor.wait import wait_for

        wait_for(wait_mib << 20, gpu=wait_gpu, seconds=wait_seconds)
        return
    settings = globals_of(ctx).settings(device=device)
    if settings.values.device is not None:
        name, why = settings.values.device, "chosen"
    else:
        found = detect_profile()
        name, why = found.value, found.why
    machine = this_machine(
        load_profile(name),
        why,
        bundles_dir(settings),
        port=port,
        installed=_installed,
        port_is_free=_port_is_free,
    )
    failed = False
    for check in examine(machine):
        failed |= check.status == "fail"
        if out.json:
            out.json_line(
                {
                    "type": "check",
                    "name": check.name,
                    "status": check.status,
                    "reason": check.reason,
                    "fix": check.fix,
                }
            )
            continue
        status = out.styled(f"{check.status:<7}", _COLORS[check.status], out.stdout)
        out.print(f"{status}  {check.name:<11}  {check.reason}")
        if check.fix and check.status != "ok":
            out.print(f"{'':<22}{out.styled(check.fix, 'cyan', out.stdout)}")
    if failed:
        raise typer.Exit(1)


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _port_is_free(port: int) -> bool:
    import socket

    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
