"""`edgekit profiles`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.cli.options import Json, complete_profile
from edgekit.cli.output import out

if TYPE_CHECKING:
    from edgekit.profile import DeviceProfile, Figure


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROFILE]",
            autocompletion=complete_profile,
            help="Show this one in full.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List device profiles, or show one with the source of each number.

    A profile of your own is a TOML file: copy one, change it, pass its path to --device.
    """
    from edgekit.detect import detect_profile
    from edgekit.profile import load_profile, profile_names

    out.json = json
    if name is not None:
        _show(load_profile(name))
        return
    here = detect_profile()
    rows = []
    for known in profile_names():
        profile = load_profile(known)
        if out.json:
            record = profile.model_dump(mode="json")
            rows.append({"type": "profile", **record, "detected": known == here.value})
        else:
            rows.append(_summary(profile))
    out.table(["name", "device", "sm", "memory", "bandwidth", "context"], rows)
    if not out.json:
        out.note(f"this machine: {here.value} ({here.why})")


def _summary(profile: DeviceProfile) -> dict[str, Any]:
    memory = profile.memory
    size, bandwidth = memory.physical_mib, memory.bandwidth_gb_s
    return {
        "name": profile.name,
        "device": profile.title,
        "sm": profile.sm or None,
        "memory": f"{size.value / 1024:.0f} GiB" if size else "detected",
        "bandwidth": _bandwidth(bandwidth) if bandwidth is not None else None,
        "context": profile.defaults.context,
    }


def _show(profile: DeviceProfile) -> None:
    from edgekit.profile import Figure

    if out.json:
        out.json_line({"type": "profile", **profile.model_dump(mode="json")})
        return
    fields: dict[str, object] = {"name": profile.name, "device": profile.title}
    fields["family"], fields["sm"] = profile.family, profile.sm or None
    for section in ("memory", "formats", "defaults", "power", "software"):
        for key, value in getattr(profile, section):
            if value not in (None, "", ()):
                shown = _figure(value) if isinstance(value, Figure) else value
                fields[f"{section}.{key}"] = shown
    out.record(fields)
    for note in profile.notes:
        out.print(out.styled(f"note: {note}", "dim", out.stdout))


def _bandwidth(figure: Figure) -> str:
    return f"{'' if figure.measured else '~'}{figure.value:g} GB/s"


def _figure(figure: Figure) -> str:
    origin = figure.source
    if not figure.measured:
        origin = f"not measured; {origin}" if origin else "not measured"
    return f"{figure.value:g}  ({origin})"
