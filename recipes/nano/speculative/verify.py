"""Accepting drafted tokens so that the output is distributed as without a draft.

Speculative sampling (Leviathan et al. 2023; Chen et al. 2023): token x from the draft's q is kept
with probability min(1, p(x) / q(x)); the first token that is not kept is replaced by a sample of
(p - q)_+ normalised. A draft without probabilities is a q with all its mass on x.
"""

import torch
from torch import Tensor


def accept_greedy(best: Tensor, drafted: Tensor, offered: Tensor) -> tuple[Tensor, Tensor]:
    """(kept [N], next token [N]) of drafted [N, k] against the target's argmax best [N, k + 1].

    offered [N] <= k is how many of the drafted tokens count.
    """
    k = drafted.shape[1]
    within = torch.arange(k, device=drafted.device) < offered[:, None]
    kept = ((drafted == best[:, :k]) & within).long().cumprod(1).sum(1)
    return kept, best.gather(1, kept[:, None])[:, 0]


def accept_sampled(
    p: Tensor, q: Tensor | None, drafted: Tensor, offered: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(kept [N], next token [N]) for target p [N, k + 1, V] and draft q [N, k, V]."""
    count, k = drafted.shape
    picked = drafted[..., None]
    target = p[:, :k].gather(2, picked)[..., 0]
    draft = torch.ones_like(target) if q is None else q.gather(2, picked)[..., 0]
    chance = torch.rand(count, k, device=p.device, dtype=p.dtype, generator=generator)
    within = torch.arange(k, device=p.device) < offered[:, None]
    kept = ((chance * draft < target) & within).long().cumprod(1).sum(1)
    rows = torch.arange(count, device=p.device)
    rest = p[rows, kept]
    refused = kept < offered
    at = kept.clamp(max=k - 1)
    minus = torch.zeros_like(rest).scatter(1, drafted[rows, at][:, None], 1.0)
    if q is not None:
        minus = q[rows, at]
    residual = (rest - minus).clamp(min=0)
    refused = refused & (residual.sum(-1) > 0)
    rest = torch.where(refused[:, None], residual, rest)
    return kept, torch.multinomial(rest, 1, generator=generator)[:, 0]
