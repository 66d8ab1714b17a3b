"""Small checkpoints to break: rewrite a tensor, a header or a declaration of an existing folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.safetensors import read_folder
from tests.tools.nemotron_layout import Dims
from tests.tools.safetensors_stream import NUMPY_DTYPES, Entry, write_file

Tensors = dict[str, npt.NDArray[Any]]

LIGHTNING_SMALL = Dims(
    pattern="ME*ME",
    hidden_size=128,
    vocab_size=512,
    moe_intermediate_size=48,
    moe_shared_expert_intermediate_size=80,
)
"""Dimensions of a mixed checkpoint in the published Lightning layout, 2 MB."""

FILE = "model.safetensors"


def load(folder: Path) -> Tensors:
    """Every tensor of a one-file checkpoint."""
    return {name: entry.read() for name, entry in read_folder(folder).items()}


def save(folder: Path, tensors: Tensors) -> None:
    """Writes a one-file checkpoint; dtypes beyond the usual four get their codes here."""
    codes = {np.dtype(dtype): code for code, dtype in NUMPY_DTYPES.items()}
    entries = [Entry(name, codes[a.dtype], a.shape) for name, a in tensors.items()]
    write_file(folder / FILE, entries, lambda entry: [tensors[entry.name].tobytes()])


def change_tensors(folder: Path, change: Callable[[Tensors], Any]) -> None:
    tensors = load(folder)
    change(tensors)
    save(folder, tensors)


def change_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def change_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrites the JSON header of a safetensors file and leaves the data as it is."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    write_header(path, json.dumps(header).encode(), data[8 + length :])


def write_header(path: Path, header: bytes, data: bytes) -> None:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def set_element(array: npt.NDArray[Any], value: float) -> npt.NDArray[Any]:
    """A copy whose last element is `value`."""
    changed = array.copy().reshape(-1)
    changed[-1] = np.float32(value).astype(array.dtype)
    return changed.reshape(array.shape)


E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
