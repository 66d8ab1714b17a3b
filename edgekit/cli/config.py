"""`edgekit config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.options import Device, Json, complete_setting, globals_of
from edgekit.cli.output import out


def config(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SETTING]",
            autocompletion=complete_setting,
            help="Print the value of this one.",
            show_default=False,
        ),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Show every setting, its value and where it comes from.

    A setting is a key of edgekit.toml, an EDGEKIT_* variable and, where a command has one, a
    flag; the flag wins.
    """
    from edgekit import paths
    from edgekit.detect import detect_profile
    from edgekit.names import unknown_name
    from edgekit.profile import load_profile
    from edgekit.settings import SETTING_NAMES, SettingValues

    out.json = json
    settings = globals_of(ctx).settings(device=device)
    if name is not None and name not in SETTING_NAMES:
        raise unknown_name("setting", name, SETTING_NAMES)
    profile = load_profile(settings.values.device or detect_profile().value)
    settings = settings.with_profile(profile.name, profile.settings())
    rows = [
        {
            "setting": setting,
            "value": _plain(getattr(settings.values, setting)),
            "origin": settings.origin(setting),
            "meaning": SettingValues.model_fields[setting].description,
        }
        for setting in SETTING_NAMES
    ]
    if name is not None:
        row = next(row for row in rows if row["setting"] == name)
        if out.json:
            out.json_line(row)
        else:
            out.print("" if row["value"] is None else str(row["value"]))
        return
    out.table(["setting", "value", "origin", "meaning"], rows)
    if out.json:
        return
    out.note("")
    for path in paths.config_files(Path.cwd()):
        state = "read" if path in settings.files else "not there"
        if not globals_of(ctx).use_config:
            state = "not read: --no-config"
        out.note(f"{path}: {state}")
    out.note(f"bundles: {settings.values.bundles_dir or paths.bundles_dir()}")


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
