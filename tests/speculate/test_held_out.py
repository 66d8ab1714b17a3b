"""A hundred held-out prompts of 256 tokens: with every drafter the text of plain decoding.

A verify step adds up in another order than single steps, so two logits closer than that error may
change places. Where a text parts from the plain one, the two tokens must be such a pair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

pytest.importorskip("onnxruntime")

from edgekit.bundle import Bundle
from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.recipes.nano.speculative.prompts import held_out_prompts
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model, load_model
from edgekit.runtime.session import prefill

pytestmark = pytest.mark.slow

NANO = embedded_checkpoint()
GREEDY = SamplingParams(temperature=0.0, max_tokens=256)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = tokenizers.Tokenizer.from_file(str(NANO / "tokenizer.json"))
    return [prompt.ids for prompt in held_out_prompts(tokenizer, 100, seed=11)]


def answers(model: Model, prompts: list[list[int]]) -> tuple[list[list[int]], float]:
    """The texts, and tokens a verify step gave."""
    found, kept, rounds = [], 0, 0
    for prompt in prompts:
        events = list(model.generate(prompt, GREEDY))
        found.append([token for event in events for token in event.tokens])
        if (stats := events[-1].stats.speculation) is not None:
            kept += sum(stats.accepted)
            rounds += stats.rounds
    return found, 1 + kept / rounds if rounds else 1.0


def gap(model: Model, prompt: list[int], said: list[int], tokens: tuple[int, int]) -> float:
    """How far apart the logits of two tokens are after a prompt and what was said."""
    model.reset()
    logits = prefill(model.session, [*prompt, *said])
    return float(abs(logits[tokens[0]] - logits[tokens[1]]))


def check(bundle: Bundle, kinds: list[Any], prompts: list[list[int]], close: float) -> None:
    with load_model(bundle.path, threads=1) as model:
        expected, _ = answers(model, prompts)
        for kind in kinds:
            with load_model(bundle.path, threads=1, speculate=kind, draft_tokens=7) as drafting:
                found, tokens_a_round = answers(drafting, prompts)
            parted = []
            for prompt, ours, theirs in zip(prompts, found, expected, strict=True):
                if ours == theirs:
                    continue
                pairs = enumerate(zip(ours, theirs, strict=False))
                at = next(i for i, (a, b) in pairs if a != b)
                parted.append(gap(model, prompt, theirs[:at], (ours[at], theirs[at])))
            print(
                f"{bundle.manifest.executor} {kind}: {tokens_a_round:.2f} tokens a round, "
                f"{len(parted)} of {len(prompts)} texts part at logits "
                f"{np.round(sorted(parted), 5).tolist()} apart"
            )
            assert max(parted, default=0.0) < close
            assert len(parted) < 0.2 * len(prompts)


def built(folder: Path, lowering: Any, drafts: DraftRequest, **how: Any) -> Bundle:
    request = BuildRequest(
        NANO, folder / "b", "cpu", "none", 2048, 128, lowering=lowering, drafts=drafts, **how
    )
    return Bundle.open(build_bundle(request))


def test_on_the_cpu(tmp_path: Path, prompts: list[list[int]]) -> None:
    bundle = built(tmp_path, "ort", DraftRequest(NANO / "draft", mtp=True))
    check(bundle, ["dspark", "mtp", "ngram"], prompts, 1e-3)


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path, prompts: list[list[int]]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    major, minor = torch.cuda.get_device_capability()
    bundle = built(tmp_path, "plugin", DraftRequest(NANO / "draft"), sm=10 * major + minor)
    check(bundle, ["dspark", "ngram"], prompts, 0.3)
