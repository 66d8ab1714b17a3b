"""The MTP head in Lightning's tensor layout: an attention and a MoE block, applied repeatedly.

    x = eh_proj [enorm(embed(next token)); hnorm(h)]      h: the target's hidden state after norm_f
    x = x + attention(norm_0(x));  x = x + moe(norm_1(x));  m = final_layernorm(x)
    logits = lm_head(m);  the next step takes h := m

Implementations disagree whether final_layernorm subtracts the mean (llama.cpp, TensorRT-Edge-LLM)
or not (vLLM). Every matrix that writes into x is kept free of its column mean here, so x has zero
mean and both readings give the same result.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from edgekit.recipes.nano.model import Attention, Moe, NanoConfig, NemotronH, RmsNorm
from edgekit.recipes.nano.speculative.drafting import Choose
from edgekit.recipes.nano.speculative.target import Features


class Fusion(nn.Module):
    """``mtp.layers.0``: joins the next token's embedding with the hidden state, then attends."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.layer_norm_epsilon
        self.enorm = RmsNorm(hidden, eps)
        self.hnorm = RmsNorm(hidden, eps)
        self.norm = RmsNorm(hidden, eps)
        self.eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.mixer = Attention(config)

    def join(self, embedding: Tensor, hidden: Tensor) -> Tensor:
        """eh_proj [enorm(e); hnorm(h)] of rows [B, R, hidden]."""
        both = torch.cat([self.enorm(embedding), self.hnorm(hidden)], dim=-1)
        return cast(Tensor, self.eh_proj(both))

    def queries(self, x: Tensor) -> Tensor:
        """Queries [B, kv, group, R, D] of rows x; there are no positions."""
        config = self.mixer.config
        q = self.mixer.q_proj(self.norm(x)).unflatten(-1, (-1, config.head_dim)).transpose(1, 2)
        return cast(Tensor, q.unflatten(1, (config.num_key_value_heads, -1)))

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv, R, D] of rows x."""
        u = self.norm(x)
        k, v = (
            p(u).unflatten(-1, (-1, self.mixer.config.head_dim)).transpose(1, 2)
            for p in (self.mixer.k_proj, self.mixer.v_proj)
        )
        return k, v


class Mixture(nn.Module):
    """``mtp.layers.1``: the mixture of experts and the norm before lm_head."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.norm = RmsNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mixer = Moe(config)
        self.final_layernorm = RmsNorm(config.hidden_size, config.layer_norm_epsilon)


class Mtp(nn.Module):
    """The head; ``loads`` counts the tokens of each expert since it was last cleared."""

    def __init__(self, target: NemotronH) -> None:
        super().__init__()
        config = target.config
        self.config = config
        self.first = Fusion(config)
        self.second = Mixture(config)
        self.shared = (target.backbone.embeddings, target.lm_head)
        self.loads: Tensor | None = None
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                scale = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(p, std=0.5 * scale * p.shape[-1] ** -0.5)
        with torch.no_grad():
            self.second.final_layernorm.weight.copy_(target.backbone.norm_f.weight)
        self.centre()

    @torch.no_grad()
    def centre(self) -> None:
        """Remove the mean over output features from every matrix that writes into x."""
        for name, p in self.named_parameters():
            if name.endswith(("eh_proj.weight", "o_proj.weight", "down_proj.weight", "down_proj")):
                p.sub_(p.mean(dim=-2, keepdim=True))

    @torch.no_grad()
    def balance(self, rate: float) -> None:
        """Move the router's correction bias towards an even load, and clear the loads."""
        if self.loads is not None:
            bias = cast(Tensor, self.second.mixer.gate.e_score_correction_bias)
            bias += rate * torch.sign(self.loads.mean() - self.loads)
            bias -= bias.mean()
        self.loads = None

    def _finish(self, x: Tensor) -> Tensor:
        y, loads = self.second.mixer(self.second.norm(x))
        self.loads = loads if self.loads is None else self.loads + loads
        return cast(Tensor, self.second.final_layernorm(x + y))

    def draft(
        self, features: Features, tokens: Tensor, anchors: Tensor, slots: int, choose: Choose
    ) -> Tensor:
        """Logits [B, A, slots, V].

        Row t joins the token at t + 1 with the target's hidden state of t. The first step is row
        anchor - 1; it attends to all rows up to itself. Each later step adds a row of its own, seen
        only by the steps after it, exactly as decoding with a cache does.
        """
        embed, lm_head = self.shared
        rows = self.first.join(embed(tokens[:, 1:]), features.hidden[:, :-1])  # [B, T-1, hidden]
        keys, values = self.first.keys_values(rows)
        last = anchors - 1  # [B, A]
        seen = torch.arange(rows.shape[1], device=rows.device) <= last[..., None]  # [B, A, T-1]
        x = rows.gather(1, last[..., None].expand(-1, -1, rows.shape[-1]))
        own: list[tuple[Tensor, Tensor]] = []  # keys and values [B, kv, A, D] of the later steps
        out = []
        for slot in range(slots):
            x = x + self._attend(self.first.queries(x), keys, values, seen, own)
            hidden = self._finish(x)
            logits = lm_head(hidden)
            out.append(logits)
            token = choose(slot, logits)
            if slot + 1 < slots:
                x = self.first.join(embed(token), hidden)
                own.append(self.first.keys_values(x))
        return torch.stack(out, dim=2)

    def _attend(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        seen: Tensor,
        own: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Attention [B, A, hidden] of q [B, kv, group, A, D] to the seen rows and to own steps."""
        scores = (q @ keys.transpose(-1, -2).unsqueeze(2)).float()  # [B, kv, group, A, T-1]
        scores = scores.masked_fill(~seen[:, None, None], -math.inf)
        mine = [(q * k.unsqueeze(2)).float().sum(-1, keepdim=True) for k, _ in own]
        scale = self.config.head_dim**-0.5
        weights = torch.softmax(torch.cat([scores, *mine], dim=-1) * scale, dim=-1)
        weights = weights.to(values.dtype)
        y = weights[..., : values.shape[2]] @ values.unsqueeze(2)
        for i, (_, v) in enumerate(own):
            y = y + weights[..., values.shape[2] + i, None] * v.unsqueeze(2)
        y = y.flatten(1, 2).transpose(1, 2).flatten(2)
        return cast(Tensor, self.first.mixer.o_proj(y))
