"""Draft-and-verify over many prompts in lock step, and plain greedy decoding to compare with.

Every round reads the whole sequences again instead of keeping state: at nano's size that costs less
than rolling back the Mamba state of each sequence, and it cannot roll back wrongly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgekit.recipes.nano.model import Cache, NemotronH
from edgekit.recipes.nano.speculative.proposers import Proposer
from edgekit.recipes.nano.speculative.target import Features, read_target
from edgekit.recipes.nano.speculative.verify import accept_greedy, accept_sampled


@dataclass(frozen=True, slots=True)
class Round:
    """One draft and its verification.

    kept: accepted drafts before any stop token; tried: the positions that could have been accepted,
    k unless the reply stopped inside them; tokens: what the round added, the target's own included.
    """

    prompt: int
    offered: int
    kept: int
    tried: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to decode: k drafts a round, tokens a reply, stop tokens, temperature, seed, taps."""

    k: int
    limit: int
    stops: frozenset[int]
    layers: tuple[int, ...]
    temperature: float = 0.0
    seed: int = 0


def _next(logits: Tensor, how: Decoding, generator: torch.Generator) -> Tensor:
    if not how.temperature:
        return logits.argmax(-1)
    chances = (logits.float() / how.temperature).softmax(-1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


@torch.no_grad()
def speculate(
    model: NemotronH, proposer: Proposer, prompts: list[list[int]], how: Decoding
) -> tuple[list[Round], list[list[int]]]:
    """(rounds of all prompts, the reply of each prompt with its stop token)."""
    device = model.lm_head.weight.device
    generator = torch.Generator(device).manual_seed(how.seed)
    size = max(map(len, prompts)) + how.limit + 2 * how.k + 2
    tokens = torch.zeros(len(prompts), size, dtype=torch.long, device=device)
    for i, prompt in enumerate(prompts):
        tokens[i, : len(prompt)] = torch.tensor(prompt)
    anchors = torch.tensor([len(p) for p in prompts], device=device)  # the token to be drawn next
    features = read_target(model, tokens[:, : int(anchors.max()) + 1], how.layers)
    rows = torch.arange(len(prompts), device=device)
    first = _next(model.lm_head(features.hidden[rows, anchors - 1]), how, generator)
    tokens[rows, anchors] = first
    replies = [[int(token)] for token in first]
    names = list(range(len(prompts)))
    rounds: list[Round] = []
    while True:
        alive = [
            i
            for i, name in enumerate(names)
            if replies[name][-1] not in how.stops and len(replies[name]) < how.limit
        ]
        if not alive:
            return rounds, replies
        if len(alive) < len(names):
            index = torch.tensor(alive, device=device)
            names = [names[i] for i in alive]
            tokens, anchors = tokens[index], anchors[index]
            features = Features(features.hidden[index], features.taps[index])
        width = features.hidden.shape[1]
        proposal = proposer.propose(
            features, tokens[:, :width], anchors, how.k, how.temperature, generator
        )
        behind = anchors[:, None] + torch.arange(how.k + 1, device=device)
        tokens.scatter_(1, behind[:, 1:], proposal.tokens)
        # One column more than is verified: the next anchor must lie inside the features' width.
        features = read_target(model, tokens[:, : int(anchors.max()) + how.k + 2], how.layers)
        hidden = features.hidden.gather(
            1, behind[..., None].expand(-1, -1, features.hidden.shape[-1])
        )
        logits = model.lm_head(hidden)
        if how.temperature:
            p = (logits.float() / how.temperature).softmax(-1)
            kept, following = accept_sampled(
                p, proposal.probabilities, proposal.tokens, proposal.offered, generator
            )
        else:
            kept, following = accept_greedy(logits.argmax(-1), proposal.tokens, proposal.offered)
        anchors = anchors + kept + 1
        tokens.scatter_(1, anchors[:, None], following[:, None])
        table = torch.stack([kept, following, proposal.offered], 1).tolist()
        for name, drafted, (a, token, offered) in zip(
            names, proposal.tokens.tolist(), table, strict=True
        ):
            added = [*drafted[:a], token]
            end = next((i for i, t in enumerate(added) if t in how.stops), len(added) - 1) + 1
            replies[name] += added[:end]
            rounds.append(Round(name, offered, min(a, end), end if end <= a else how.k, end))


@torch.no_grad()
def plain_greedy(
    model: NemotronH, prompt: list[int], how: Decoding
) -> tuple[list[int], list[float]]:
    """(reply with its stop token, gap between the two best logits at each step), with a cache."""
    device = model.lm_head.weight.device
    cache = Cache()
    pending = torch.tensor([prompt], device=device)
    reply: list[int] = []
    margins: list[float] = []
    while len(reply) < how.limit and not (reply and reply[-1] in how.stops):
        hidden, _ = model.hidden(pending, cache)
        best = model.lm_head(hidden[0, -1]).topk(2)
        reply.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        pending = best.indices[None, :1]
    return reply, margins
