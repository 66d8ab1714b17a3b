"""Quantizes a checkpoint folder tensor by tensor, in constant memory, and resumes where it stopped.

The whole layout of the result follows from the headers of the source and the plan, so every byte
has its place before the first is written. Shards are written front to back as `*.part`; every so
often one is flushed to disk and a journal notes how far it is. After a kill or a power cut the
next call drops what came after the last note and goes on there; the files come out the same. The
folder has no config.json until everything else is in it, so nothing takes it for a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgekit.errors import EdgekitError
from edgekit.export.checkpoint import check_finite
from edgekit.export.quantize.declaration import hf_quant_config, quantization_config
from edgekit.export.quantize.encode import Output, encode, outputs
from edgekit.export.quantize.plan import Numerics
from edgekit.safetensors import DTYPES, INDEX, TensorEntry

JOURNAL = "quantize.json"
SHARD = 5_000_000_000
FLUSH = 256 << 20
_VERSION = 1
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".part")


@dataclass(frozen=True, slots=True)
class QuantizeEvent:
    """Progress: bytes of source weights done, of all. Its fields are those of a build's event."""

    done: int
    total: int
    detail: str = ""
    step: Literal["quantize"] = "quantize"
    unit: Literal["bytes"] = "bytes"


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint folder to quantize.

    Attributes:
        kept: modules, or patterns, that the result declares as not quantized.
    """

    folder: Path
    tensors: Mapping[str, TensorEntry]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """One source tensor and what it becomes; `numerics` None copies its bytes."""

    entry: TensorEntry
    numerics: Numerics | None
    outputs: tuple[Output, ...]

    @property
    def nbytes(self) -> int:
        return sum(output.nbytes for output in self.outputs)

    def chunks(self) -> Iterator[bytes]:
        if self.numerics is not None:
            yield from encode(self.entry, self.numerics)
            return
        for chunk in self.entry.chunks():
            check_finite(self.entry.name, np.frombuffer(chunk, self.entry.dtype))
            yield chunk


@dataclass(frozen=True, slots=True)
class _Shard:
    name: str
    tasks: tuple[_Task, ...]

    @property
    def header(self) -> bytes:
        """Length and JSON, padded to eight bytes."""
        fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        at = 0
        for output in (o for task in self.tasks for o in task.outputs):
            span = [at, at + output.nbytes]
            fields[output.name] = {
                "dtype": output.dtype,
                "shape": list(output.shape),
                "data_offsets": span,
            }
            at += output.nbytes
        text = json.dumps(fields, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text


def quantize_stream(
    source: Source,
    modules: Mapping[str, Numerics],
    out: Path,
    on_event: Callable[[QuantizeEvent], None] = lambda event: None,
    *,
    shard_bytes: int = SHARD,
    flush_bytes: int = FLUSH,
) -> Path:
    """Writes `source` to `out` with `modules` quantized and everything else unchanged.

    Args:
        out: a folder that is new, or one that an earlier call with the same arguments left.
        flush_bytes: how much work a kill may cost.

    Raises:
        CheckpointError: a weight cannot be quantized.
        EdgekitError: `out` holds something else.
    """
    shards = _layout(source, modules, shard_bytes)
    job = _fingerprint(source, shards)
    out.mkdir(parents=True, exist_ok=True)
    journal = _open_journal(out, job)
    if (out / "config.json").exists():
        return out
    total = sum(task.entry.nbytes for shard in shards for task in shard.tasks)
    done = 0
    for shard in shards:
        if not (out / shard.name).exists():

            def progress(n: int, name: str, before: int = done) -> None:
                on_event(QuantizeEvent(before + n, total, name))

            resume = journal["offset"] if journal["shard"] == shard.name else 0
            _write_shard(out, shard, job, resume, flush_bytes, progress)
        done += sum(task.entry.nbytes for task in shard.tasks)
        on_event(QuantizeEvent(done, total, shard.name))
    _write_companions(source, modules, shards, out)
    return out


def _layout(source: Source, modules: Mapping[str, Numerics], limit: int) -> tuple[_Shard, ...]:
    groups: list[list[_Task]] = [[]]
    size = 0
    for name, entry in source.tensors.items():
        numerics = modules.get(name.removesuffix(".weight")) if name.endswith(".weight") else None
        if numerics is None:
            copied = Output(name, _DTYPE_NAMES[entry.dtype], entry.shape, entry.nbytes)
            task = _Task(entry, None, (copied,))
        else:
            task = _Task(entry, numerics, outputs(entry, numerics))
        if groups[-1] and size + task.nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.nbytes
    if len(groups) == 1:
        return (_Shard("model.safetensors", tuple(groups[0])),)
    n = len(groups)
    return tuple(
        _Shard(f"model-{i:05d}-of-{n:05d}.safetensors", tuple(group))
        for i, group in enumerate(groups, start=1)
    )


def _fingerprint(source: Source, shards: tuple[_Shard, ...]) -> str:
    """What a half-written folder must have been started from to be continued."""
    digest = hashlib.sha256(f"edgekit quantize {_VERSION}\n".encode())
    for path in sorted({entry.path for entry in source.tensors.values()}):
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    digest.update((source.folder / "config.json").read_bytes())
    for shard in shards:
        digest.update(shard.name.encode() + shard.header)
        digest.update(repr([task.numerics for task in shard.tasks]).encode())
    return digest.hexdigest()


def _open_journal(out: Path, job: str) -> dict[str, Any]:
    path = out / JOURNAL
    if path.exists():
        journal: dict[str, Any] = json.loads(path.read_text())
        if journal["job"] == job:
            return journal
        if (out / "config.json").exists():
            raise EdgekitError(
                f"{out} holds another quantized checkpoint",
                cause="its source or its recipe was a different one",
                hint=f"remove {out}, or choose another folder",
            )
        for file in out.glob("*.safetensors*"):  # unfinished and from another source
            file.unlink()
    elif any(out.iterdir()):
        raise EdgekitError(f"{out} is not empty", hint="choose a new folder")
    return _note(out, job, "", 0)


def _note(out: Path, job: str, shard: str, offset: int) -> dict[str, Any]:
    journal = {"job": job, "shard": shard, "offset": offset}
    _write_text(out / JOURNAL, json.dumps(journal) + "\n")
    return journal


def _write_shard(
    out: Path,
    shard: _Shard,
    job: str,
    resume: int,
    flush_bytes: int,
    progress: Callable[[int, str], None],
) -> None:
    """Writes one shard from `resume`, a position that was flushed and lies between tensors."""
    part = out / f"{shard.name}.part"
    header = shard.header
    with part.open("r+b" if part.exists() and resume else "wb") as file:
        if file.seek(0, os.SEEK_END) < resume:
            resume = 0
        file.truncate(resume)
        file.seek(resume)
        if not resume:
            file.write(header)
        position, flushed, read = len(header), resume, 0
        for task in shard.tasks:
            position += task.nbytes
            read += task.entry.nbytes
            if position <= resume:
                continue
            for chunk in task.chunks():
                file.write(chunk)
            if file.tell() != position:
                raise AssertionError(f"{task.entry.name}: at {file.tell()}, not {position}")
            if position - flushed >= flush_bytes:
                _flush(file)
                flushed = position
                _note(out, job, shard.name, position)
            progress(read, task.entry.name)
        _flush(file)
    part.rename(out / shard.name)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _write_companions(
    source: Source, modules: Mapping[str, Numerics], shards: tuple[_Shard, ...], out: Path
) -> None:
    """Everything that is not weights, config.json last."""
    for file in sorted(source.folder.iterdir()):
        skip = file.name in ("config.json", "hf_quant_config.json", INDEX, JOURNAL)
        if file.is_file() and not skip and not file.name.endswith(_WEIGHTS):
            shutil.copyfile(file, out / file.name)
    if len(shards) > 1:
        weight_map = {o.name: s.name for s in shards for t in s.tasks for o in t.outputs}
        size = sum(task.nbytes for shard in shards for task in shard.tasks)
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        _write_text(out / INDEX, json.dumps(index, indent=1) + "\n")
    declared = json.dumps(hf_quant_config(source.kept, modules), indent=1) + "\n"
    _write_text(out / "hf_quant_config.json", declared)
    config = json.loads((source.folder / "config.json").read_text())
    config["quantization_config"] = quantization_config(source.kept, modules)
    _write_text(out / "config.json", json.dumps(config, indent=1) + "\n")


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
