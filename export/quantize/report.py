"""How far quantized weights are from those they were made of, weight by weight and by layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize.encode import PIECE
from edgekit.ops.formats import F32, WeightFormat, dequantize
from edgekit.safetensors import TensorEntry

_EXPERT = re.compile(r"(.*\.experts)\.\d+(\.\w+)")


@dataclass(frozen=True, slots=True)
class WeightError:
    """The error of one weight, or of several together.

    Attributes:
        name: a module of the checkpoint; `experts.*` for all experts of a layer.
        squared_error, squared: sums over the elements of (quantized - original)^2 and original^2.
        largest_error, largest: of the absolute values.
    """

    name: str
    format: WeightFormat
    elements: int
    squared_error: float
    squared: float
    largest_error: float
    largest: float

    @property
    def rms(self) -> float:
        """Root mean square error, relative to that of the weights."""
        return float(np.sqrt(self.squared_error / self.squared)) if self.squared else 0.0

    @property
    def worst(self) -> float:
        """The largest error, relative to the largest weight."""
        return self.largest_error / self.largest if self.largest else 0.0

    def as_dict(self) -> dict[str, object]:
        """For JSON and tables."""
        return {
            "name": self.name,
            "format": self.format,
            "elements": self.elements,
            "rms": self.rms,
            "worst": self.worst,
        }


def weight_errors(
    original: Path, quantized: Path, on_progress: Callable[[int, int], None] = lambda *_: None
) -> list[WeightError]:
    """The error of every weight that is quantized in one folder and dense in the other.

    Args:
        on_progress: called with (weights done, weights in all).

    Raises:
        CheckpointError: a folder cannot be read.
    """
    before, after = Checkpoint.open(original), Checkpoint.open(quantized)
    modules = [
        module
        for module, form in after.formats.items()
        if form != "dense" and before.formats.get(module) == "dense"
    ]
    errors = []
    for number, module in enumerate(modules, start=1):
        errors.append(_weight_error(before, after, module))
        on_progress(number, len(modules))
    return errors


def by_layer(errors: Iterable[WeightError]) -> list[WeightError]:
    """The same with the experts of a layer as one, in execution order."""
    return _combined(errors, lambda error: _EXPERT.sub(r"\1.*\2", error.name))


def by_format(errors: Iterable[WeightError]) -> list[WeightError]:
    """All weights of a format as one."""
    return _combined(errors, lambda error: "all")


def _combined(
    errors: Iterable[WeightError], name_of: Callable[[WeightError], str]
) -> list[WeightError]:
    found: dict[tuple[str, str], WeightError] = {}
    for error in errors:
        name = name_of(error)
        other = found.get((name, error.format))
        found[name, error.format] = (
            replace(error, name=name)
            if other is None
            else WeightError(
                name,
                error.format,
                error.elements + other.elements,
                error.squared_error + other.squared_error,
                error.squared + other.squared,
                max(error.largest_error, other.largest_error),
                max(error.largest, other.largest),
            )
        )
    return list(found.values())


def _weight_error(before: Checkpoint, after: Checkpoint, module: str) -> WeightError:
    form = after.formats[module]
    weight = before.entry(f"{module}.weight")
    squared_error = squared = 0.0
    largest_error = largest = 0.0
    pairs = zip(_rows(("dense", (weight,))), _rows((form, after.parts(module))), strict=True)
    for original, quantized in pairs:
        squared += float(np.square(original, dtype=np.float64).sum())
        largest = max(largest, float(np.abs(original).max(initial=0)))
        quantized -= original
        squared_error += float(np.square(quantized, dtype=np.float64).sum())
        largest_error = max(largest_error, float(np.abs(quantized).max(initial=0)))
    N, K = weight.shape
    return WeightError(module, form, N * K, squared_error, squared, largest_error, largest)


def _rows(weight: tuple[WeightFormat, tuple[TensorEntry, ...]]) -> Iterator[F32]:
    """The values of a matrix, as many rows at a time as a piece of float32 has."""
    form, parts = weight
    N = parts[0].shape[0]
    columns = parts[0].shape[1] * (2 if form in ("nvfp4", "int4") else 1)
    step = max(1, PIECE // (4 * columns))
    for first in range(0, N, step):
        count = min(step, N - first)
        yield dequantize(form, *(_part(part, first, count).read() for part in parts))


def _part(entry: TensorEntry, first: int, count: int) -> TensorEntry:
    """Some rows of a tensor; all of one that is a scalar."""
    if len(entry.shape) < 2:
        return entry
    row = entry.nbytes // entry.shape[0]
    return replace(
        entry,
        shape=(count, *entry.shape[1:]),
        offset=entry.offset + first * row,
        nbytes=count * row,
    )
