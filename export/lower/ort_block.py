"""A block whose rows all see each other, from standard operators.

`GroupQueryAttention` is causal. DFlash's block is not, and it is a few rows wide, so plain products
do: the cached rows are copied out of the cache, which costs what reading them costs.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder, sizes


def bidirectional_attention(
    g: GraphBuilder, inputs: list[ir.Value], group: int, scale: float, name: str
) -> ir.Value:
    """[1, T, heads x head_dim] of a block over the cached rows and itself.

    Args:
        inputs: query, key, value [1, T, ...], both caches [1, kv, S, head_dim], and the number of
            valid rows and the block's together.
        group: query heads that read one KV head.
    """
    query, key, value, key_cache, value_cache, total = inputs
    _, kv, _, head_dim = sizes(key_cache)
    count = g.op("Shape", [query], f"{name}.rows", start=1, end=2)
    stop = g.op("Cast", [total], f"{name}.total", to=ir.DataType.INT64.value)
    length = g.op("Sub", [stop, count], f"{name}.length")
    ends = [g.const("zeros.1", [0]), length, g.const("axis.rows", [2])]
    by_head = g.const(f"shape.kv_{kv}_{head_dim}", [0, 0, kv, head_dim])

    def seen(rows: ir.Value, cache: ir.Value, what: str) -> ir.Value:
        """[1, kv, total, head_dim]."""
        heads = g.op("Reshape", [rows, by_head], f"{name}.{what}_heads")
        heads = g.op("Transpose", [heads], f"{name}.{what}_block", perm=[0, 2, 1, 3])
        cached = g.op("Slice", [cache, *ends], f"{name}.{what}_cached")
        return g.op("Concat", [cached, heads], f"{name}.{what}_all", axis=2)

    # Query head h = kv group + i; all rows of a KV head's group become rows of one product.
    by_group = g.const(f"shape.q_{kv}_{head_dim}", [0, -1, kv, group, head_dim])
    together = g.const(f"shape.together_{kv}_{head_dim}", [1, kv, -1, head_dim])
    q = g.op("Reshape", [query, by_group], f"{name}.q_heads")
    q = g.op("Transpose", [q], f"{name}.q_groups", perm=[0, 2, 3, 1, 4])  # [1, kv, group, T, d]
    q = g.op("Reshape", [q, together], f"{name}.q")
    keys = g.op("Transpose", [seen(key, key_cache, "k")], f"{name}.k_t", perm=[0, 1, 3, 2])
    scores = g.op("MatMul", [q, keys], f"{name}.products")
    scores = g.op("Mul", [scores, g.const(f"scale_{scale}", scale, "float32")], f"{name}.scores")
    weights = g.op("Softmax", [scores], f"{name}.weights", axis=-1)
    y = g.op("MatMul", [weights, seen(value, value_cache, "v")], f"{name}.mixed")
    apart = g.const(f"shape.apart_{kv}_{group}_{head_dim}", [1, kv, group, -1, head_dim])
    y = g.op(
        "Transpose",
        [g.op("Reshape", [y, apart], f"{name}.y_groups")],
        f"{name}.y_rows",
        perm=[0, 3, 1, 2, 4],
    )
    flat = g.const(f"shape.heads_{kv}_{group}_{head_dim}", [1, -1, kv * group * head_dim])
    return g.op("Reshape", [y, flat], f"{name}.y")
