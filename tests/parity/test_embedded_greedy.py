"""Greedy text of the embedded model: edgekit, llama.cpp and transformers say the same.

Run: pytest tests/parity/test_embedded_greedy.py -s   (prints near-ties)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.executors import open_session
from edgekit.runtime.session import Session, prefill
from edgekit.runtime.tokenizer import Tokenizer
from tests.tools.gguf_writer import write_gguf
from tests.tools.hf_reference import hf_logits
from tests.tools.llama_peer import LlamaPeer

N = 200
NEAR_TIE = 1e-3
PROMPTS = (
    "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    "<|im_start|>assistant\n<think></think>",
    "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nWhat is edgekit?<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n",
)


@pytest.fixture(scope="module")
def checkpoint() -> Iterator[Path]:
    with as_file(files("edgekit") / "recipes" / "nano" / "checkpoint") as folder:
        yield folder


@pytest.fixture(scope="module")
def session(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    output = tmp_path_factory.mktemp("bundles") / "nano"
    request = BuildRequest(checkpoint, output, "cpu", "nano-bf16", 1024, 128)
    opened = open_session(Bundle.open(build_bundle(request)), threads=1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def peer(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> LlamaPeer:
    return LlamaPeer(write_gguf(checkpoint, tmp_path_factory.mktemp("gguf") / "nano.gguf"))


def greedy(
    session: Session, prompt: list[int], banned: Sequence[int]
) -> tuple[list[int], list[float]]:
    """N arg-max tokens, none of them banned, and the margin of each over the runner-up."""
    session.reset()
    logits = prefill(session, prompt)
    tokens, margins = [], []
    for _ in range(N):
        logits[list(banned)] = -np.inf
        second, best = np.partition(logits, -2)[-2:]
        tokens.append(int(logits.argmax()))
        margins.append(float(best - second))
        logits = session.step(tokens[-1:]).logits[-1]
    return tokens, margins


@pytest.mark.parametrize("text", PROMPTS)
def test_greedy_tokens_equal_llama_cpp(
    session: Session, peer: LlamaPeer, checkpoint: Path, text: str
) -> None:
    tokenizer = Tokenizer.load(checkpoint)
    prompt = tokenizer.encode(text, special=True)
    # llama.cpp goes on past the end of an answer by making the tokens that end it impossible.
    tokens, margins = greedy(session, prompt, sorted(tokenizer.eos_token_ids))
    expected = peer.greedy(prompt, N, top=0).tokens
    near = [(i, margin) for i, margin in enumerate(margins) if margin < NEAR_TIE]
    print(f"{len(near)} near-ties of {N}: {near}")
    for i, (ours, theirs) in enumerate(zip(tokens, expected, strict=True)):
        if ours != theirs:
            assert margins[i] < NEAR_TIE, f"token {i}: {ours} against {theirs}, no tie"
            return  # after a tie is broken the other way, the texts are different texts
    assert tokens == expected


@pytest.mark.parametrize("text", PROMPTS)
def test_logits_equal_transformers(session: Session, checkpoint: Path, text: str) -> None:
    prompt = Tokenizer.load(checkpoint).encode(text, special=True)
    tokens, _ = greedy(session, prompt, ())
    ids = prompt + tokens
    session.reset()
    ours = np.concatenate(
        [
            session.step(ids[i : i + session.prefill_chunk], logits="all").logits.copy()
            for i in range(0, len(ids), session.prefill_chunk)
        ]
    )
    assert np.abs(ours - hf_logits(checkpoint, ids)).max() < 1e-4
