"""Reads safetensors files in bounded pieces.

The safetensors package maps files into memory, so reading a 20 GB checkpoint shows as 20 GB
resident and pushes everything else out of the page cache of a small board. Here a tensor is read
with `pread` in chunks and its pages are dropped afterwards.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.errors import CheckpointError

DTYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}

INDEX = "model.safetensors.index.json"
CHUNK = 8 << 20
_MAX_HEADER = 100 << 20  # the limit the safetensors format itself sets
_REDOWNLOAD = "download this file again; its size should match the repository's listing"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor's bytes are."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int

    def read(self) -> npt.NDArray[np.generic]:
        """The whole tensor, in its stored dtype."""
        data = bytearray(self.nbytes)
        view = memoryview(data)
        at = 0
        for chunk in self.chunks():
            view[at : at + len(chunk)] = chunk
            at += len(chunk)
        return np.frombuffer(data, dtype=self.dtype).reshape(self.shape)

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """The tensor's bytes in order, at most `size` at a time."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            at, end = self.offset, self.offset + self.nbytes
            while at < end:
                chunk = os.pread(descriptor, min(size, end - at), at)
                if not chunk:
                    raise CheckpointError(
                        f"{self.path.name} ends inside tensor {self.name!r}", hint=_REDOWNLOAD
                    )
                at += len(chunk)
                yield chunk
            os.posix_fadvise(descriptor, self.offset, self.nbytes, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def read_header(path: Path) -> dict[str, TensorEntry]:
    """The tensors of one file.

    Raises:
        CheckpointError: the file is missing, truncated, or its header is not one.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length_field = file.read(8)
            length = int.from_bytes(length_field, "little")
            if len(length_field) < 8 or length > min(size - 8, _MAX_HEADER):
                raise CheckpointError(
                    f"{path.name} is truncated or not a safetensors file",
                    cause=f"its header would be {length} bytes in a file of {size}",
                    hint=_REDOWNLOAD,
                )
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.name} is missing from {path.parent}", hint="download the whole checkpoint"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read", cause=str(error)) from None
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or absurd JSON
        raise CheckpointError(
            f"the header of {path.name} is corrupt", cause=str(error), hint=_REDOWNLOAD
        ) from None
    if not isinstance(header, dict):
        raise CheckpointError(
            f"the header of {path.name} is corrupt", cause="no JSON object", hint=_REDOWNLOAD
        )
    return {
        name: _entry(path, name, fields, data_start=8 + length, file_size=size)
        for name, fields in header.items()
        if name != "__metadata__"
    }


def _entry(path: Path, name: str, fields: Any, *, data_start: int, file_size: int) -> TensorEntry:
    try:
        dtype = DTYPES[fields["dtype"]]
        shape = tuple(_size(n) for n in fields["shape"])
        begin, end = (_size(n) for n in fields["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"tensor {name!r} in {path.name} has a header edgekit cannot read",
            cause=f"{type(error).__name__}: {error}",
            hint=_REDOWNLOAD,
        ) from None
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise CheckpointError(
            f"tensor {name!r} in {path.name} is {end - begin} bytes, not what its shape needs",
            cause=f"{fields['dtype']} {list(shape)}",
            hint=_REDOWNLOAD,
        )
    if data_start + end > file_size:
        raise CheckpointError(
            f"{path.name} is truncated",
            cause=f"tensor {name!r} ends at byte {data_start + end} of a file of {file_size}",
            hint=_REDOWNLOAD,
        )
    return TensorEntry(name, dtype, shape, path, data_start + begin, end - begin)


def _size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value


def read_folder(folder: Path) -> dict[str, TensorEntry]:
    """The tensors of a checkpoint: model.safetensors, or the shards its index names."""
    index = folder / INDEX
    if not index.exists():
        if not (folder / "model.safetensors").exists():
            raise CheckpointError(
                f"no model.safetensors in {folder}",
                cause="neither one file nor an index of shards",
                hint="download the checkpoint's *.safetensors files; .bin files are not read",
            )
        return read_header(folder / "model.safetensors")
    shards = read_index(index)
    entries: dict[str, TensorEntry] = {}
    for shard in shards:
        entries.update(read_header(folder / shard))
    for shard, names in shards.items():
        for name in names:
            if name not in entries or entries[name].path.name != shard:
                raise CheckpointError(
                    f"tensor {name!r} is not in {shard}, where the index says it is",
                    hint="download the checkpoint again: its index and shards do not belong "
                    "together",
                )
    return entries


def read_index(path: Path) -> dict[str, tuple[str, ...]]:
    """The tensors of each shard by an index file, sorted by shard.

    Raises:
        CheckpointError: it is no index.
    """
    shards: dict[str, list[str]] = {}
    try:
        weight_map: dict[str, str] = json.loads(path.read_text())["weight_map"]
        for name, shard in weight_map.items():
            shards.setdefault(_file_name(shard), []).append(name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path.name} is corrupt",
            cause=f"{type(error).__name__}: {error}",
            hint="download this file again",
        ) from None
    return {shard: tuple(names) for shard, names in sorted(shards.items())}


def _file_name(shard: object) -> str:
    if not isinstance(shard, str) or Path(shard).name != shard:
        raise ValueError(f"{shard!r} is not a file name")
    return shard
