"""Computed beginnings on the disk, so that the first request after a restart starts warm.

One file a beginning, written beside its place and renamed: a JSON line that says what follows, then
the arrays' bytes. A file that is damaged, of another bundle or of another drafter is removed when
it is met. Files hold what users said: the folder is this user's alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.bundle import Bundle
from edgekit.runtime.prefix import ITEM, Prefix, PrefixStore
from edgekit.runtime.session import Rows, Session

_SUFFIX = ".prefix"


def folder_for(root: Path, bundle: Bundle, drafter: str) -> Path:
    """Where the beginnings of one bundle and drafter are: other weights never meet them."""
    manifest = bundle.manifest
    weights = sorted(entry.sha256 for entry in manifest.files.values())
    what = json.dumps([weights, manifest.versions, manifest.executor, manifest.context, drafter])
    return root / hashlib.sha256(what.encode()).hexdigest()[:16]


def save(store: PrefixStore, session: Session, folder: Path) -> int:
    """Makes the folder hold what the store holds; returns how many files were written.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    entries = store.entries()
    wanted = {_name(prefix.key): prefix for prefix in entries}
    for path in folder.glob(f"*{_SUFFIX}"):
        if path.name not in wanted:
            path.unlink(missing_ok=True)
    written = 0
    for name, prefix in wanted.items():
        if not (folder / name).exists():
            _write(folder / name, prefix, session.to_host(prefix.snapshot))
            written += 1
    return written


def load(store: PrefixStore, session: Session, folder: Path) -> int:
    """Fills a store from a folder, as far as there is room; returns how many were read."""
    found: list[tuple[dict[str, Any], Path]] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        header = _header(path)
        if header is None:
            path.unlink(missing_ok=True)
        else:
            found.append((header, path))
    read = 0
    # Parents before their children.
    for header, path in sorted(found, key=lambda one: one[0]["length"]):
        try:
            prefix = _read(path, header, store, session)
        except (OSError, ValueError):
            path.unlink(missing_ok=True)
            continue
        read += prefix is not None and store.put(prefix)
    return read


def _name(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:32] + _SUFFIX


def _write(path: Path, prefix: Prefix, state: Rows) -> None:
    tokens: npt.NDArray[Any] = np.frombuffer(prefix.key, np.int32)
    groups = {"tokens": (tokens,), "state": state, "rows": prefix.rows, "draft": prefix.draft}
    header = {
        "length": prefix.length,
        "first": prefix.first,
        "pinned": prefix.pinned,
        "groups": {
            name: [[list(part.shape), part.dtype.str] for part in arrays]
            for name, arrays in groups.items()
        },
    }
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        digest = hashlib.sha256()
        with os.fdopen(descriptor, "wb") as file:
            line = json.dumps(header).encode() + b"\n"
            for piece in (line, *(p.tobytes() for arrays in groups.values() for p in arrays)):
                digest.update(piece)
                file.write(piece)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _header(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(1 << 20))
    except (OSError, ValueError):
        return None
    numbers = ("length", "first")
    if not isinstance(header, dict) or not isinstance(header.get("groups"), dict):
        return None
    return header if all(type(header.get(name)) is int for name in numbers) else None


def _read(
    path: Path, header: dict[str, Any], store: PrefixStore, session: Session
) -> Prefix | None:
    """The beginning in a file, None without its parent.

    Raises:
        ValueError: the file is damaged.
    """
    data = path.read_bytes()
    body, digest = data[:-32], data[-32:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("the content changed")
    offset = body.index(b"\n") + 1
    groups: dict[str, Rows] = {}
    for name, shapes in header["groups"].items():
        parts, offset = _arrays(body, offset, shapes)
        groups[name] = parts
    key = groups["tokens"][0].tobytes()
    if len(key) != ITEM * header["length"]:
        raise ValueError("the length is another")
    parent = store.find(groups["tokens"][0].tolist(), header["length"] - 1)
    if (parent.length if parent is not None else 0) < header["first"]:
        return None
    snapshot = session.from_host(header["length"], groups["state"])
    pinned = bool(header["pinned"])
    return Prefix(key, snapshot, parent, header["first"], groups["rows"], groups["draft"], pinned)


def _arrays(body: bytes, offset: int, shapes: Sequence[Any]) -> tuple[Rows, int]:
    parts = []
    for shape, dtype in shapes:
        kind = np.dtype(dtype)
        count = math.prod(shape)
        parts.append(np.frombuffer(body, kind, count, offset).reshape(shape).copy())
        offset += count * kind.itemsize
    return tuple(parts), offset
