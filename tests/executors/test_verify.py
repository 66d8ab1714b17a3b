"""`verify_bundle` and opening a session: good bundles pass, changed ones do not."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from edgekit.bundle import Bundle
from edgekit.errors import BuildError, BundleError, MissingDependencyError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.executors import open_session
from edgekit.runtime.verify import verify_bundle
from tests.tools.random_checkpoint import write_random_checkpoint


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("verify")
    checkpoint = write_random_checkpoint(root / "checkpoint")
    request = BuildRequest(checkpoint, root / "bundle", "cpu", "none", 128, 16)
    return Bundle.open(build_bundle(request))


@pytest.fixture
def bundle(original: Bundle, tmp_path: Path) -> Bundle:
    """A copy to damage."""
    return Bundle.open(Path(shutil.copytree(original.path, tmp_path / "bundle")))


def change_weight(bundle: Bundle, name: str, *, byte: int, flip: int) -> None:
    """Flips bits in one byte (3 holds sign and exponent) of one float32 of a named tensor."""
    model = onnx.load(bundle.file("target.onnx"), load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.name == name)
    place = {entry.key: entry.value for entry in tensor.external_data}
    assert place["location"] == "weights/weights.bin"
    with bundle.file(place["location"]).open("r+b") as file:
        file.seek(int(place["offset"]) + 4 * 17 + byte)
        old = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([old ^ flip]))


def test_a_good_bundle_is_ok(bundle: Bundle) -> None:
    report = verify_bundle(bundle)
    assert report.ok
    assert report.agreeing + report.near_ties == report.positions == 32
    assert report.agreeing >= 31
    assert 0 < report.max_difference < 1e-4
    assert report.executor == "onnxruntime-cpu"
    assert report.as_dict() == {
        "positions": 32,
        "agreeing": report.agreeing,
        "near_ties": report.near_ties,
        "max_difference": report.max_difference,
        "tolerance": 1e-3,
        "executor": "onnxruntime-cpu",
        "ok": True,
    }
    bundle.check_hashes()


@pytest.mark.parametrize(
    "tensor",
    [
        "backbone.layers.0.mixer.in_proj.weight.T",
        "backbone.layers.3.mixer.o_proj.weight.T",
        "backbone.layers.5.mixer.down_proj.weight.T",
        "lm_head.weight.T",
    ],
)
def test_one_changed_byte_of_a_weight_is_not_ok(bundle: Bundle, tensor: str) -> None:
    change_weight(bundle, tensor, byte=3, flip=0x42)  # the exponent: a factor of 2^-4 to 2^132
    report = verify_bundle(bundle)
    assert not report.ok
    assert not report.max_difference <= report.tolerance
    with pytest.raises(BundleError, match=r"damaged: the content of weights/weights\.bin changed"):
        bundle.check_hashes()


def test_a_changed_byte_too_small_to_matter_is_found_by_the_hash(bundle: Bundle) -> None:
    change_weight(bundle, "lm_head.weight.T", byte=0, flip=1)
    assert verify_bundle(bundle).ok
    with pytest.raises(BundleError, match="changed"):
        bundle.check_hashes()


def test_weights_of_another_model_are_not_ok(bundle: Bundle, tmp_path: Path) -> None:
    other = write_random_checkpoint(tmp_path / "other", seed=1)
    request = BuildRequest(other, tmp_path / "other-bundle", "cpu", "none", 128, 16)
    weights = build_bundle(request) / "weights/weights.bin"
    shutil.copyfile(weights, bundle.file("weights/weights.bin"))
    report = verify_bundle(bundle)
    assert not report.ok
    assert report.agreeing < 8
    assert report.max_difference > 1


def edit_golden(bundle: Bundle, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the golden logits of the first two positions."""
    path = bundle.file("golden.json")
    golden = json.loads(path.read_text())
    for row in golden["rows"][:2]:
        change(row)
    path.write_text(json.dumps(golden))


def test_another_best_token_is_not_ok(bundle: Bundle) -> None:
    """Without the token that is best here, all listed logits still agree."""

    def drop_best(row: dict[str, Any]) -> None:
        del row["tokens"][0], row["logits"][0]

    edit_golden(bundle, drop_best)
    report = verify_bundle(bundle)
    assert (report.agreeing, report.near_ties) == (30, 0)
    assert report.max_difference < report.tolerance
    assert not report.ok


def test_other_logits_are_not_ok(bundle: Bundle) -> None:
    """The order of the tokens still agrees."""

    def shift(row: dict[str, Any]) -> None:
        row["logits"] = [logit + 0.01 for logit in row["logits"]]

    edit_golden(bundle, shift)
    report = verify_bundle(bundle)
    assert report.agreeing == 32
    assert report.max_difference == pytest.approx(0.01, abs=1e-4)
    assert not report.ok


def test_another_best_token_of_a_near_tie_is_ok(tmp_path: Path) -> None:
    checkpoint = write_random_checkpoint(tmp_path / "checkpoint")
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["lm_head.weight"][1::2] = tensors["lm_head.weight"][0::2]  # every token has a twin
    save_file(tensors, checkpoint / "model.safetensors")
    request = BuildRequest(checkpoint, tmp_path / "bundle", "cpu", "none", 128, 16)
    bundle = Bundle.open(build_bundle(request))

    def swap(row: dict[str, Any]) -> None:
        row["tokens"][:2] = row["tokens"][1::-1]

    edit_golden(bundle, swap)
    report = verify_bundle(bundle)
    assert report.agreeing <= 30
    assert report.agreeing + report.near_ties == 32
    assert report.ok


def test_a_context_shorter_than_the_golden_prompt(tmp_path: Path) -> None:
    checkpoint = write_random_checkpoint(tmp_path / "checkpoint")
    request = BuildRequest(checkpoint, tmp_path / "bundle", "cpu", "none", 10, 16)
    report = verify_bundle(Bundle.open(build_bundle(request)))
    assert report.ok
    assert report.positions == 10


@pytest.mark.parametrize("text", ["{", "[]", '{"prompt": [1], "rows": []}', '{"prompt": ["x"]}'])
def test_damaged_golden_logits_are_an_error(bundle: Bundle, text: str) -> None:
    bundle.file("golden.json").write_text(text)
    with pytest.raises(BundleError, match=r"golden\.json is damaged"):
        verify_bundle(bundle)


def test_without_golden_logits_there_is_nothing_to_verify(bundle: Bundle) -> None:
    bundle.file("golden.json").unlink()
    with pytest.raises(BundleError, match="no golden logits") as caught:
        verify_bundle(bundle)
    assert caught.value.hint.startswith("build it again: edgekit build ")


# -- opening a session


def test_an_executor_edgekit_does_not_have(bundle: Bundle) -> None:
    manifest = replace(bundle.manifest, executor="abacus")
    with pytest.raises(BundleError, match="needs executor 'abacus'") as caught:
        open_session(replace(bundle, manifest=manifest))
    assert "edgekit build" in caught.value.hint


def test_tensorrt_not_installed(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    manifest = replace(bundle.manifest, executor="tensorrt")
    with pytest.raises(MissingDependencyError, match="TensorRT is not installed") as caught:
        open_session(replace(bundle, manifest=manifest))
    assert caught.value.hint


def test_onnxruntime_not_installed(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match="not installed") as caught:
        open_session(bundle)
    assert caught.value.hint == "pip install 'edgekit-nemotron[cpu]'"


@pytest.mark.parametrize("name", ["target.onnx", "target.commit.onnx"])
def test_a_graph_that_onnxruntime_refuses(bundle: Bundle, name: str) -> None:
    path = bundle.file(name)
    path.write_bytes(np.random.default_rng(0).bytes(path.stat().st_size))
    with pytest.raises(BuildError, match=f"cannot load {name} of bundle 'bundle'") as caught:
        open_session(bundle)
    assert "onnxruntime" in caught.value.cause
    assert "--force" in caught.value.hint
