"""Writes the initializers of one or more graphs into one external data file, a tensor at a time.

Reading, hashing and writing overlap: hashing runs in a second thread, because at 4 bits a weight
the export of a large checkpoint is nothing but moving bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import onnx_ir as ir

from edgekit.export.graph.tensors import Weight
from edgekit.manifest import FileEntry

ALIGNMENT = 4096
"""Bytes. Executors map the file, and a mapping starts at a page."""

INLINE = 1024
"""Tensors below this many bytes stay in the graph file."""


def write_weights(
    models: Sequence[ir.Model],
    path: Path,
    location: str,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> FileEntry:
    """Writes every large initializer to `path` and points the graphs at it.

    Initializers with one name are one tensor, written once.

    Args:
        location: the file's path relative to the graph files, as ONNX stores it.
        on_progress: called with (bytes done, bytes in all, tensor name).

    Returns:
        hash and size of the file.
    """
    weights: dict[str, Weight] = {}
    for model in models:
        for name, value in model.graph.initializers.items():
            weight = value.const_value
            if isinstance(weight, Weight):
                weights.setdefault(name, weight)
    large = {name: w for name, w in weights.items() if w.nbytes >= INLINE}
    total = sum(weight.nbytes for weight in large.values())

    external: dict[str, ir.ExternalTensor] = {}
    digest = hashlib.sha256()
    done = 0
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as pool:
        hashing: Future[None] | None = None
        position = 0

        def emit(data: bytes | memoryview) -> None:
            nonlocal hashing, position
            if hashing is not None:
                hashing.result()  # at most one chunk waits, so memory stays bounded
            hashing = pool.submit(digest.update, data)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            position += len(data)

        for name, weight in large.items():
            emit(bytes(-position % ALIGNMENT))
            offset = position
            for chunk in weight.chunks():
                emit(chunk)
                done += len(chunk)
                if on_progress is not None:
                    on_progress(done, total, name)
            if position - offset != weight.nbytes:
                raise AssertionError(f"{name}: {position - offset} bytes, not {weight.nbytes}")
            external[name] = ir.ExternalTensor(
                location,
                offset,
                weight.nbytes,
                dtype=weight.dtype,
                shape=weight.shape,
                name=name,
                base_dir="",
            )
            # Dirty pages of a file larger than memory would otherwise fill it before they leave.
            os.posix_fadvise(file.fileno(), 0, offset, os.POSIX_FADV_DONTNEED)
        if hashing is not None:
            hashing.result()
    for model in models:
        for name, value in model.graph.initializers.items():
            if name in external:
                value.const_value = external[name]
            elif isinstance(value.const_value, Weight):
                value.const_value = ir.Tensor(value.const_value.numpy(), name=name)
    return FileEntry(digest.hexdigest(), position)


def weight_sizes(models: Mapping[str, ir.Model]) -> tuple[int, int]:
    """Bytes of all weights that a step may read, and of those of its routed experts.

    The embedding's table is left out: a token reads one row of it.

    Args:
        models: a target's graphs by kind. `head` is its own in the `plugin` lowering.
    """
    sizes: dict[str, int] = {}
    for kind in ("step", "head"):
        if kind in models:
            for name, value in models[kind].graph.initializers.items():
                if value.const_value is not None and ".embeddings." not in name:
                    sizes[name] = value.const_value.nbytes
    return sum(sizes.values()), sum(size for name, size in sizes.items() if ".experts." in name)


def save_graph(model: ir.Model, path: Path) -> None:
    """Writes a graph whose large initializers are external already."""
    import onnx

    onnx.save_model(ir.to_proto(model), path)
