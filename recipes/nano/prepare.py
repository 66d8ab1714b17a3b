"""Train the tokenizer and write everything that training reads.

    python -m edgekit.recipes.nano.prepare --data DIR [--checkpoint DIR] [--tokenizer FILE]

DIR holds docs.txt and docs.heldout.txt (see ``corpus.py``); docs.bin is written beside them. The
checkpoint folder receives the tokenizer, the chat template, the configs and random weights.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import torch
from tokenizers import Tokenizer

from edgekit.recipes.nano.chat import TEMPLATE, segments
from edgekit.recipes.nano.checkpoint import save_checkpoint
from edgekit.recipes.nano.data import conversation
from edgekit.recipes.nano.model import NanoConfig, NemotronH
from edgekit.recipes.nano.tokenizer import EOS, SPECIALS, save_tokenizer, train_tokenizer

CHECKPOINT = Path(__file__).with_name("checkpoint")
CHATS = 24_000
DOCS_STRIDE = 5


def tokenizer_texts(docs: str, seed: int) -> Iterator[str]:
    """About equal parts of documentation and conversations."""
    yield from docs.split("\n")[::DOCS_STRIDE]
    rng = Random(seed)
    for _ in range(CHATS):
        for text, weight in segments(conversation(rng)):
            if weight or len(text) < 400 or rng.random() < 0.1:
                for special in SPECIALS:
                    text = text.replace(special, "\n")
                yield text


def encode_documents(
    tokenizer: Tokenizer, docs: str
) -> "np.ndarray[tuple[int], np.dtype[np.uint16]]":
    """All documents in one array, each closed by </s>."""
    end = tokenizer.token_to_id(EOS)
    encodings = tokenizer.encode_batch(docs.split("\n\n"))
    return np.concatenate([np.array([*e.ids, end], dtype=np.uint16) for e in encodings])


def main() -> None:
    """Prepare the data folder and a checkpoint folder with random weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--tokenizer", type=Path, help="use this one instead of training one")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    docs = (args.data / "docs.txt").read_text(encoding="utf-8")
    if args.tokenizer:
        tokenizer = Tokenizer.from_file(str(args.tokenizer))
    else:
        tokenizer = train_tokenizer(tokenizer_texts(docs, args.seed))
    torch.manual_seed(args.seed)
    save_checkpoint(NemotronH(NanoConfig()), args.checkpoint)
    save_tokenizer(tokenizer, args.checkpoint, TEMPLATE.read_text(encoding="utf-8"))
    ids = encode_documents(tokenizer, docs)
    ids.tofile(args.data / "docs.bin")
    print(f"{len(ids) / 1e6:.2f} M tokens, {len(docs) / len(ids):.2f} characters a token")


if __name__ == "__main__":
    main()
