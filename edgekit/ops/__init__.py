"""The canonical operators: one contract and one NumPy definition each.

The graph writer emits nodes of domain ``edgekit`` with these names, every lowering must compute
the same function, and the tests hold each executor against these definitions. Batch is always 1
and activations are token-major ``[T, width]``; the definitions compute in float32.
"""

from edgekit.ops.attention import attention, block_attention
from edgekit.ops.draft import norm_rope, swiglu
from edgekit.ops.formats import WeightFormat, dequantize
from edgekit.ops.linear import linear
from edgekit.ops.mamba2 import mamba2_commit, mamba2_scan
from edgekit.ops.moe import moe_experts, moe_route
from edgekit.ops.rms_norm import rms_norm

DOMAIN = "edgekit"

__all__ = [
    "DOMAIN",
    "WeightFormat",
    "attention",
    "block_attention",
    "dequantize",
    "linear",
    "mamba2_commit",
    "mamba2_scan",
    "moe_experts",
    "moe_route",
    "norm_rope",
    "rms_norm",
    "swiglu",
]
