"""Damaged text files and weights: `edgekit build` says what is wrong once and leaves nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from edgekit.safetensors import read_folder
from tests.cli.conftest import NANO, Run

Damage = Callable[[Path], object]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NANO, tmp_path / "checkpoint"))


def write(name: str, content: str | bytes) -> Damage:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def change(name: str, **values: object) -> Damage:
    def damage(folder: Path) -> None:
        fields = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(fields | values))

    return damage


def cut(folder: Path) -> None:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text[: len(text) // 2])


def one_token_more(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    extra = {**tokenizer["added_tokens"][-1], "id": 4096, "content": "<more>"}
    tokenizer["added_tokens"].append(extra)
    path.write_text(json.dumps(tokenizer))


def both(*damages: Damage) -> Damage:
    return lambda folder: [damage(folder) for damage in damages]


def no_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


SAMPLING, TEMPLATE = "generation_config.json", "chat_template.jinja"
LIST = change("tokenizer_config.json", chat_template=["a", "b"])
TEXT_FILES: dict[str, tuple[Damage, str]] = {
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json"),
    "an empty tokenizer": (write("tokenizer.json", ""), "tokenizer.json cannot be read"),
    "half a tokenizer": (cut, "tokenizer.json cannot be read"),
    "a tokenizer that is a list": (write("tokenizer.json", "[]"), "tokenizer.json cannot be read"),
    "a token too many": (one_token_more, "the tokenizer has 4097 tokens, the model only 4096"),
    "a template that ends early": (write(TEMPLATE, "{% if x %}"), "template cannot be compiled"),
    "a template that fails": (write(TEMPLATE, "{{ 1 / 0 }}"), "the chat template"),
    "a template that leaves the sandbox": (
        write(TEMPLATE, "{{ ''.__class__.__mro__ }}"),
        "the chat template",
    ),
    "a template that is no text": (write(TEMPLATE, b"\xff\xfe\x00"), f"{TEMPLATE} is not text"),
    "templates that are names": (both(no_template, LIST), "chat_template is not text"),
    "sampling that is no JSON": (write(SAMPLING, "{"), f"{SAMPLING} is not valid JSON"),
    "sampling that is a list": (write(SAMPLING, "[1]"), "does not hold a JSON object"),
    "a negative temperature": (change(SAMPLING, temperature=-1.0), "impossible sampling"),
    "a temperature in words": (change(SAMPLING, temperature="warm"), "impossible sampling"),
    "an end in words": (change(SAMPLING, eos_token_id="end"), "'end'"),
    "an end beyond the model": (change(SAMPLING, eos_token_id=[11, 5000]), "eos_token_id 5000"),
}


def refused(edgekit: Run, checkpoint: Path, home: Path, *flags: str) -> str:
    """Builds `checkpoint`, which must fail with one error and nothing left; returns the error."""
    output = home / "out" / "bundle"
    command = ("build", str(checkpoint), "--device", "cpu", "--output", str(output), *flags)
    built = edgekit(*command)
    assert built.code == 1, built.err
    assert built.out == ""
    errors = [line for line in built.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "hint:" in built.err
    assert not output.parent.exists() or not list(output.parent.iterdir())
    return errors[0]


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_damaged_text_file(edgekit: Run, checkpoint: Path, home: Path, name: str) -> None:
    damage, message = TEXT_FILES[name]
    damage(checkpoint)
    assert message in refused(edgekit, checkpoint, home, "--recipe", "nano-int4")
    assert not (home / "cache" / "edgekit" / "quantized").exists()  # it came before the work


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("recipe", ["nano-bf16", "nano-nvfp4"])
@pytest.mark.parametrize(
    "tensor",
    [
        "backbone.layers.1.mixer.experts.7.down_proj.weight",
        "backbone.layers.0.mixer.A_log",
        "backbone.embeddings.weight",
    ],
)
def test_weights_that_are_not_finite(
    edgekit: Run, checkpoint: Path, home: Path, tensor: str, recipe: str, value: float
) -> None:
    entry = read_folder(checkpoint)[tensor]
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.seek(entry.offset + entry.nbytes - entry.dtype.itemsize)
        file.write(np.asarray(value, entry.dtype).tobytes())
    error = refused(edgekit, checkpoint, home, "--recipe", recipe)
    assert tensor in error
    assert "NaN or infinity" in error


def test_what_is_finite_is_not_refused() -> None:
    from edgekit.export.checkpoint import check_finite

    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32, np.float16):
        limits = ml_dtypes.finfo(dtype)
        check_finite("w", np.array([limits.max, limits.min, limits.tiny, 0], dtype))
    check_finite("w", np.zeros(0, ml_dtypes.bfloat16))
    check_finite("w", np.array([255, 0], np.uint8))
