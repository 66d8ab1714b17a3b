"""What is measured: prompts and generations of chosen lengths, named as llama-bench names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgekit.errors import DoesNotFitError, UsageError

Kind = Literal["prompt", "generation"]


@dataclass(frozen=True, slots=True)
class Case:
    """`tokens` of a prompt read, or generated, when `depth` tokens are in the context already."""

    kind: Kind
    tokens: int
    depth: int = 0

    @property
    def name(self) -> str:
        """pp512, tg128, pp512 @ d4096."""
        short = "pp" if self.kind == "prompt" else "tg"
        return f"{short}{self.tokens}" + (f" @ d{self.depth}" if self.depth else "")


def make_cases(
    prompts: Sequence[int], generations: Sequence[int], depths: Sequence[int]
) -> tuple[Case, ...]:
    """Every prompt and generation length at every depth, each once; length 0 leaves a kind out.

    Raises:
        UsageError: nothing is left to measure.
    """
    found: dict[Case, None] = {}
    for depth in depths:
        found |= {Case("prompt", n, depth): None for n in prompts if n}
        found |= {Case("generation", n, depth): None for n in generations if n}
    if not found:
        raise UsageError(
            "there is nothing to measure",
            cause="every prompt and generation length is 0",
            hint="--prompt 512 --gen 128",
        )
    return tuple(found)


def check_fits(cases: Sequence[Case], context: int, start: int = 1) -> None:
    """Whether every case has room.

    Args:
        context: most tokens of the sequence.
        start: tokens that a generation goes on from.

    Raises:
        DoesNotFitError: one has not.
    """
    for case in cases:
        needed = case.depth + case.tokens + (start if case.kind == "generation" else 0)
        if needed > context:
            parts = [f"{case.tokens} of the {case.kind}"]
            parts += [f"{start} to go on from"] if case.kind == "generation" else []
            parts += [f"{case.depth} before"] if case.depth else []
            raise DoesNotFitError(
                f"{case.name} needs {needed} tokens, the context holds {context}",
                cause=", ".join(parts),
                hint=f"measure less, or build with more: edgekit build MODEL --context {needed}",
            )
