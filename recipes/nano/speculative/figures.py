"""Acceptance figures from rounds, with bootstrap intervals.

Rounds of one reply depend on each other, so whole prompts are resampled.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.recipes.nano.speculative.simulate import Round

RESAMPLES = 1000

Floats = npt.NDArray[np.float64]


def _ratio(
    above: Floats, below: Floats, draws: npt.NDArray[np.int64]
) -> tuple[float, list[float]] | None:
    """sum(above) / sum(below) over prompts and its 95 % interval; None without observations."""
    if not below.sum():
        return None
    low = np.maximum(below[draws].sum(1), 1e-9)
    values = above[draws].sum(1) / low
    interval = np.quantile(values, [0.025, 0.975])
    return round(float(above.sum() / below.sum()), 4), [round(float(x), 4) for x in interval]


def summarise(rounds: Sequence[Round], prompts: int, k: int, seed: int = 0) -> dict[str, Any]:
    """Tokens a round and acceptance by position.

    tokens a round: mean accepted length with the target's own token (a round that meets the end of
    the reply counts what it really added). kept[i]: share of rounds whose first i + 1 drafts were
    all accepted, among the rounds whose reply reached that far. given[i]: the same among the rounds
    that accepted the i drafts before and offered one more.
    """
    draws = np.random.default_rng(seed).integers(prompts, size=(RESAMPLES, prompts))
    who = np.array([r.prompt for r in rounds], dtype=np.int64)
    field = {
        name: np.array([getattr(r, name) for r in rounds])
        for name in ("offered", "kept", "tried", "tokens")
    }

    def by_prompt(values: npt.NDArray[Any]) -> Floats:
        return np.bincount(who, values.astype(float), prompts).astype(np.float64)

    ones = np.ones(len(rounds))
    whole = field["tried"] == k
    length = _ratio(by_prompt(field["tokens"]), by_prompt(ones), draws)
    uncut = _ratio(by_prompt((field["kept"] + 1) * whole), by_prompt(whole), draws)
    positions = []
    for i in range(1, k + 1):
        reached = field["tried"] >= i
        kept = field["kept"] >= i
        asked = reached & (field["kept"] >= i - 1) & (field["offered"] >= i)
        share = _ratio(by_prompt(kept & reached), by_prompt(reached), draws)
        given = _ratio(by_prompt(kept & asked), by_prompt(asked), draws)
        positions.append(
            {
                "position": i,
                "rounds": int(reached.sum()),
                "kept": share and {"share": share[0], "interval": share[1]},
                "offered": int(asked.sum()),
                "given": given and {"share": given[0], "interval": given[1]},
            }
        )
    return {
        "rounds": len(rounds),
        "drafted tokens": int(np.minimum(field["offered"], field["tried"]).sum()),
        "accepted tokens": int(field["kept"].sum()),
        "tokens a round": length and {"mean": length[0], "interval": length[1]},
        "tokens a round, replies' ends left out": uncut
        and {"mean": uncut[0], "interval": uncut[1]},
        "positions": positions,
    }


def by_skill(rounds: Sequence[Round], skills: Sequence[str]) -> dict[str, dict[str, float]]:
    """Tokens a round and rounds of each skill; ``skills`` names the skill of each prompt."""
    sums: dict[str, list[int]] = {}
    for r in rounds:
        entry = sums.setdefault(skills[r.prompt], [0, 0])
        entry[0] += r.tokens
        entry[1] += 1
    return {s: {"mean": round(t / n, 3), "rounds": n} for s, (t, n) in sorted(sums.items())}
