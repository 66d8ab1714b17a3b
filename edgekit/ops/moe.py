"""MoeRoute and MoeExperts: sigmoid routing with a correction bias, squared-ReLU experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import F32, WeightFormat, dequantize


def moe_route(
    x: F32,
    gate_weight: npt.NDArray[Any],
    correction_bias: npt.NDArray[Any],
    *,
    top_k: int,
    n_group: int,
    topk_group: int,
    norm_topk_prob: bool,
    routed_scaling_factor: float,
) -> tuple[F32, npt.NDArray[np.int64]]:
    """Chooses top_k experts for each token (DeepSeek-V3's router, arXiv:2412.19437 section 2.1).

    Scores are sigmoid(x gate^T) in float32. The correction bias takes part in the choice only,
    not in the weights. With groups, only the topk_group groups whose two best biased scores sum
    highest can be chosen from.

    Args:
        x: [T, H]. gate_weight: [E, H]. correction_bias: [E].

    Returns:
        weights [T, top_k] and expert indices [T, top_k], best first.
    """
    T, E = x.shape[0], gate_weight.shape[0]
    scores = 1.0 / (1.0 + np.exp(-(x @ gate_weight.astype(np.float32).T)))
    biased = scores + correction_bias.astype(np.float32)
    if n_group > 1:
        grouped = biased.reshape(T, n_group, E // n_group)
        best = np.sort(grouped, axis=-1)[:, :, -2:].sum(axis=-1)  # [T, n_group]
        chosen = np.argsort(-best, axis=-1, kind="stable")[:, :topk_group]
        allowed = np.zeros((T, n_group), dtype=bool)
        np.put_along_axis(allowed, chosen, True, axis=1)
        biased = np.where(np.repeat(allowed, E // n_group, axis=1), biased, -np.inf)
    indices = np.argsort(-biased, axis=-1, kind="stable")[:, :top_k]
    weights = np.take_along_axis(scores, indices, axis=-1)
    if norm_topk_prob:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + np.float32(1e-20))
    return (weights * np.float32(routed_scaling_factor)).astype(np.float32), indices


def moe_experts(
    x: F32,
    weights: F32,
    indices: npt.NDArray[np.int64],
    up: Sequence[npt.NDArray[Any]],
    down: Sequence[npt.NDArray[Any]],
    *,
    up_format: WeightFormat = "dense",
    down_format: WeightFormat = "dense",
) -> F32:
    """The weighted sum of the chosen experts: sum_k w_k down_k(relu(up_k x)^2).

    Args:
        x: [T, H]. weights, indices: [T, top_k].
        up, down: their formats' parts of [E, I, H] and of [E, H, I].

    Returns:
        [T, H].
    """
    out = np.zeros_like(x)
    for e in np.unique(indices):
        tokens, slots = np.nonzero(indices == e)
        up_e = dequantize(up_format, *(part[e] for part in up))
        down_e = dequantize(down_format, *(part[e] for part in down))
        hidden = np.square(np.maximum(x[tokens] @ up_e.T, 0))
        out[tokens] += weights[tokens, slots, None] * (hidden @ down_e.T)
    return out
