"""llama.cpp and transformers agree, token by token, on random checkpoints written here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.tools.gguf_vocab import byte_tokens
from tests.tools.gguf_writer import write_gguf
from tests.tools.hf_reference import Greedy, HfReference
from tests.tools.llama_peer import LlamaPeer, PeerResult
from tests.tools.random_checkpoint import write_random_checkpoint

PROMPT = [3, 17, 42, 5, 200, 1, 9]
NEAR_TIE = 1e-3
TOKENS = 32
EMBEDDED = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"


def assert_equal_outside_near_ties(got: PeerResult, want: Greedy, *, at_least: int = 0) -> None:
    """Fail unless the tokens agree up to the first near-tie that llama.cpp decides otherwise."""
    assert len(got.tokens) == len(want.tokens)
    for position, (ours, theirs, margin) in enumerate(
        zip(got.tokens, want.tokens, want.margins, strict=True)
    ):
        if margin <= NEAR_TIE:
            print(f"near-tie at {position}: margin {margin:.1e}, llama.cpp took {ours}")
        if ours != theirs:
            assert margin <= NEAR_TIE, f"position {position}: llama.cpp {ours}, not {theirs}"
            assert position >= at_least, "a near-tie split the texts too early to compare"
            return


@pytest.mark.parametrize(
    ("pattern", "dims"),
    [
        ("MEM*E", {}),
        ("*MEME*", {"n_groups": 1, "num_experts_per_tok": 4, "key_style": "layers_block_type"}),
        ("ME*E", {"n_groups": 4, "n_group": 4, "topk_group": 2, "norm_topk_prob": False}),
        ("M-M*-", {"shards": 2, "dtype": "bfloat16"}),
    ],
)
def test_greedy_tokens_equal(tmp_path: Path, pattern: str, dims: dict[str, Any]) -> None:
    folder = write_random_checkpoint(tmp_path, pattern=pattern, vocab_size=512, **dims)
    peer = LlamaPeer(write_gguf(folder, tmp_path / "model.gguf"))
    got = peer.greedy(PROMPT, TOKENS)
    want = HfReference(folder).greedy(PROMPT, TOKENS)
    assert_equal_outside_near_ties(got, want, at_least=24)
    gap = got.top[0][0][1] - got.top[0][1][1]
    assert gap == pytest.approx(want.margins[0], abs=2e-4)


def test_tokenizer_json_becomes_the_vocabulary(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["the cat sat on the mat, the cat's mat in 1984"] * 20,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    folder = write_random_checkpoint(tmp_path, pattern="M*E", vocab_size=320)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    text = "the cat, 1984: naïve\n\n  mats"
    ids = tokenizer.encode(text).ids
    peer = LlamaPeer(write_gguf(folder, tmp_path / "model.gguf"))
    assert peer.tokenize(text) == ids
    assert peer.tokenize("<|im_start|>the") == tokenizer.encode("<|im_start|>the").ids
    got = peer.greedy(ids, 8)
    assert got.text == tokenizer.decode(got.tokens)


def test_byte_tokens_are_the_byte_level_alphabet() -> None:
    from tokenizers import pre_tokenizers

    assert sorted(byte_tokens()) == sorted(pre_tokenizers.ByteLevel.alphabet())


def test_unsupported_checkpoints_are_refused(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path, pattern="ME-")
    with pytest.raises(ValueError, match="both expert and dense"):
        write_gguf(folder, tmp_path / "model.gguf")
    config = json.loads((folder / "config.json").read_text())
    assert config["hybrid_override_pattern"] == "ME-"


@pytest.mark.skipif(not EMBEDDED.exists(), reason="no embedded model in this checkout")
def test_embedded_model_agrees_over_200_tokens(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    peer = LlamaPeer(write_gguf(EMBEDDED, tmp_path / "model.gguf"))
    model = HfReference(EMBEDDED)
    for text in ("The capital of France is", "naïve café - 東京 12345  x\n\n\ty"):
        ids = tokenizer.encode(text).ids
        assert peer.tokenize(text) == ids
        assert_equal_outside_near_ties(peer.greedy(ids, 200), model.greedy(ids, 200))


def test_q4_0_is_four_bits_of_every_matrix(tmp_path: Path) -> None:
    """llama.cpp loads it, and its values are those of gguf's own reference, near the weights'."""
    dims: dict[str, Any] = {"moe_intermediate_size": 64, "hidden_size": 64, "mamba_head_dim": 32}
    folder = write_random_checkpoint(tmp_path, pattern="MEM*E", vocab_size=512, **dims)
    full, small = (
        gguf.GGUFReader(write_gguf(folder, tmp_path / f"{kind}.gguf", kind)).tensors
        for kind in ("F32", "Q4_0")
    )
    kinds = {}
    for exact, quantized in zip(full, small, strict=True):
        kinds[re.sub(r"^blk\.\d+\.", "", exact.name)] = quantized.tensor_type.name
        values = gguf.quants.dequantize(quantized.data, quantized.tensor_type)
        error = np.linalg.norm(values - exact.data) / np.linalg.norm(exact.data)
        assert error < (0.12 if quantized.tensor_type.name == "Q4_0" else 1e-6), exact.name
    assert {name for name, kind in kinds.items() if kind == "F32"} == {
        *("attn_norm.weight", "ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_a", "ssm_d"),
        *("ssm_dt.bias", "ssm_norm.weight", "ffn_gate_inp.weight", "exp_probs_b.bias"),
        "output_norm.weight",
    }
    peer = LlamaPeer(tmp_path / "Q4_0.gguf")
    assert len(peer.greedy(PROMPT, 8).tokens) == 8
