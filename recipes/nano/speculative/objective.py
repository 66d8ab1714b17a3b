"""Anchors of a batch and the loss of a draft behind them.

Published DSpark objective: 0.1 CE + 0.9 |p_draft - p_target|_1, slot k weighted exp(-k / 4), on
random anchors, only as far as the tokens behind the anchor are supervised without a gap. The total
variation term is the acceptance itself: under rejection sampling a draft token is kept with
probability sum_v min(p_draft, p_target) = 1 - |p_draft - p_target|_1 / 2.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.recipes.nano.speculative.target import Features

SLOT_DECAY = 4.0


@dataclass(frozen=True, slots=True)
class Anchors:
    """Anchors [B, A], the tokens behind them and the weight of each slot, both [B, A, slots]."""

    positions: Tensor
    labels: Tensor
    weights: Tensor


def choose_anchors(tokens: Tensor, supervised: Tensor, count: int, slots: int) -> Anchors:
    """Random anchors whose own token and next token are supervised (tokens, mask: [B, T])."""
    usable = supervised[:, :-1] & supervised[:, 1:]
    usable = functional.pad(usable, (0, 1))
    usable[:, 0] = False  # nothing before the first token to draft from
    scores = torch.where(usable, torch.rand(usable.shape, device=tokens.device), -1.0)
    best, positions = scores.topk(min(count, tokens.shape[1]), dim=1)
    kept = best >= 0
    positions = positions.where(kept, torch.ones_like(positions))
    behind = positions[..., None] + 1 + torch.arange(slots, device=tokens.device)
    inside = behind < tokens.shape[1]
    behind = behind.clamp(max=tokens.shape[1] - 1).flatten(1)
    labels = tokens.gather(1, behind).view(*positions.shape, slots)
    run = supervised.gather(1, behind).view(*positions.shape, slots) & inside & kept[..., None]
    decay = torch.exp(-torch.arange(slots, device=tokens.device) / SLOT_DECAY)
    return Anchors(positions, labels, run.cumprod(-1) * decay)


@torch.no_grad()
def target_logits(features: Features, lm_head: nn.Module, anchors: Anchors) -> Tensor:
    """The target's logits [B, A, slots, V] for the slots: of rows anchor, anchor + 1, ..."""
    slots = anchors.labels.shape[-1]
    rows = anchors.positions[..., None] + torch.arange(slots, device=anchors.positions.device)
    rows = rows.clamp(max=features.hidden.shape[1] - 1).flatten(1)
    hidden = features.hidden.gather(1, rows[..., None].expand(-1, -1, features.hidden.shape[-1]))
    out: Tensor = lm_head(hidden)
    return out.view(*anchors.labels.shape, -1)


def draft_loss(
    logits: Tensor, wanted: Tensor, anchors: Anchors, distill: float = 0.9
) -> tuple[Tensor, Tensor]:
    """(loss, acceptance [slots]) of draft logits [B, A, slots, V] against the target's logits.

    ``distill`` is the share of the L1 term; 0 is DFlash's plain cross-entropy. The draft may have
    fewer slots than the anchors.
    """
    slots = logits.shape[2]
    weights, labels = anchors.weights[..., :slots], anchors.labels[..., :slots]
    own = logits.float()
    loss = (1 - distill) * functional.cross_entropy(
        own.flatten(0, 2), labels.flatten(), reduction="none"
    ).view(labels.shape)
    gap = (own.softmax(-1) - wanted[:, :, :slots].float().softmax(-1)).abs().sum(-1)
    if distill:
        loss = loss + distill * gap
    total = weights.sum().clamp(min=1e-6)
    with torch.no_grad():
        live = (weights > 0).float()
        kept = ((1 - gap / 2) * live).sum((0, 1)) / live.sum((0, 1)).clamp(min=1.0)
    return (loss * weights).sum() / total, kept


def expected_length(acceptance: Tensor) -> float:
    """1 + sum of the products of per-slot acceptances: a quick estimate of tokens a round."""
    return 1.0 + math.fsum(acceptance.cumprod(0).tolist())
