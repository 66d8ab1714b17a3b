"""Runs a bundle's golden prompt on this machine and compares it with the float32 reference."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.golden import Golden
from edgekit.runtime.executors import open_session

TOLERANCE = {"float32": 1e-3, "float32+int4": 1.0}
"""Largest logit difference by the weights' format. Float32 kernels differ from the reference only
in the order of summation; the int4 kernels also round activations to 8 bits."""

BFLOAT16_TOLERANCE = 1.0
"""The same where activations are bfloat16, which now and then turns the choice of an expert."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How a bundle's logits compare with the reference's, over the golden prompt.

    Attributes:
        max_difference: largest absolute difference over the reference's best tokens.
        tolerance: what it may be.
        agreeing: positions whose best token is the reference's; `near_ties` more differ where the
            reference's two best logits are closer than the tolerance.
    """

    positions: int
    agreeing: int
    near_ties: int
    max_difference: float
    tolerance: float
    executor: str

    @property
    def ok(self) -> bool:
        agreed = self.agreeing + self.near_ties == self.positions
        return agreed and self.max_difference <= self.tolerance

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"ok": self.ok}


def verify_bundle(bundle: Bundle) -> VerifyReport:
    """Compares every position of the golden prompt, in one chunk and token by token alike.

    Raises:
        BundleError: it has no golden logits, or they are damaged.
    """
    path = bundle.file("golden.json")
    if not path.exists():
        raise BundleError(
            f"bundle {bundle.manifest.name!r} has no golden logits",
            hint=f"build it again: {bundle.rebuild_command}",
        )
    try:
        golden = Golden.from_json(json.loads(path.read_text()))
    except ValueError as error:
        raise BundleError("golden.json is damaged", cause=str(error)) from None
    session = open_session(bundle)
    try:
        chunk = session.prefill_chunk
        rows = [
            session.step(golden.prompt[i : i + chunk], logits="all").logits.copy()
            for i in range(0, len(golden.prompt), chunk)
        ]
        chunked = np.concatenate(rows)
        session.reset()
        stepped = np.stack([session.step([token]).logits[0].copy() for token in golden.prompt])
    finally:
        session.close()

    is_narrow = bundle.manifest.executor != "onnxruntime-cpu"
    tolerance = BFLOAT16_TOLERANCE if is_narrow else TOLERANCE[bundle.manifest.weights_format]
    agreeing = near_ties = 0
    worst = 0.0
    for position, row in enumerate(golden.rows):
        tie = len(row.logits) > 1 and row.logits[0] - row.logits[1] < tolerance
        best = {int(logits[position].argmax()) for logits in (chunked, stepped)}
        agreeing += best == {row.tokens[0]}
        near_ties += tie and best != {row.tokens[0]}
        for logits in (chunked, stepped):
            difference = np.abs(logits[position, list(row.tokens)] - np.array(row.logits)).max()
            worst = max(worst, float(difference)) if np.isfinite(difference) else float("inf")
    return VerifyReport(
        positions=len(golden.rows),
        agreeing=agreeing,
        near_ties=near_ties,
        max_difference=worst,
        tolerance=tolerance,
        executor=bundle.manifest.executor,
    )
