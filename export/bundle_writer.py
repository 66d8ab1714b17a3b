"""Writes a bundle atomically: into a temporary directory beside its place, synced, then renamed.

A build locks its temporary directory, and the kernel drops the lock with the process: what a killed
build left is thereby known to be abandoned, and the next build of that name removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgekit.bundle import MANIFEST
from edgekit.errors import BundleError, UsageError
from edgekit.manifest import FileEntry, Manifest


class BundleWriter:
    """Collects the files of a bundle in a temporary directory; see `write_bundle`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._hashed: dict[str, FileEntry] = {}

    def path(self, name: str) -> Path:
        """Where to write a file; its directory exists afterwards."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_hashed(self, name: str, entry: FileEntry) -> None:
        """Records a hash computed while the file was written, so it is not read again."""
        self._hashed[name] = entry

    def finish(self, manifest: Manifest) -> None:
        """Writes manifest.json over what is in the directory, and syncs all of it."""
        files = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name != MANIFEST:
                name = path.relative_to(self.folder).as_posix()
                files[name] = self._hashed.get(name) or _hash_file(path)
        text = json.dumps(replace(manifest, files=files).to_json(), indent=1)
        self.path(MANIFEST).write_text(text + "\n")
        for path in self.folder.rglob("*"):
            _sync(path)
        _sync(self.folder)


@contextmanager
def write_bundle(destination: Path, *, force: bool) -> Iterator[BundleWriter]:
    """Writes a bundle atomically: `destination` changes only if the block ends without error.

    Raises:
        UsageError: something is there already, and `force` is false or it is no bundle.
        BundleError: another build of it is running, or the place cannot be written.
    """
    if destination.exists():
        if not (destination / MANIFEST).exists():
            raise UsageError(
                f"{destination} exists and is not a bundle",
                hint="choose another --output or remove it yourself",
            )
        if not force:
            raise UsageError(
                f"bundle {destination.name!r} exists already",
                hint="replace it with --force, or choose another --name",
            )
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(destination)
        folder = Path(tempfile.mkdtemp(prefix=_prefix(destination), dir=destination.parent))
        with _hold(folder):
            try:
                yield BundleWriter(folder)
                folder.chmod(0o755)
                _put_in_place(folder, destination)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise BundleError(
            f"cannot write bundle {destination.name!r} into {destination.parent}",
            cause=f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""),
            hint="free some space, or choose another place with --output"
            if full
            else "choose a place you can write with --output",
        ) from error


def _prefix(destination: Path) -> str:
    return f".{destination.name}.part-"


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """Locks a directory; BlockingIOError when another process has it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(destination: Path) -> None:
    """Deletes what killed builds left; a bundle that was being replaced is put back first."""
    for left in destination.parent.glob(f"{_prefix(destination)}*"):
        try:
            with _hold(left):
                old = left / "bundle"
                if old.exists() and not destination.exists():
                    old.rename(destination)
                shutil.rmtree(left)
        except BlockingIOError:
            raise BundleError(
                f"another build of {destination.name!r} is running",
                hint="wait for it, or choose another --name",
            ) from None


def _put_in_place(folder: Path, destination: Path) -> None:
    """Renames `folder` to `destination`, whose old content goes only once the new one is there."""
    if not destination.exists():
        folder.rename(destination)
        _sync(destination.parent)
        return
    old = Path(tempfile.mkdtemp(prefix=_prefix(destination), dir=folder.parent))
    try:
        destination.rename(old / "bundle")
        folder.rename(destination)
    except BaseException:
        if not destination.exists():
            (old / "bundle").rename(destination)
        old.rmdir()
        raise
    _sync(destination.parent)
    shutil.rmtree(old)


def _hash_file(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(digest.hexdigest(), path.stat().st_size)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
