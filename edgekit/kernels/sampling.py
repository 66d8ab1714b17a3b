"""From logits to tokens on the device, and how many drafted ones to keep.

export/plugins/argmax.cu and sample.cu. What is drawn has the distribution that runtime/sampling.py
defines; penalties, bias and constraints are the CPU's.
"""

from __future__ import annotations

import math

from edgekit.errors import BuildError
from edgekit.kernels.launch import Kernel, Launch, Size, defines, float_bits

SLICES = 64
"""Parts of a vocabulary that blocks look through on their own."""

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

    Arguments: logits [R, V] float32; best and slices, of `argmax`; settings [4], see
    `sampling_words`; random, uint32: uniform 64-bit numbers [R, 2], low half first, or with
    `philox` a seed's two halves and the first row's position [3]. Outputs: token [R] int32, -1 as
    in `argmax`; scratch [R, V] float32.

    Raises:
        BuildError: the vocabulary is larger than MAX_VOCAB.
    """
    if vocab_size > MAX_VOCAB:
        raise BuildError(
            f"a vocabulary of {vocab_size} tokens cannot be sampled on the device",
            cause=f"the kernel's sums hold {MAX_VOCAB} weights",
            hint="sample on the CPU",
        )
    kernel = Kernel("sample.cu", "sample", defines(SLICES=SLICES, PHILOX=int(philox)))
    return Launch(kernel, grid=(R, 1, 1), block=1024, integers=(vocab_size,))


def accept(T: Size) -> Launch:
    """How much of a verify step of T = 1..8 tokens stays, for drafts that were not drawn at random.

    Arguments: tokens [T] int32, the first certain and the others drafted; chosen [T] int32, what
    `argmax` or `sample` made of each token's logits. Outputs: n [1] int32, tokens to commit: the
    first and the drafted ones before the first that was not chosen; next [1] int32, the token after
    them.
    """
    kernel = Kernel("argmax.cu", "accept", defines(SLICES=SLICES))
    return Launch(kernel, grid=(1, 1, 1), block=32, integers=(T,))


def sampling_words(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[int, int, int, int]:
    """The settings of `sample` as uint32 words; temperature 0 is the likeliest token."""
    by = 1.0 / temperature if temperature else math.inf
    share = 0 if top_p == 1.0 else min(max(round(top_p * 2**32), 1), 2**32 - 1)
    return float_bits(by) & 0xFFFFFFFF, top_k, share, float_bits(min_p)
