"""A DSpark draft's own launches: normed and rotated heads, and SwiGLU; export/plugins/draft.cu."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kernels.launch import Kernel, Launch, Size, defines, divide_up, float_bits

THREADS = 256


@dataclass(frozen=True, slots=True)
class DraftHeads:
    """The heads of a draft's layers, by config.json's names.

    Attributes:
        epsilon: of the heads' norms.
    """

    num_heads: int
    kv_num_heads: int
    head_dim: int
    epsilon: float

    def kernel(self, name: str) -> Kernel:
        return Kernel("draft.cu", name, defines(DIM=self.head_dim))


def norm_rope(T: Size, heads: DraftHeads) -> Launch:
    """Norms and rotates the queries and keys of a block.

    Arguments: qkv [T, (heads + 2 kv heads) x head_dim] bfloat16; norm weights of queries and of
    keys [head_dim] float32; cosine and sine [T, head_dim / 2] float32. Output: the same rows, the
    values as they were.
    """
    grid = (heads.num_heads + 2 * heads.kv_num_heads, T, 1)
    integers = (heads.num_heads, heads.kv_num_heads, float_bits(heads.epsilon))
    return Launch(heads.kernel("norm_rope"), grid=grid, block=32, integers=integers)


def context_rows(T: Size, heads: DraftHeads, layers: int, rows: int) -> Launch:
    """Puts keys and values of T committed tokens into the caches of all layers.

    Arguments: rows [T, layers, 2, kv heads x head_dim] bfloat16, keys before values; key norm
    weights [layers, head_dim] float32; cosine and sine [T, head_dim / 2] float32; length [1] int32,
    rows that are there; both caches [layers, kv heads, rows, head_dim] bfloat16. Outputs: both
    caches, in place.
    """
    grid = (layers * 2 * heads.kv_num_heads, T, 1)
    integers = (layers, heads.kv_num_heads, rows, float_bits(heads.epsilon))
    return Launch(heads.kernel("context_rows"), grid=grid, block=32, integers=integers)


def swiglu(T: Size, intermediate_size: int) -> Launch:
    """Arguments: gate and up [T, F] bfloat16. Output: silu(gate) x up [T, F] bfloat16."""
    grid = (divide_up(intermediate_size, THREADS), T, 1)
    return Launch(
        Kernel("draft.cu", "swiglu"), grid=grid, block=THREADS, integers=(intermediate_size,)
    )
