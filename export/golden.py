"""Computes a bundle's golden logits with the NumPy reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.export.reference import ReferenceSession
from edgekit.golden import TOP_K, Golden, GoldenRow
from edgekit.model import ModelSpec


def compute_golden(
    model: ir.Model,
    spec: ModelSpec,
    n_tokens: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> Golden:
    """Runs a canonical step graph over a fixed pseudo-random prompt.

    Every token id is as likely as any other, so the prompt reaches experts and state values that
    text of one language would not.

    Args:
        on_progress: called with (nodes done, nodes in all).
    """
    ids = np.random.default_rng(0).integers(0, spec.vocab_size, n_tokens).tolist()
    session = ReferenceSession(model, spec, n_tokens)
    logits = session.step(ids, on_progress=on_progress)["logits"]
    rows = []
    for row in logits:
        best = np.argsort(-row, kind="stable")[:TOP_K]
        rows.append(GoldenRow(tuple(best.tolist()), tuple(round(float(row[i]), 6) for i in best)))
    return Golden(tuple(ids), tuple(rows))
