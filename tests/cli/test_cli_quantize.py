"""`edgekit build` with a recipe that quantizes: the stream into the cache, then the bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from edgekit.export import quantize
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("recipe", "weights"), [("nano-int4", "float32+int4"), ("nano-nvfp4", "float32")]
)
def test_a_recipe_quantizes_and_the_bundle_verifies(
    edgekit: Run, home: Path, recipe: str, weights: str
) -> None:
    built = edgekit("build", "nano", "--device", "cpu", "--recipe", recipe, "--name", "small")
    assert built.code == 0, built.err
    assert "quantizing" in built.err
    bundle = Bundle.open(Path(built.out.strip()))
    assert bundle.manifest.recipe == recipe
    assert bundle.manifest.weights_format == weights
    assert edgekit("verify", "small").code == 0
    assert list((home / "cache" / "edgekit" / "quantized").iterdir()) == []


def test_a_stopped_build_keeps_what_it_quantized(
    edgekit: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("build", "nano", "--device", "cpu", "--recipe", "nano-fp8", "--name", "small")
    with monkeypatch.context() as patch:
        patch.setattr("edgekit.export.build.compute_golden", lambda *_: 1 / 0)
        assert edgekit(*command).code == 5
    (kept,) = (home / "cache" / "edgekit" / "quantized").iterdir()
    before = (kept / "config.json").stat().st_mtime_ns
    seen = []
    original = quantize.quantize_checkpoint

    def spy(*args: object) -> Path:
        folder = original(*args)  # type: ignore[arg-type]
        seen.append((folder / "config.json").stat().st_mtime_ns)
        return folder

    monkeypatch.setattr("edgekit.export.quantize.quantize_checkpoint", spy)
    assert edgekit(*command).code == 0
    assert seen == [before]
