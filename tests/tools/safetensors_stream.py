"""Write sharded safetensors folders one tensor at a time.

A file is an 8-byte little-endian header length, a JSON header, then the tensors' bytes back to
back. Offsets follow from names, dtypes and shapes alone, so the header goes first and no more
than one buffer is ever in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt

Buffer = bytes | memoryview

ITEM_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}
NUMPY_DTYPES: dict[str, npt.DTypeLike] = {
    "F32": np.float32,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "U8": np.uint8,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its name, safetensors dtype code and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


Fill = Callable[[Entry], Iterable[Buffer]]


def write_file(path: Path, entries: Sequence[Entry], fill: Fill) -> None:
    """Write one safetensors file; `fill` yields each entry's bytes in row-major order."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [offset, offset + entry.nbytes],
        }
        offset += entry.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for entry in entries:
            written = 0
            for buffer in fill(entry):
                view = memoryview(buffer).cast("B")
                while view:
                    done = file.write(view)
                    view = view[done:]
                    written += done
            if written != entry.nbytes:
                raise ValueError(f"{entry.name}: wrote {written} of {entry.nbytes} bytes")


def write_folder(
    folder: Path,
    entries: Sequence[Entry],
    fill: Fill,
    *,
    max_shard_bytes: int | None = None,
    shards: int = 1,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Write `model.safetensors`, or numbered shards and `model.safetensors.index.json`.

    Shards are cut by size where `max_shard_bytes` is given, else into `shards` runs of about
    equal bytes.
    """
    total = sum(entry.nbytes for entry in entries)
    if max_shard_bytes is not None:
        groups = _cut_by_size(entries, max_shard_bytes)
    else:
        groups = _cut_evenly(entries, shards, total)
    if len(groups) == 1:
        write_file(folder / "model.safetensors", groups[0], fill)
        return
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, start=1):
        name = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        write_file(folder / name, group, fill)
        weight_map.update({entry.name: name for entry in group})
        if progress is not None:
            progress(name)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))


def _cut_by_size(entries: Sequence[Entry], limit: int) -> list[list[Entry]]:
    groups: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        if groups[-1] and size + entry.nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.nbytes
    return groups


def _cut_evenly(entries: Sequence[Entry], count: int, total: int) -> list[list[Entry]]:
    groups: list[list[Entry]] = [[] for _ in range(count)]
    start = 0
    for entry in entries:
        groups[start * count // total].append(entry)
        start += entry.nbytes
    return [group for group in groups if group]
