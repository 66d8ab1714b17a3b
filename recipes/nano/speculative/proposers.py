"""What proposes tokens in the evaluation: a trained draft, or a look into the text so far."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from edgekit.recipes.nano.speculative.drafting import Draft
from edgekit.recipes.nano.speculative.target import Features


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafted tokens [N, k], their distributions [N, k, V] if they were sampled, how many count."""

    tokens: Tensor
    probabilities: Tensor | None
    offered: Tensor


class Proposer(Protocol):
    """Drafts k tokens behind one anchor a sequence."""

    def propose(
        self,
        features: Features,
        tokens: Tensor,
        anchors: Tensor,
        k: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Proposal:
        """tokens: [N, T], known up to anchors [N]; temperature zero is greedy."""
        ...


@dataclass(frozen=True, slots=True)
class Trained:
    """A DSpark, DFlash or MTP draft, at the target's temperature."""

    draft: Draft

    def propose(
        self,
        features: Features,
        tokens: Tensor,
        anchors: Tensor,
        k: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Proposal:
        """See Proposer."""
        picked: list[Tensor] = []
        chances: list[Tensor] = []

        def choose(_: int, logits: Tensor) -> Tensor:
            if temperature:
                q = (logits[:, 0].float() / temperature).softmax(-1)
                chances.append(q)
                picked.append(torch.multinomial(q, 1, generator=generator))
            else:
                picked.append(logits[:, 0].argmax(-1, keepdim=True))
            return picked[-1]

        self.draft.draft(features, tokens, anchors[:, None], k, choose)
        drafted = torch.cat(picked, dim=1)
        offered = torch.full_like(anchors, k)
        return Proposal(drafted, torch.stack(chances, 1) if temperature else None, offered)


@dataclass(frozen=True, slots=True)
class Lookup:
    """n-gram lookup: what followed the last tokens the last time they appeared."""

    longest: int = 3

    def propose(
        self,
        features: Features,
        tokens: Tensor,
        anchors: Tensor,
        k: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Proposal:
        """See Proposer; the draft has no probabilities."""
        drafted = torch.zeros(len(anchors), k, dtype=torch.long)
        offered = torch.zeros(len(anchors), dtype=torch.long)
        for i, (row, anchor) in enumerate(zip(tokens.tolist(), anchors.tolist(), strict=True)):
            found = look_up(row[: anchor + 1], self.longest, k)
            drafted[i, : len(found)] = torch.tensor(found, dtype=torch.long)
            offered[i] = len(found)
        return Proposal(drafted.to(tokens.device), None, offered.to(tokens.device))


def look_up(text: list[int], longest: int, k: int) -> list[int]:
    """Up to k tokens that followed the latest earlier place of the longest matching ending."""
    for n in range(min(longest, len(text) - 1), 0, -1):
        ending = text[-n:]
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == ending:
                return text[start + n : start + n + k]
    return []
