"""A checkpoint quantized tensor by tensor: read back, run, resumed after kills, refused."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import CheckpointError, EdgekitError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize import encode, numerics
from edgekit.export.quantize.declaration import kept_modules
from edgekit.export.quantize.plan import plan_weights
from edgekit.export.quantize.rules import read_rules
from edgekit.export.quantize.stream import QuantizeEvent, Source, quantize_stream
from edgekit.ops.formats import dequantize
from edgekit.recipe import load_recipe
from edgekit.safetensors import TensorEntry
from tests.tools.random_checkpoint import write_random_checkpoint

RECIPES = ["nano-nvfp4", "nano-int4", "nano-fp8"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_random_checkpoint(
        tmp_path_factory.mktemp("source"), pattern="MEM*E", dtype="bfloat16", shards=2
    )
    (folder / "tokenizer.json").write_text("{}")
    return folder


def quantize(source: Path, out: Path, recipe: str, **options: Any) -> Checkpoint:
    checkpoint = Checkpoint.open(source)
    quantizing = load_recipe(recipe).quantize_source
    assert quantizing is not None
    plan = plan_weights(read_rules(quantizing), checkpoint.spec)
    kept = kept_modules(checkpoint.spec, plan.modules)
    quantize_stream(Source(source, checkpoint.tensors, kept), plan.modules, out, **options)
    return Checkpoint.open(out)


def digests(folder: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.iterdir())}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_tensor(source: Path, tmp_path: Path, recipe: str) -> None:
    before = Checkpoint.open(source)
    after = quantize(source, tmp_path / "out", recipe)
    assert after.declaration is not None
    assert set(after.formats.values()) - {"dense"}
    for module, form in after.formats.items():
        weight: Any = before.entry(f"{module}.weight").read().astype(np.float32)
        parts = [entry.read() for entry in after.parts(module)]
        if form == "dense":
            np.testing.assert_array_equal(parts[0], weight)
            continue
        values = dequantize(form, *parts)
        error = np.sqrt(np.mean(np.square(values - weight)) / np.mean(np.square(weight)))
        assert error < {"fp8": 0.03, "nvfp4": 0.1, "int4": 0.11}[form], module
    plain = set(before.tensors) - {f"{module}.weight" for module in before.formats}
    for name in plain:
        np.testing.assert_array_equal(before.read(name), after.read(name))
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    assert not list((tmp_path / "out").glob("*.part"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_result_builds(source: Path, tmp_path: Path, recipe: str) -> None:
    quantize(source, tmp_path / "out", recipe)
    request = BuildRequest(tmp_path / "out", tmp_path / "bundle", "cpu", recipe, 64, 16)
    assert (build_bundle(request) / "manifest.json").is_file()


def test_both_declarations_say_the_same(source: Path, tmp_path: Path) -> None:
    for recipe in RECIPES:
        out = tmp_path / recipe
        whole = quantize(source, out, recipe)
        config = json.loads((out / "config.json").read_text())
        algorithm = config["quantization_config"]["quant_algo"]
        expected = {"nano-nvfp4": "MIXED_PRECISION", "nano-fp8": "FP8", "nano-int4": "W4A16_INT4"}
        assert algorithm == expected[recipe]
        del config["quantization_config"]
        (out / "config.json").write_text(json.dumps(config))
        assert Checkpoint.open(out).formats == whole.formats  # now from hf_quant_config.json


def test_shards_and_pieces_do_not_change_a_tensor(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quantize(source, tmp_path / "one", "nano-nvfp4")
    monkeypatch.setattr(encode, "PIECE", 1000)
    monkeypatch.setattr(encode.pieces, "__defaults__", (1000,))
    cut = quantize(source, tmp_path / "many", "nano-nvfp4", shard_bytes=100_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    for name in whole.tensors:
        assert whole.read(name).tobytes() == cut.read(name).tobytes()


def test_mtp_tensors_are_carried_through(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = write_random_checkpoint(tmp_path / "source", pattern="ME", dtype="float32")
    tensors = load_file(folder / "model.safetensors")
    tensors["mtp.layers.0.mixer.q_proj.weight"] = np.ones((32, 64), np.float32)
    save_file(tensors, folder / "model.safetensors")
    after = quantize(folder, tmp_path / "out", "nano-int4")
    np.testing.assert_array_equal(after.read("mtp.layers.0.mixer.q_proj.weight"), 1)


def test_progress_reaches_the_end(source: Path, tmp_path: Path) -> None:
    events: list[QuantizeEvent] = []
    quantize(source, tmp_path / "out", "nano-fp8", on_event=events.append)
    assert [e.done for e in events] == sorted(e.done for e in events)
    assert events[-1].done == events[-1].total > 0


SCRIPT = """
import sys, time
from pathlib import Path
from edgekit.export.quantize import encode
from tests.export.test_quantize_stream import quantize
original = encode.encode
def slow(entry, numerics):
    for chunk in original(entry, numerics):
        time.sleep(0.002)
        yield chunk
import edgekit.export.quantize.stream as stream
stream.encode = slow
quantize(Path(sys.argv[1]), Path(sys.argv[2]), "nano-nvfp4", shard_bytes=60_000, flush_bytes=1)
"""


@pytest.mark.slow
def test_kills_at_any_point_change_nothing(source: Path, tmp_path: Path) -> None:
    """kill -9 again and again, at random moments, until a run comes through."""
    options = {"shard_bytes": 60_000, "flush_bytes": 1}
    quantize(source, tmp_path / "whole", "nano-nvfp4", **options)
    out = tmp_path / "killed"
    moments = random.Random(4)
    kills = 0
    for _ in range(60):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(source), str(out)])
        until = time.monotonic() + 20
        while not (out / "quantize.json").exists() and time.monotonic() < until:
            time.sleep(0.005)
        try:
            process.wait(moments.uniform(0.02, 0.5) if kills < 8 else 60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0
        break
    assert kills >= 3
    ours, theirs = digests(out), digests(tmp_path / "whole")
    del ours["quantize.json"], theirs["quantize.json"]
    assert ours == theirs


@pytest.mark.parametrize("keep", [0, 9, 20_000, 10**9])
def test_what_came_after_the_last_note_is_dropped(source: Path, tmp_path: Path, keep: int) -> None:
    """Whatever a power cut leaves after the journal's position: too little, or rubbish."""
    checkpoint_options = {"shard_bytes": 10**9, "flush_bytes": 30_000}
    quantize(source, tmp_path / "whole", "nano-nvfp4", **checkpoint_options)
    stopped = tmp_path / "stopped"

    class StopError(Exception):
        pass

    def stop(event: QuantizeEvent) -> None:
        if event.done > event.total // 2:
            raise StopError

    with pytest.raises(StopError):
        quantize(source, stopped, "nano-nvfp4", on_event=stop, **checkpoint_options)
    part = stopped / "model.safetensors.part"
    data = part.read_bytes()
    part.write_bytes(data[:keep] if keep < len(data) else data + b"rubbish")
    quantize(source, stopped, "nano-nvfp4", **checkpoint_options)
    assert (stopped / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


def test_a_finished_folder_is_not_touched_again(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", "nano-fp8")
    times = {f.name: f.stat().st_mtime_ns for f in (tmp_path / "out").iterdir()}
    quantize(source, tmp_path / "out", "nano-fp8")
    assert times == {f.name: f.stat().st_mtime_ns for f in (tmp_path / "out").iterdir()}


def test_a_folder_of_something_else_is_refused(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", "nano-fp8")
    with pytest.raises(EdgekitError, match="holds another quantized checkpoint"):
        quantize(source, tmp_path / "out", "nano-int4")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "diary.txt").write_text("")
    with pytest.raises(EdgekitError, match="is not empty"):
        quantize(source, tmp_path / "other", "nano-int4")


def test_unfinished_work_of_another_recipe_is_started_afresh(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "quantize.json").write_text('{"job": "another", "shard": "x", "offset": 7}')
    (out / "model.safetensors.part").write_bytes(b"of another")
    assert set(quantize(source, out, "nano-fp8").formats.values()) == {"fp8", "dense"}


def test_nan_names_its_tensor(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = write_random_checkpoint(tmp_path / "source", pattern="ME", dtype="float32")
    tensors = load_file(folder / "model.safetensors")
    name = "backbone.layers.1.mixer.experts.3.up_proj.weight"
    tensors[name][1, 2] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"experts\.3\.up_proj\.weight' holds NaN"):
        quantize(folder, tmp_path / "out", "nano-nvfp4")
    assert not (tmp_path / "out" / "config.json").exists()


def test_rows_survive_any_reading_size(tmp_path: Path) -> None:
    data = np.arange(7 * 12, dtype=np.float32).reshape(7, 12)
    path = tmp_path / "raw"
    path.write_bytes(data.tobytes())
    entry = TensorEntry("w", data.dtype, data.shape, path, 0, data.nbytes)
    for size in (1, 48, 100, 10**6):
        np.testing.assert_array_equal(np.concatenate(list(encode.pieces(entry, size))), data)
    assert numerics.absolute_max(data) == 83
