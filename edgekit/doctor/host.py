"""Disk, the server's port and the bundles."""

from __future__ import annotations

import os
from pathlib import Path

from edgekit.bundle import Bundle, list_bundles
from edgekit.doctor.check import Check, Machine
from edgekit.units import size_text

_WARN_BYTES, _FAIL_BYTES = 20 << 30, 1 << 30


def check_disk(machine: Machine) -> Check:
    """Room where bundles are written; a Lightning bundle has about 18 GiB."""
    place: Path = machine.bundles
    while not place.exists() and place != place.parent:
        place = place.parent
    info = os.statvfs(place)
    free = info.f_bavail * info.f_frsize
    text = f"{size_text(free)} free in {place}"
    if free < _FAIL_BYTES:
        return Check("disk", "fail", text, "edgekit list, then edgekit rm BUNDLE")
    if free < _WARN_BYTES:
        return Check(
            "disk", "warn", f"{text}: no room for a 30B model", "edgekit list, edgekit rm BUNDLE"
        )
    return Check("disk", "ok", text)


def check_port(machine: Machine) -> Check:
    """The port that `edgekit serve` listens on."""
    free = machine.port_is_free(machine.port)
    if free is None:
        return Check("port", "unknown", f"port {machine.port} was not tried")
    if not free:
        return Check(
            "port",
            "warn",
            f"port {machine.port} is taken",
            f"ss -ltnp 'sport = :{machine.port}', or edgekit serve --port N",
        )
    return Check("port", "ok", f"port {machine.port} is free")


def check_bundles(machine: Machine) -> Check:
    """Every bundle opens, with files of the right size."""
    good, bad = 0, []
    for item in list_bundles(machine.bundles):
        if isinstance(item, Bundle):
            good += 1
        else:
            bad.append(item)
    if bad:
        return Check("bundles", "fail", bad[0].message, bad[0].hint or "edgekit list")
    if not good:
        return Check("bundles", "ok", "none yet: edgekit run builds the embedded model")
    return Check("bundles", "ok", f"{good} open")
