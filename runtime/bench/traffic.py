"""Bytes that a model moves and operations that it does, from the manifest and the dimensions.

A token reads every weight once, of the routed experts the chosen ones; it reads and writes the
convolution and SSM state, and reads the KV rows before it. Activations are left out, and so is the
embedding's row. Operations are those of the matrices: a multiplication and an addition a weight.
"""

from __future__ import annotations

import math

import numpy as np

from edgekit.bundle import Bundle
from edgekit.parameters import count_parameters


def token_bytes(bundle: Bundle, length: float) -> float:
    """Bytes of one plain step behind `length` tokens."""
    return chunk_bytes(bundle, 1, length)


def chunk_bytes(bundle: Bundle, tokens: int, length: float) -> float:
    """Bytes of one step of some tokens behind `length` others.

    How many experts they choose together is expected from even odds: of n with k a token, each is
    left out by T tokens with probability (1 - k/n)^T.
    """
    manifest, spec = bundle.manifest, bundle.spec
    chosen = 1.0
    if spec.n_routed_experts:
        chosen = 1 - (1 - spec.num_experts_per_tok / spec.n_routed_experts) ** tokens
    weights = manifest.weight_bytes - manifest.expert_bytes * (1 - chosen)
    recurrent = sum(_nbytes(s.shape, s.dtype) for s in manifest.target.state if s.kind != "cache")
    row = sum(_nbytes(s.shape, s.dtype) for s in manifest.target.state if s.kind == "cache")
    return weights + 2 * recurrent + row / manifest.context * length


def token_operations(bundle: Bundle) -> float:
    """Operations of one token."""
    spec = bundle.spec
    matrices = dict(count_parameters(spec).matrices)
    del matrices["embedding"]
    if spec.n_routed_experts:
        matrices["routed"] = matrices["routed"] * spec.num_experts_per_tok // spec.n_routed_experts
    return 2.0 * sum(matrices.values())


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    # ml_dtypes' names are no NumPy names until something registers them.
    size = {"bfloat16": 2, "float8_e4m3fn": 1}.get(dtype) or np.dtype(dtype).itemsize
    return math.prod(shape) * size
