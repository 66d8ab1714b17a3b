"""Installs, removes and watches the service with systemctl."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from edgekit.errors import EdgekitError, MissingDependencyError
from edgekit.service.unit import FOLDER, NAME, Unit

UNIT_FOLDER = Path("/etc/systemd/system")
Command = Callable[[Sequence[str]], int]
"""Runs a program with this process's streams and returns its exit status."""


def run(args: Sequence[str]) -> int:
    """See `Command`.

    Raises:
        MissingDependencyError: there is no such program.
    """
    try:
        return subprocess.run(list(args), check=False).returncode
    except OSError as error:
        raise MissingDependencyError(
            f"{args[0]} is missing", cause=str(error), hint="edgekit serve runs without systemd"
        ) from None


def install(
    unit: Unit,
    *,
    folder: Path = UNIT_FOLDER,
    var: Path = Path("/var"),
    command: Command = run,
) -> Path:
    """Writes the unit whole or not at all, then enables and starts it.

    Raises:
        EdgekitError: the folder cannot be written, or systemctl refuses; then the unit is gone.
    """
    path, text = folder / NAME, unit.text()
    fresh = folder / f".{NAME}.new"
    try:
        fresh.write_text(text)
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError as error:
        raise _not_root(error) from None
    for step in (["daemon-reload"], ["enable", NAME], ["restart", "--no-block", NAME]):
        if command(["systemctl", *step]):
            uninstall(folder=folder, var=var, command=command)
            raise EdgekitError(
                f"systemctl {' '.join(step)} failed, so the unit was removed again",
                hint="edgekit service install --dry-run shows the unit",
            )
    return path


def uninstall(
    *, folder: Path = UNIT_FOLDER, var: Path = Path("/var"), command: Command = run
) -> bool:
    """Stops the service and removes the unit, its drop-ins, state and cache.

    Returns:
        Whether there was a unit.

    Raises:
        EdgekitError: it may not be removed.
    """
    path, drop_ins = folder / NAME, folder / f"{NAME}.d"
    if not path.exists():
        return False
    command(["systemctl", "disable", "--now", NAME])  # it waits for running answers
    try:
        for base in (var / "lib", var / "cache"):
            _remove(base / "private" / FOLDER)  # where a dynamic user's folder is
            _remove(base / FOLDER)
        path.unlink()
        if drop_ins.is_dir():
            for file in drop_ins.iterdir():
                file.unlink()
            drop_ins.rmdir()
    except OSError as error:
        raise _not_root(error) from None
    command(["systemctl", "daemon-reload"])
    command(["systemctl", "reset-failed", NAME])
    return True


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _not_root(error: OSError) -> EdgekitError:
    return EdgekitError(
        f"cannot change {error.filename or UNIT_FOLDER}",
        cause=error.strerror or str(error),
        hint="sudo edgekit service ...",
    )
