"""Causal grouped-query attention with an append to the KV cache.

export/plugins/attention.cu for a few tokens, attention_prefill.cu for a prompt's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits

WARPS, TILE = 4, 16
KvCache = Literal["bfloat16", "float8_e4m3fn"]
HEAD_DIMS = (32, 64, 128)
MAX_SPLITS = 32
SPLIT_KEYS = 512
"""Keys of a split, at least, when the context is full: what the last split adds up costs more than
short parts gain."""

PREFILL_ROWS, PREFILL_KEYS, LIMITED_KEYS = 64, 64, 32
"""Query rows of a block of the prefill kernel; keys of one of its two stages, and where shared
memory is limited to MAX_SHARED."""


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """One layer, by config.json's names.

    Attributes:
        scale: multiplies the scores.
        window: keys that a token sees, itself among them; 0 is all.
        sinks: whether each head has a score without a value, float32 [heads], an input after the
            others.
        kv_dtype: of the caches. float8_e4m3fn holds values over `key_scale` and `value_scale`.
    """

    num_heads: int
    kv_num_heads: int
    head_dim: int
    scale: float
    window: int = 0
    sinks: bool = False
    kv_dtype: KvCache = "bfloat16"
    key_scale: float = 1.0
    value_scale: float = 1.0

    def query_tiles(self, T: Size) -> Size:
        """Tiles of 16 query rows of one KV head."""
        return divide_up(T * (self.num_heads // self.kv_num_heads), TILE)

    def kernel(self, source: str, name: str, **more: int) -> Kernel:
        return Kernel(
            source,
            name,
            defines(
                DIM=self.head_dim,
                WINDOW=self.window,
                SINKS=int(self.sinks),
                FP8=int(self.kv_dtype == "float8_e4m3fn"),
                **more,
            ),
        )

    def integers(self, T: Size, context: int) -> tuple[Size, ...]:
        sizes = (T, self.num_heads, self.kv_num_heads, context, float_bits(self.scale))
        if self.kv_dtype == "bfloat16":
            return sizes
        return (*sizes, float_bits(self.key_scale), float_bits(self.value_scale))


def splits(context: int) -> int:
    """Parts that the keys are cut into: fixed for a bundle, whatever the length is."""
    return min(MAX_SPLITS, -(-context // SPLIT_KEYS))


def partials_shape(T: Size, layer: AttentionLayer, context: int) -> tuple[Size, ...]:
    """What the splits leave for the last of them."""
    tiles = layer.query_tiles(T)
    return (layer.kv_num_heads, tiles, splits(context), TILE, layer.head_dim + 4)


def attention_step(T: Size, layer: AttentionLayer, context: int) -> Launch:
    """Attention of T = 1..8 tokens to everything before them.

    Arguments: qkv [T, (heads + 2 kv heads) x head_dim] bfloat16; key cache and value cache [kv
    heads, context, head_dim] kv_dtype; length [1] int32, tokens cached already; arrivals, zeros [at
    least kv heads x query tiles] int32. Outputs: y [T, heads x head_dim] bfloat16; both caches, in
    place; partials, see `partials_shape`, float32; arrivals, in place.
    """
    kernel = layer.kernel("attention.cu", "attention", SPLITS=splits(context))
    return Launch(
        kernel,
        grid=(layer.query_tiles(T), layer.kv_num_heads, splits(context)),
        block=WARPS * 32,
        integers=layer.integers(T, context),
    )


def attention_prefill(
    T: Size, layer: AttentionLayer, context: int, keys: int = PREFILL_KEYS
) -> Launch:
    """Attention of a prompt's T tokens, any number of them, to everything before them.

    Arguments: qkv, key cache, value cache and length as `attention_step` takes them. Outputs: y [T,
    heads x head_dim] bfloat16; both caches, in place.

    Args:
        keys: of a stage; fewer take less shared memory.
    """
    kernel = layer.kernel("attention_prefill.cu", "attention_prefill", KEYS=keys)
    rows = T * (layer.num_heads // layer.kv_num_heads)
    row_bytes = 2 * (layer.head_dim + 8)
    return Launch(
        kernel,
        grid=(divide_up(rows, PREFILL_ROWS), layer.kv_num_heads, 1),
        block=WARPS * 32,
        shared=2 * 2 * keys * row_bytes,
        integers=layer.integers(T, context),
    )
