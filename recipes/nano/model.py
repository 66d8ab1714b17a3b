"""NemotronH in plain torch: Mamba-2, attention without positions, and a mixture of relu2 experts.

One forward serves training, chunked prefill and decoding; a ``Cache`` carries conv, SSM and KV
state. Parameter names are the official checkpoint's, except that the experts of a layer are
stacked (``checkpoint.py`` splits them).
"""

import math
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class NanoConfig:
    """Dimensions of a NemotronH model, named as in ``config.json``."""

    hybrid_override_pattern: str = "MEMEM*EMEMEM*E"
    hidden_size: int = 256
    vocab_size: int = 4096
    mamba_num_heads: int = 8
    mamba_head_dim: int = 64
    ssm_state_size: int = 128
    n_groups: int = 2
    conv_kernel: int = 4
    chunk_size: int = 128
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    n_routed_experts: int = 16
    num_experts_per_tok: int = 4
    n_shared_experts: int = 1
    moe_intermediate_size: int = 64
    moe_shared_expert_intermediate_size: int = 128
    routed_scaling_factor: float = 2.5
    layer_norm_epsilon: float = 1e-5
    time_step_min: float = 0.001
    time_step_max: float = 0.1
    max_position_embeddings: int = 4096

    @property
    def d_inner(self) -> int:
        """Width of the Mamba branch."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the causal convolution: x, B and C."""
        return self.d_inner + 2 * self.n_groups * self.ssm_state_size


@dataclass(slots=True)
class Cache:
    """Recurrent and key/value state by layer index; ``length`` tokens have been read."""

    length: int = 0
    conv: dict[int, Tensor] = field(default_factory=dict)  # [B, conv_dim, K-1]
    ssm: dict[int, Tensor] = field(default_factory=dict)  # [B, heads, head_dim, state], fp32
    kv: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # [B, kv heads, T, head_dim]


def fold(x: Tensor, *shape: int) -> Tensor:
    """Split the last dimension."""
    return x.reshape(*x.shape[:-1], *shape)


def by_group(x: Tensor, groups: int) -> Tensor:
    """Split the heads of [B, C, H, ...] into [B, C, groups, H / groups, ...]."""
    return x.reshape(*x.shape[:2], groups, x.shape[2] // groups, *x.shape[3:])


class RmsNorm(nn.Module):
    """RMS normalisation in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).to(x.dtype)


class GatedGroupNorm(nn.Module):
    """Gate with silu(z) first, then RMS-normalise each group."""

    def __init__(self, size: int, groups: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.groups = groups
        self.eps = eps

    def forward(self, y: Tensor, z: Tensor) -> Tensor:
        """y, z: [B, T, d_inner]."""
        g = fold(y.float() * functional.silu(z.float()), self.groups, -1)
        g = g * torch.rsqrt(g.square().mean(-1, keepdim=True) + self.eps)
        out: Tensor = g.flatten(-2) * self.weight.float()
        return out.to(z.dtype)


def ssd(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk: int, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Chunked state-space dual form of S_t = exp(dt a) S + dt x B^T, y_t = S_t C_t.

    x [B,T,H,P], dt [B,T,H] fp32, a [H] < 0, b and c [B,T,G,N], state [B,H,P,N] fp32.
    Returns y [B,T,H,P] and the last state.
    """
    batch, steps, heads, width = x.shape
    groups, n = b.shape[2], b.shape[3]
    chunk = min(chunk, steps)
    pad = -steps % chunk
    if pad:  # dt = 0 leaves the state alone: exp(0) S + 0
        x, b, c = (functional.pad(t, (0, 0, 0, 0, 0, pad)) for t in (x, b, c))
        dt = functional.pad(dt, (0, 0, 0, pad))
    count = (steps + pad) // chunk
    x = x.reshape(batch, count, chunk, heads, width).transpose(2, 3)  # [B,C,H,Q,P]
    dt = dt.reshape(batch, count, chunk, heads).transpose(2, 3)  # [B,C,H,Q]
    b = b.reshape(batch, count, chunk, groups, n).transpose(2, 3)  # [B,C,G,Q,N]
    c = c.reshape(batch, count, chunk, groups, n).transpose(2, 3)
    s = torch.cumsum(dt * a[:, None], dim=-1)  # log-decay from the chunk's start

    causal = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).tril()
    gap = (s[..., :, None] - s[..., None, :]).masked_fill(~causal, -math.inf)
    scores = (c @ b.transpose(-1, -2)).unsqueeze(3)  # [B,C,G,1,Q,Q]
    mix = by_group(gap.exp() * dt[..., None, :], groups) * scores
    xdt = x * dt[..., None].to(x.dtype)
    y = mix.flatten(2, 3).to(x.dtype) @ x

    tail = xdt * (s[..., -1:] - s).exp()[..., None].to(x.dtype)
    gathered = by_group(tail, groups).transpose(-1, -2) @ b.unsqueeze(3)
    gathered = gathered.flatten(2, 3).float()  # [B,C,H,P,N]
    decay = s[..., -1].exp()
    entering = []
    for i in range(count):
        entering.append(state)
        state = decay[:, i, :, None, None] * state + gathered[:, i]
    start = by_group(torch.stack(entering, 1).to(x.dtype), groups)
    carried = c.unsqueeze(3) @ start.transpose(-1, -2)  # [B,C,G,H/G,Q,P]
    y = y + carried.flatten(2, 3) * s.exp()[..., None].to(x.dtype)
    y = y.transpose(2, 3).reshape(batch, steps + pad, heads, width)
    return y[:, :steps], state


class Mamba2(nn.Module):
    """Mamba-2 mixer."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        heads, inner = config.mamba_num_heads, config.d_inner
        self.config = config
        self.in_proj = nn.Linear(config.hidden_size, inner + config.conv_dim + heads, bias=False)
        self.conv1d = nn.Conv1d(
            config.conv_dim, config.conv_dim, config.conv_kernel, groups=config.conv_dim
        )
        low, high = math.log(config.time_step_min), math.log(config.time_step_max)
        dt = torch.exp(torch.rand(heads) * (high - low) + low)
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # inverse softplus
        self.A_log = nn.Parameter(torch.log(torch.arange(1, heads + 1, dtype=torch.float32)))
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = GatedGroupNorm(inner, config.n_groups, config.layer_norm_epsilon)
        self.out_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, u: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """u: [B, T, hidden]."""
        cfg = self.config
        batch, steps, _ = u.shape
        sizes = [cfg.d_inner, cfg.conv_dim, cfg.mamba_num_heads]
        z, xbc, dt = torch.functional.split(self.in_proj(u), sizes, dim=-1)
        xbc = xbc.transpose(1, 2)
        if cache is not None and layer in cache.conv:
            xbc = torch.cat([cache.conv[layer], xbc], dim=-1)
        else:
            xbc = functional.pad(xbc, (cfg.conv_kernel - 1, 0))
        if cache is not None:
            cache.conv[layer] = xbc[..., 1 - cfg.conv_kernel :]
        taps = self.conv1d.weight.to(xbc.dtype)  # [conv_dim, 1, K]
        mixed = sum(taps[:, :, k] * xbc[..., k : k + steps] for k in range(cfg.conv_kernel))
        bias = cast(Tensor, self.conv1d.bias)
        xbc = functional.silu(cast(Tensor, mixed) + bias.to(xbc.dtype)[:, None]).transpose(1, 2)
        state_width = cfg.n_groups * cfg.ssm_state_size
        x, b, c = torch.functional.split(xbc, [cfg.d_inner, state_width, state_width], dim=-1)
        x = fold(x, cfg.mamba_num_heads, cfg.mamba_head_dim)
        b, c = (fold(t, cfg.n_groups, cfg.ssm_state_size) for t in (b, c))
        delta = functional.softplus(dt.float() + self.dt_bias.float())
        if cache is not None and layer in cache.ssm:
            state = cache.ssm[layer]
        else:
            shape = (batch, cfg.mamba_num_heads, cfg.mamba_head_dim, cfg.ssm_state_size)
            state = torch.zeros(shape, dtype=torch.float32, device=u.device)
        y, state = ssd(x, delta, -torch.exp(self.A_log.float()), b, c, cfg.chunk_size, state)
        if cache is not None:
            cache.ssm[layer] = state
        y = y + x * self.D.to(x.dtype)[:, None]
        return cast(Tensor, self.out_proj(self.norm(y.flatten(2), z)))


class Attention(nn.Module):
    """Causal grouped-query attention without position encoding."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        width = config.num_attention_heads * config.head_dim
        kv_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, u: Tensor, cache: Cache | None, layer: int) -> Tensor:
        """u: [B, T, hidden]."""
        head_dim = self.config.head_dim
        q, k, v = (
            fold(p(u), -1, head_dim).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        mask = None
        if cache is not None:
            if layer in cache.kv:
                k = torch.cat([cache.kv[layer][0], k], dim=2)
                v = torch.cat([cache.kv[layer][1], v], dim=2)
                mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=u.device)
                mask = mask.tril(k.shape[2] - q.shape[2])
            cache.kv[layer] = (k, v)
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return cast(Tensor, self.o_proj(y.transpose(1, 2).flatten(2)))


class Router(nn.Module):
    """Sigmoid router; the bias steers the choice of experts, never their weights."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts))

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Dense expert weights [..., experts] in fp32 (zero where not chosen) and expert loads."""
        bias = cast(Tensor, self.e_score_correction_bias)
        with torch.autocast(u.device.type, enabled=False):
            scores = torch.sigmoid(u.float() @ self.weight.float().t())
        chosen = torch.topk(scores + bias, self.config.num_experts_per_tok, dim=-1).indices
        keep = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
        kept = scores * keep
        weights = kept / (kept.sum(-1, keepdim=True) + 1e-20) * self.config.routed_scaling_factor
        return weights, keep.detach().flatten(0, -2).sum(0)


class Experts(nn.Module):
    """The routed experts of one layer, stacked."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        count, width = config.n_routed_experts, config.moe_intermediate_size
        self.up_proj = nn.Parameter(torch.empty(count, width, config.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(count, config.hidden_size, width))

    def forward(self, u: Tensor, weights: Tensor) -> Tensor:
        """Compute every expert and mask: at this size two large products beat any gather."""
        hidden = functional.relu(u @ self.up_proj.flatten(0, 1).t()).square()
        hidden = fold(hidden, weights.shape[-1], -1) * weights[..., None].to(u.dtype)
        down = self.down_proj.transpose(1, 2).flatten(0, 1)
        return hidden.flatten(-2).to(u.dtype) @ down


class SharedExpert(nn.Module):
    """The expert every token visits."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        width = config.moe_shared_expert_intermediate_size
        self.up_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        """down(relu(up u)^2)."""
        return cast(Tensor, self.down_proj(functional.relu(self.up_proj(u)).square()))


class Moe(nn.Module):
    """Mixture of experts; remembers the loads of its last call for the balancing rule."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config)
        self.shared_experts = SharedExpert(config)

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """The output and the number of tokens each expert received."""
        weights, loads = self.gate(u)
        return self.experts(u, weights) + self.shared_experts(u), loads


MIXERS: dict[str, type[nn.Module]] = {"M": Mamba2, "*": Attention, "E": Moe}


class Block(nn.Module):
    """h + mixer(norm(h))."""

    def __init__(self, kind: str, config: NanoConfig) -> None:
        super().__init__()
        self.kind = kind
        self.norm = RmsNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mixer = MIXERS[kind](config)

    def forward(self, h: Tensor, cache: Cache | None, layer: int) -> tuple[Tensor, Tensor | None]:
        """The new residual stream, and the expert loads of an expert block."""
        u = self.norm(h)
        if self.kind == "E":
            y, load = self.mixer(u)
            return h + y, load
        return h + self.mixer(u, cache, layer), None


class Backbone(nn.Module):
    """Embeddings, blocks and the last norm."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(k, config) for k in config.hybrid_override_pattern)
        self.norm_f = RmsNorm(config.hidden_size, config.layer_norm_epsilon)


class NemotronH(nn.Module):
    """The language model."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = Backbone(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        depth = len(config.hybrid_override_pattern)
        for name, p in self.named_parameters():
            if p.dim() >= 2 and "conv1d" not in name:
                fan_in = config.hidden_size if "embeddings" in name else p.shape[-1]
                scale = depth**-0.5 if name.endswith(("out_proj.weight", "o_proj.weight")) else 1.0
                nn.init.normal_(p, std=0.5 * scale * fan_in**-0.5)

    def hidden(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Tensor]:
        """Normed hidden states [B, T, hidden] and expert loads [moe layers, experts]."""
        h = self.backbone.embeddings(tokens)
        loads = []
        for i, block in enumerate(self.backbone.layers):
            h, load = block(h, cache, i)
            if load is not None:
                loads.append(load)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.backbone.norm_f(h), torch.stack(loads) if loads else h.new_zeros(0)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits [B, T, vocab]."""
        return cast(Tensor, self.lm_head(self.hidden(tokens, cache)[0]))

    def loss(self, tokens: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted next-token loss and loads; rows [B, T+1], target weights [B, T]."""
        h, loads = self.hidden(tokens[:, :-1])
        return self.head_loss(h, tokens[:, 1:], weights), loads

    def head_loss(self, h: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Weighted cross entropy of the normed hidden states."""
        logits = self.lm_head(h).flatten(0, 1).float()
        each = functional.cross_entropy(logits, targets.flatten(), reduction="none")
        w = weights.flatten()
        return (each * w).sum() / w.sum().clamp(min=1.0)

    def compile_parts(self) -> None:
        """Compile one block of each kind and the loss, which is much quicker than the whole."""
        for block in self.backbone.layers:
            block.compile()
        self.head_loss = torch.compile(self.head_loss)  # type: ignore[method-assign]

    def balance(self, loads: Tensor, rate: float) -> None:
        """Move each correction bias towards an even load: up when idle, down when busy."""
        layers = [cast(Block, b) for b in self.backbone.layers]
        moes = [cast(Moe, b.mixer) for b in layers if b.kind == "E"]
        for moe, load in zip(moes, loads, strict=True):
            bias = cast(Tensor, moe.gate.e_score_correction_bias)
            bias += rate * torch.sign(load.mean() - load)
            bias -= bias.mean()
