"""What a draft sees of the frozen target: the last hidden state and taps of the residual stream."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgekit.recipes.nano.model import NemotronH


@dataclass(frozen=True, slots=True)
class Features:
    """Rows of the target, one for every token it has read.

    hidden: [B, T, hidden] after the last norm, what the MTP head continues from.
    taps: [B, T, taps * hidden], the residual stream after each tapped layer, side by side.
    """

    hidden: Tensor
    taps: Tensor


def tap_layers(depth: int, count: int) -> tuple[int, ...]:
    """``count`` layer indices spread from the second layer to the last, as NVIDIA's draft does."""
    return tuple(round(1 + i * (depth - 2) / (count - 1)) for i in range(count))


def _keeper(into: dict[int, Tensor], index: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        into[index] = inputs[0]

    return keep


@torch.no_grad()
def read_target(model: NemotronH, tokens: Tensor, layers: tuple[int, ...]) -> Features:
    """Run the target over tokens [B, T].

    A tap after layer i is what layer i + 1 receives before its norm; after the last layer it is the
    input of the final norm (never its output).
    """
    norms = [block.get_submodule("norm") for block in model.backbone.layers]
    norms.append(model.backbone.norm_f)
    seen: dict[int, Tensor] = {}
    hooks = [norms[i + 1].register_forward_pre_hook(_keeper(seen, i)) for i in layers]
    try:
        hidden = model.hidden(tokens)[0]
    finally:
        for hook in hooks:
            hook.remove()
    return Features(hidden, torch.cat([seen[i] for i in layers], dim=-1))
