"""What a check gets to see and what it says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edgekit.detect import Gpu, query_gpu, read_text
from edgekit.profile import DeviceProfile

Status = Literal["ok", "warn", "fail", "unknown"]

MAX_ENTRIES = 4096
"""Names of one folder that a check looks at."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row: `fix` is a command or change, empty where nothing is to be done."""

    name: str
    status: Status
    reason: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine to examine.

    Attributes:
        gpu: what nvidia-smi says; None without it.
        uid, groups: of the process that is to use the GPU.
        bundles: the folder of bundles; need not be there.
        port: that a server would listen on.
        port_is_free: whether it can be bound; None asks no one.
        installed: version of an installed Python package, or None.
    """

    root: Path
    profile: DeviceProfile
    profile_why: str
    bundles: Path
    gpu: Gpu | None = None
    uid: int = 0
    groups: frozenset[int] = frozenset()
    port: int = 8080
    port_is_free: Callable[[int], bool | None] = lambda port: None
    python: tuple[int, int] = field(default=sys.version_info[:2])
    installed: Callable[[str], str | None] = lambda name: None

    def read(self, name: str) -> str:
        """A file below the root as text; empty when it cannot be read."""
        return read_text(self.root / name)

    def number(self, name: str) -> int | None:
        """A file that holds one integer."""
        text = self.read(name)
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None

    def names(self, folder: str) -> list[str]:
        """Names in a folder below the root, sorted; none when it cannot be read."""
        names = []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) == MAX_ENTRIES:
                        break
        except OSError:
            return []
        return sorted(names)


def this_machine(
    profile: DeviceProfile,
    profile_why: str,
    bundles: Path,
    *,
    port: int,
    installed: Callable[[str], str | None],
    port_is_free: Callable[[int], bool | None],
) -> Machine:
    """The machine that this process runs on."""
    return Machine(
        root=Path("/"),
        profile=profile,
        profile_why=profile_why,
        bundles=bundles,
        gpu=query_gpu(),
        uid=os.geteuid(),
        groups=frozenset([*os.getgroups(), os.getegid()]),
        port=port,
        port_is_free=port_is_free,
        installed=installed,
    )


def version_tuple(text: str) -> tuple[int, ...]:
    """ "10.13.3.9" as numbers; stops at the first part that is none."""
    numbers = []
    for part in text.strip().split("."):
        if not (part.isascii() and part.isdigit()) or len(part) > 9:
            break
        numbers.append(int(part))
    return tuple(numbers)
