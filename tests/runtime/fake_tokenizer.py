"""A small byte-level ChatML tokenizer, trained in the test process."""

from functools import cache
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from edgekit.runtime.tokenizer import Tokenizer

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
VOCAB_SIZE = 320
TEXT = [
    "user assistant system answer Hello hello world, this is a question and this is an answer.",
    "The end of the turn is im_end; the start is im_start. I think so, think twice.",
] * 3


@cache
def _definition() -> str:
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[
            *(AddedToken(text, special=True, normalized=False) for text in SPECIAL),
            *(AddedToken(text, special=False, normalized=False) for text in MARKUP),
        ],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(TEXT, trainer)
    return inner.to_str()


def inner_tokenizer() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(_definition())


def make_tokenizer() -> Tokenizer:
    inner = inner_tokenizer()
    return Tokenizer(inner, (inner.token_to_id("</s>"), inner.token_to_id("<|im_end|>")))


def save_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(_definition())
