"""Errors of quantized weights against NumPy's own figures, and their picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit import picture
from edgekit.errors import MissingDependencyError
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize import quantize_checkpoint, report
from edgekit.export.quantize.plot import plot_report
from edgekit.export.quantize.report import by_format, by_layer, weight_errors
from edgekit.ops.formats import dequantize
from edgekit.recipe import load_recipe
from tests.tools.random_checkpoint import write_random_checkpoint

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    source = write_random_checkpoint(folder / "source", pattern="MEM*E", dtype="bfloat16")
    return source, quantize_checkpoint(source, load_recipe("nano-nvfp4"), folder / "out")


@pytest.mark.parametrize("piece", [1, 1 << 22])
def test_each_weight(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(report, "PIECE", piece)
    before, after = (Checkpoint.open(folder) for folder in pair)
    errors = weight_errors(*pair)
    quantized = {module for module, form in after.formats.items() if form != "dense"}
    assert {error.name for error in errors} == quantized
    for error in errors:
        weight = before.entry(f"{error.name}.weight").read().astype(np.float64)
        parts = [entry.read() for entry in after.parts(error.name)]
        difference = dequantize(after.formats[error.name], *parts) - weight
        assert error.format == after.formats[error.name]
        assert error.elements == weight.size
        expected = np.linalg.norm(difference) / np.linalg.norm(weight)
        assert error.rms == pytest.approx(expected, rel=1e-6)
        expected = np.linalg.norm(difference.ravel(), np.inf) / np.abs(weight).max()
        assert error.worst == pytest.approx(expected, rel=1e-6)


def test_experts_of_a_layer_and_weights_of_a_format_as_one(pair: tuple[Path, Path]) -> None:
    errors = weight_errors(*pair)
    layers = {error.name: error for error in by_layer(errors)}
    name = "backbone.layers.1.mixer.experts.*.up_proj"
    experts = [e for e in errors if ".1.mixer.experts." in e.name and e.name.endswith("up_proj")]
    assert len(experts) > 1
    assert layers[name].elements == sum(e.elements for e in experts)
    assert min(e.rms for e in experts) < layers[name].rms < max(e.rms for e in experts)
    assert layers[name].largest_error == max(e.largest_error for e in experts)
    formats = {error.format: error for error in by_format(errors)}
    assert set(formats) == {"nvfp4", "fp8"}
    assert sum(error.elements for error in formats.values()) == sum(e.elements for e in errors)
    assert formats["fp8"].rms < 0.04 < formats["nvfp4"].rms < 0.1


def test_a_zero_weight_and_unquantized_ones(pair: tuple[Path, Path]) -> None:
    zero = report.WeightError("w", "fp8", 4, 0.0, 0.0, 0.0, 0.0)
    assert (zero.rms, zero.worst) == (0, 0)
    assert weight_errors(pair[0], pair[0]) == []
    assert weight_errors(pair[1], pair[1]) == []


@pytest.mark.parametrize("lost", [None, {"talk": 2, "letters": -1}])
def test_a_picture(pair: tuple[Path, Path], tmp_path: Path, lost: dict[str, int] | None) -> None:
    pytest.importorskip("matplotlib")
    plot_report(tmp_path / "report.png", "title", by_layer(weight_errors(*pair)), lost)
    assert (tmp_path / "report.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["report.png"]


def test_no_picture_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError) as caught:
        picture.require_matplotlib("a plot")
    assert caught.value.hint == "pip install 'edgekit-nemotron[report]'"
