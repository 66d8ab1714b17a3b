"""DSpark in NVIDIA's published layout: a causal block over target features, and a Markov head.

One pass drafts a whole block. Row 0 of the block is the anchor and the other rows are mask tokens;
row j predicts the token at its own position (``sample_from_anchor=false``). The rows attend to the
target's features of earlier positions and to the block so far, within a sliding window, with one
sink logit a head. The Markov head then corrects each row by the token before it, left to right.
Embedding and lm_head are the target's. Source: DSpark paper (DeepSeek, 2026); tensors as in the
DSpark draft of Nemotron 3.5 Lightning.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.recipes.nano.model import NemotronH, RmsNorm
from edgekit.recipes.nano.speculative.config import DraftConfig
from edgekit.recipes.nano.speculative.drafting import Choose
from edgekit.recipes.nano.speculative.target import Features

KeysValues = tuple[Tensor, Tensor]  # [B, kv heads, T, head_dim] each


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Half-rotation RoPE of x [B, heads, T, D] at positions [B, T]."""
    half = x.shape[-1] // 2
    exponents = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angle = positions[:, None, :, None].float() * theta**-exponents
    cos, sin = angle.cos(), angle.sin()
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def block_mask(anchors: Tensor, rows: int, context: int, config: DraftConfig) -> Tensor:
    """Which keys each block row sees: [B, A, rows, context + rows].

    Context keys lie before the anchor; block keys are the own block, up to the row when causal.
    The window keeps key_position > row_position - sliding_window in both.
    """
    offsets = torch.arange(rows, device=anchors.device)
    keys = torch.arange(context, device=anchors.device)
    start = anchors[..., None, None]
    seen = (keys < start).expand(-1, -1, rows, -1)
    own = torch.ones(rows, rows, dtype=torch.bool, device=anchors.device)
    if config.causal:
        own = own.tril()
    if config.sliding_window is not None:
        oldest = offsets[:, None] - config.sliding_window
        seen = seen & (keys > start + oldest)
        own = own & (offsets > oldest)
    return torch.cat([seen, own.expand(*anchors.shape, -1, -1)], dim=-1)


class DraftAttention(nn.Module):
    """Qwen3 attention (grouped queries, normed heads, RoPE) with a sink logit a head."""

    attention_sink_bias: nn.Parameter | None

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        width = config.num_attention_heads * config.head_dim
        kv_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = RmsNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RmsNorm(config.head_dim, config.rms_norm_eps)
        sinks = nn.Parameter(torch.zeros(config.num_attention_heads))
        self.register_parameter(
            "attention_sink_bias", sinks if config.attention_sink_bias else None
        )

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.config.head_dim).transpose(1, 2)

    def keys_values(self, x: Tensor, positions: Tensor) -> KeysValues:
        """Keys and values of x [B, T, hidden]; for context rows no other norm is applied."""
        keys = self.k_norm(self._heads(self.k_proj(x)))
        return rotate(keys, positions, self.config.rope_theta), self._heads(self.v_proj(x))

    def forward(self, x: Tensor, positions: Tensor, context: KeysValues, mask: Tensor) -> Tensor:
        """x: normed rows [B, A * rows, hidden] of A blocks; mask: [B, A, rows, T + rows]."""
        config = self.config
        batch, count, rows, width = mask.shape
        shape = (batch, config.num_key_value_heads, -1, count, rows)  # queries by kv head
        q = rotate(self.q_norm(self._heads(self.q_proj(x))), positions, config.rope_theta)
        keys, values = self.keys_values(x, positions)
        # Context keys serve all queries of their head: folding these into rows avoids copies.
        past = q.view(batch, config.num_key_value_heads, -1, config.head_dim)
        past = past @ context[0].transpose(-1, -2)
        blocks = (*keys.shape[:2], 1, count, rows, config.head_dim)
        own = q.view(*shape, config.head_dim) @ keys.view(blocks).transpose(-1, -2)
        scores = torch.cat([past.view(*shape, width - rows), own], dim=-1).float()
        scores = scores / math.sqrt(config.head_dim)
        scores = scores.masked_fill(~mask[:, None, None], -math.inf)
        if self.attention_sink_bias is not None:
            sinks = self.attention_sink_bias.float().view(
                1, config.num_key_value_heads, -1, 1, 1, 1
            )
            scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], dim=-1)
        weights = scores.softmax(-1).to(values.dtype)
        past = weights[..., : width - rows].flatten(2, 4) @ context[1]
        own = weights[..., width - rows : width] @ values.reshape(blocks)
        y = (past.view(own.shape) + own).view(
            batch, config.num_attention_heads, -1, config.head_dim
        )
        return cast(Tensor, self.o_proj(y.transpose(1, 2).flatten(2)))


class DraftMlp(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """down(silu(gate x) * up x)."""
        return cast(Tensor, self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x)))


class DraftLayer(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DraftAttention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = DraftMlp(config)

    def forward(self, x: Tensor, positions: Tensor, context: KeysValues, mask: Tensor) -> Tensor:
        """x: [B, R, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), positions, context, mask)
        return cast(Tensor, x + self.mlp(self.post_attention_layernorm(x)))


class MarkovHead(nn.Module):
    """Low-rank bigram logits W2 W1[previous token]."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab_size, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.vocab_size, bias=False)
        nn.init.zeros_(self.markov_w2.weight)

    def forward(self, previous: Tensor) -> Tensor:
        """Logits [..., V] of tokens [...]."""
        return cast(Tensor, self.markov_w2(self.markov_w1(previous)))


class DSpark(nn.Module):
    """The draft; ``markov_rank=0`` leaves the head out, ``causal=False`` gives DFlash's block."""

    markov_head: MarkovHead | None

    def __init__(self, config: DraftConfig, target: NemotronH) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm = RmsNorm(hidden, config.rms_norm_eps)
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(hidden, config.rms_norm_eps)
        self.markov_head = MarkovHead(config) if config.markov_rank else None
        # In a tuple, so that the target's weights are no part of this module.
        self.shared = (target.backbone.embeddings, target.lm_head)
        with torch.no_grad():  # the scale that the target's lm_head expects
            self.norm.weight.copy_(target.backbone.norm_f.weight)

    def context(self, taps: Tensor, start: int = 0) -> list[KeysValues]:
        """Keys and values by layer of target rows [B, T, taps * hidden] at positions start..."""
        rows = self.hidden_norm(self.fc(taps))
        positions = torch.arange(start, start + taps.shape[1], device=taps.device)
        positions = positions.expand(taps.shape[0], -1)
        return [cast(DraftLayer, x).self_attn.keys_values(rows, positions) for x in self.layers]

    def block(
        self, anchor_tokens: Tensor, anchors: Tensor, context: list[KeysValues], slots: int
    ) -> Tensor:
        """Hidden states [B, A, slots, hidden] of the mask rows behind anchors [B, A].

        A causal block may be cut after the last wanted row; a bidirectional one may not.
        """
        config = self.config
        batch, count = anchors.shape
        rows = slots + 1 if config.causal else config.block_size
        ids = anchor_tokens.new_full((batch, count, rows), config.mask_token_id)
        ids[..., 0] = anchor_tokens
        offsets = torch.arange(rows, device=anchors.device)
        positions = (anchors[..., None] + offsets).flatten(1)
        mask = block_mask(anchors, rows, context[0][0].shape[2], config)
        x = self.shared[0](ids.flatten(1))
        for layer, keys_values in zip(self.layers, context, strict=True):
            x = layer(x, positions, keys_values, mask)
        z = cast(Tensor, self.norm(x))
        return z.view(batch, count, rows, -1)[:, :, 1 : slots + 1]

    def draft(
        self, features: Features, tokens: Tensor, anchors: Tensor, slots: int, choose: Choose
    ) -> Tensor:
        """Logits [B, A, slots, V]: U_k + W2 W1[x_{k-1}], x_0 the anchor."""
        previous = tokens.gather(1, anchors)
        rows = self.block(previous, anchors, self.context(features.taps), slots)
        base = self.shared[1](rows)
        if self.markov_head is None:
            for slot in range(slots):
                choose(slot, base[:, :, slot])
            return cast(Tensor, base)
        out = []
        for slot in range(slots):
            logits = base[:, :, slot] + self.markov_head(previous)
            out.append(logits)
            previous = choose(slot, logits)
        return torch.stack(out, dim=2)
