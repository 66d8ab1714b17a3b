"""Writing a long message in the editor of choice."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from edgekit.errors import EdgekitError, MissingDependencyError


def edit_text(text: str = "") -> str:
    """Opens $VISUAL, $EDITOR or the first of nano and vi on a text, and returns what was saved.

    Raises:
        MissingDependencyError: there is no editor.
        EdgekitError: it failed.
    """
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    command = shlex.split(chosen) if chosen else []
    if not command:
        command = [name for name in ("nano", "vi") if shutil.which(name)][:1]
    if not command or shutil.which(command[0]) is None:
        raise MissingDependencyError(
            f"no editor {command[0]!r}" if command else "no editor found",
            hint="set EDITOR to the one you use",
        )
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        path = Path(folder) / "message.md"
        path.write_text(text)
        status = subprocess.run([*command, str(path)], check=False).returncode
        if status != 0:
            raise EdgekitError(f"{command[0]} ended with status {status}")
        return path.read_text().strip("\n")
