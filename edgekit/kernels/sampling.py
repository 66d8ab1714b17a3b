"""From logits to tokens on the device, with or without drafted ones.

export/plugins/argmax.cu and sample.cu. What is drawn has the distribution that runtime/sampling.py
defines; penalties, bias and constraints are the CPU's.
"""

from __future__ import annotations

import math
from typing import Literal

from edgekit.errors import BuildError
from edgekit.kernels.launch import Kernel, Launch, Size, defines, float_bits

SLICES = 64
"""Parts of a vocabulary that blocks look through on their own."""

Purpose = Literal["text", "draft"]
"""What numbers are for; those of one are independent of those of the other."""

_PURPOSES: dict[Purpose, int] = {"text": 0, "draft": 2}  # `judge` takes the one behind its own too

MAX_VOCAB = 1 << 19
"""Tokens whose weights' sum fits the kernel's integers."""


def argmax(R: Size, vocab_size: int) -> Launch:
    """The likeliest token of each row, the lowest id of equal ones.

    Arguments: logits [R, V] float32; arrivals, zeros [at least R] int32. Outputs: best [R] int32,
    -1 where the largest logit is NaN or infinite; slices [R, SLICES, 2] int32, for `sample`;
    arrivals, in place.
    """
    kernel = Kernel("argmax.cu", "argmax", defines(SLICES=SLICES))
    return Launch(kernel, grid=(SLICES, R, 1), block=256, integers=(vocab_size,))


def sample(R: Size, vocab_size: int, *, philox: bool) -> Launch:
    """One token of each row, drawn by temperature, top-k, top-p and min-p.

    Arguments: logits [R, V] float32; best and slices, of `argmax`; settings [4] and random, 32-bit
    words: see `sampling_words` and `random_words`, or without `philox` uniform 64-bit numbers
    [R, 2], low half first. Outputs: token [R] int32, -1 as in `argmax`; scratch [R, V] float32.

    Raises:
        BuildError: the vocabulary is larger than MAX_VOCAB.
    """
    return Launch(_drawing("sample", vocab_size, philox), (R, 1, 1), 1024, integers=(vocab_size,))


def judge(R: Size, vocab_size: int, *, philox: bool) -> Launch:
    """What the target makes of drafted tokens that were drawn: each row's token, the drafted one
    where it stays (Leviathan et al. 2023, arXiv:2211.17192).

    Arguments: logits [R, V] float32 with best and slices, of the target; the same of the draft,
    whose last row is not looked at; tokens [R] int32, one before row 0 and R - 1 drafted ones;
    settings and random as for `sample`, which here are two numbers a row [R, 2, 2]. Outputs as
    those of `sample`.

    Raises:
        BuildError: the vocabulary is larger than MAX_VOCAB.
    """
    return Launch(_drawing("judge", vocab_size, philox), (R, 1, 1), 1024, integers=(vocab_size,))


def _drawing(name: str, vocab_size: int, philox: bool) -> Kernel:
    if vocab_size > MAX_VOCAB:
        raise BuildError(
            f"a vocabulary of {vocab_size} tokens cannot be sampled on the device",
            cause=f"the kernel's sums hold {MAX_VOCAB} weights",
            hint="sample on the CPU",
        )
    return Kernel("sample.cu", name, defines(SLICES=SLICES, PHILOX=int(philox)))


def sampling_words(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[int, int, int, int]:
    """The settings of `sample` as uint32 words; temperature 0 is the likeliest token."""
    by = 1.0 / temperature if temperature else math.inf
    share = 0 if top_p == 1.0 else min(max(round(top_p * 2**32), 1), 2**32 - 1)
    return float_bits(by) & 0xFFFFFFFF, top_k, share, float_bits(min_p)


def random_words(seed: int, position: int, purpose: Purpose) -> tuple[int, int, int, int]:
    """What `sample` and `judge` make their numbers of: row i has those of `position` + i.

    Args:
        seed: 64 bits. position: of the row's token in the sequence.
    """
    return seed & 0xFFFFFFFF, seed >> 32, position, _PURPOSES[purpose]
