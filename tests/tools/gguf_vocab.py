"""The vocabulary section of a test GGUF: a byte-level BPE tokenizer.json, or a stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf


def add_vocabulary(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    """Add tokens, merges, special ids and the chat template of `folder` to a GGUF.

    `tokenizer.ggml.pre` is "gpt-2": right for a ByteLevel tokenizer with the GPT-2 split and no
    prefix space. With no tokenizer.json, each id from 3 on gets one character as its text,
    so that no token is half a UTF-8 sequence.
    """
    size = config["vocab_size"]
    source = folder / "tokenizer.json"
    if source.exists():
        tokens, types, merges = _from_tokenizer(json.loads(source.read_text()), size)
    else:
        tokens, types, merges = _stand_in(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    eos = config["eos_token_id"]
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(eos[-1] if isinstance(eos, list) else eos)
    template = _chat_template(folder)
    if template is not None:
        writer.add_chat_template(template)


def byte_tokens() -> list[str]:
    """The 256 byte-level token texts: printable Latin-1 as itself, the rest from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    texts: list[str] = []
    shifted = 0x100
    for byte in range(256):
        if byte in printable:
            texts.append(chr(byte))
        else:
            texts.append(chr(shifted))
            shifted += 1
    return texts


def stand_in_text(index: int) -> str:
    """The text of stand-in token `index` (>= 3): ASCII first, then CJK, a character a token."""
    character = index - 3
    return chr(character if character < 0x80 else 0x4E00 + character - 0x80)


def _stand_in(size: int) -> tuple[list[str], list[int], list[str]]:
    symbols = byte_tokens()
    texts = [
        "".join(symbols[byte] for byte in stand_in_text(index).encode()) for index in range(3, size)
    ]
    types = [int(gguf.TokenType.CONTROL)] * 3 + [int(gguf.TokenType.NORMAL)] * len(texts)
    # llama.cpp refuses a file with no merges; this one's result is in no vocabulary.
    return ["<unk>", "<s>", "</s>", *texts], types, ["! !"]


def _from_tokenizer(data: dict[str, Any], size: int) -> tuple[list[str], list[int], list[str]]:
    if data["model"]["type"] != "BPE":
        raise ValueError(f"tokenizer.json holds a {data['model']['type']} model, expected BPE")
    texts = {index: text for text, index in data["model"]["vocab"].items()}
    kinds = dict.fromkeys(texts, int(gguf.TokenType.NORMAL))
    for added in data.get("added_tokens", []):
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        texts[added["id"]] = added["content"]
        kinds[added["id"]] = int(kind)
    tokens = [texts.get(index, f"[PAD{index}]") for index in range(size)]
    types = [kinds.get(index, int(gguf.TokenType.UNUSED)) for index in range(size)]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in data["model"]["merges"]]
    return tokens, types, merges


def _chat_template(folder: Path) -> str | None:
    plain = folder / "chat_template.jinja"
    if plain.exists():
        return plain.read_text()
    settings = folder / "tokenizer_config.json"
    if settings.exists():
        template = json.loads(settings.read_text()).get("chat_template")
        return template if isinstance(template, str) else None
    return None
