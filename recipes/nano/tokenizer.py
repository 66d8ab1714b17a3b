"""The nano tokenizer: byte-level BPE with Nemotron's special-token ids.

The pre-tokenizer is plain GPT-2 ByteLevel, so a GGUF file may declare ``pre="gpt-2"``. Digits are
kept out of the training text: no merge then contains a digit, and every number is spelled digit by
digit.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 4096

UNK, BOS, EOS = "<unk>", "<s>", "</s>"
IM_START, IM_END = "<|im_start|>", "<|im_end|>"
THINK, END_THINK = "<think>", "</think>"
TOOL_CALL, END_TOOL_CALL = "<tool_call>", "</tool_call>"
TOOL_RESPONSE, END_TOOL_RESPONSE = "<tool_response>", "</tool_response>"

SPECIALS = [
    *(UNK, BOS, EOS),
    *(f"<SPECIAL_{i}>" for i in range(3, 10)),
    *(IM_START, IM_END, THINK, END_THINK),
    *(TOOL_CALL, END_TOOL_CALL, TOOL_RESPONSE, END_TOOL_RESPONSE),
    *(f"<SPECIAL_{i}>" for i in range(18, 24)),
]
# Markup that a reasoning or tool parser reads must survive skip_special_tokens=True.
VISIBLE = {THINK, END_THINK, TOOL_CALL, END_TOOL_CALL, TOOL_RESPONSE, END_TOOL_RESPONSE}
MODEL_MAX_LENGTH = 4096


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train the tokenizer on an iterable of text pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[
            AddedToken(s, special=s not in VISIBLE, normalized=False) for s in SPECIALS
        ],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((re.sub(r"\d+", "\n", text) for text in texts), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, template: str) -> None:
    """Write the tokenizer files of a checkpoint folder, the chat template beside them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    added = {
        str(i): {
            "content": s,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": s not in VISIBLE,
        }
        for i, s in enumerate(SPECIALS)
    }
    names = {"bos_token": BOS, "eos_token": IM_END, "unk_token": UNK, "pad_token": UNK}
    config = {
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        **names,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MODEL_MAX_LENGTH,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    _write_json(folder / "tokenizer_config.json", config)
    _write_json(folder / "special_tokens_map.json", names)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
