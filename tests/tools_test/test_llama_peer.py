"""llama.cpp and transformers agree, token by token, on random checkpoints written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.gguf_vocab import byte_tokens
from tests.tools.gguf_writer import write_gguf
from tests.tools.hf_reference import HfReference
from tests.tools.llama_peer import LlamaPeer
from tests.tools.random_checkpoint import write_random_checkpoint

PROMPT = [3, 17, 42, 5, 200, 1, 9]
NEAR_TIE = 1e-3
TOKENS = 32


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
    assert len(got.tokens) == TOKENS
    for position, (a, b, margin) in enumerate(
        zip(got.tokens, want.tokens, want.margins, strict=True)
    ):
        if margin <= NEAR_TIE:
            print(f"near-tie at {position}: {got.top[position][:2]}, margin {margin:.1e}")
        if a != b:
            assert margin <= NEAR_TIE, f"position {position}: llama.cpp {a}, transformers {b}"
            assert position >= 24, "a near-tie split the texts too early to compare"
            break
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
