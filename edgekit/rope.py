"""Rotary position embedding: the angles, made on the host in double precision.

A rotation needs the cosine and sine of position times frequency. In float32 an angle of 10^5
radians is off by 4e-3; here it is reduced in float64 first, so a graph takes two small float32
inputs and is right at any position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.errors import CheckpointError

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rope:
    """Frequencies of one kind of rotary embedding (Su et al. 2021, arXiv:2104.09864).

    Attributes:
        head_dim: rotated in two halves, dimension i with i + head_dim / 2.
        theta: base of the frequencies theta^(-2 i / head_dim).
        factor: how much longer than `original` YaRN makes the context; 1 is plain RoPE.
        original: tokens the frequencies were trained for.
        beta_fast, beta_slow: turns over `original` above which a frequency stays, and below which
            it is divided by `factor`.
        attention_factor: of cosine and sine; None is YaRN's own, 0.1 ln factor + 1.
    """

    head_dim: int
    theta: float
    factor: float = 1.0
    original: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    @cached_property
    def frequencies(self) -> F64:
        """[head_dim / 2] radians a token (YaRN: Peng et al. 2023, arXiv:2309.00071, section 3)."""
        half = self.head_dim // 2
        plain = self.theta ** -(np.arange(half) / half)
        if self.factor == 1:
            return np.asarray(plain)

        def dimension(turns: float) -> float:
            """The dimension that turns so often over the trained context."""
            wavelength = self.original / (turns * 2 * math.pi)
            return half * math.log(wavelength) / math.log(self.theta)

        low = max(math.floor(dimension(self.beta_fast)), 0)
        high = min(math.ceil(dimension(self.beta_slow)), self.head_dim - 1)
        ramp = np.clip((np.arange(half) - low) / max(high - low, 1e-3), 0, 1)
        return np.asarray(plain * (1 - ramp) + plain / self.factor * ramp)

    @property
    def magnitude(self) -> float:
        """What cosine and sine are multiplied by."""
        if self.factor == 1:
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0

    def angles(self, first: int, count: int) -> tuple[F32, F32]:
        """Cosine and sine [count, head_dim / 2] for positions first..first + count."""
        angle = np.arange(first, first + count)[:, None] * self.frequencies
        cos, sin = self.magnitude * np.cos(angle), self.magnitude * np.sin(angle)
        return cos.astype(np.float32), sin.astype(np.float32)


def read_rope(config: dict[str, Any], head_dim: int) -> Rope:
    """The rotary embedding of a Hugging Face config.

    Raises:
        CheckpointError: a kind that edgekit does not know.
    """
    fields = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = fields.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = fields.get("rope_type", fields.get("type", "default"))
    try:
        if kind == "default":
            return Rope(head_dim, float(theta))
        if kind == "yarn":
            factor = fields.get("attention_factor")
            if fields.get("mscale") or fields.get("truncate") is False:
                raise KeyError("mscale and truncate are not supported")
            return Rope(
                head_dim,
                float(theta),
                float(fields["factor"]),
                int(fields["original_max_position_embeddings"]),
                float(fields.get("beta_fast") or 32),
                float(fields.get("beta_slow") or 1),
                None if factor is None else float(factor),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            "the draft's config.json has rope parameters that make no sense",
            cause=f"{type(error).__name__}: {error}",
        ) from None
    raise CheckpointError(
        f"the draft's rotary embedding is of kind {kind!r}", cause="known: default, yarn"
    )
