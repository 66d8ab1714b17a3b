"""Golden logits: what the float32 reference computed for a fixed prompt when a bundle was built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgekit.errors import BundleError

TOP_K = 10


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """The reference's best tokens at one position, best first, with their logits."""

    tokens: tuple[int, ...]
    logits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Golden:
    """A prompt and, for each of its positions, what should follow."""

    prompt: tuple[int, ...]
    rows: tuple[GoldenRow, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt": list(self.prompt),
            "rows": [{"tokens": list(r.tokens), "logits": list(r.logits)} for r in self.rows],
        }

    @classmethod
    def from_json(cls, data: Any) -> Golden:
        """Reads a parsed golden.json.

        Raises:
            BundleError: it is damaged.
        """
        try:
            rows = tuple(
                GoldenRow(tuple(map(int, row["tokens"])), tuple(map(float, row["logits"])))
                for row in data["rows"]
            )
            prompt = tuple(map(int, data["prompt"]))
        except (TypeError, KeyError, ValueError) as error:
            raise BundleError("golden.json is damaged", cause=str(error)) from None
        if len(prompt) != len(rows) or not prompt:
            raise BundleError("golden.json is damaged", cause="prompt and rows do not match")
        return cls(prompt, rows)
