"""A draft's graphs in the `standard` lowering.

The block appends its keys and values behind the committed rows of its caches, which are its outputs
too and meant to be one buffer with them; the next block overwrites what it appended. Attention is
written out, because ONNX's own has no sinks: a block is a few rows, and reads each cache once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.draft import DraftSpec
from edgekit.export.graph.builder import Dim
from edgekit.export.lower.plugin_parts import name_of, weight_of
from edgekit.export.lower.standard import FLOAT, TYPES, Compute, StandardLowering
from edgekit.export.lower.standard_weights import in_dtype
from edgekit.model import ModelSpec


def lower_draft(
    model: ir.Model, draft: DraftSpec, spec: ModelSpec, rows: int, compute: Compute
) -> ir.Model:
    """Lowers one of the graphs of `build_draft`.

    Args:
        spec: of the target. rows: of the caches.
        compute: type of matrix products, embedding and caches.
    """
    return _DraftLowering(model, draft, spec, rows, TYPES[compute]).run()


class _DraftLowering(StandardLowering):
    def __init__(
        self,
        model: ir.Model,
        draft: DraftSpec,
        spec: ModelSpec,
        rows: int,
        compute: ir.DataType,
    ) -> None:
        super().__init__(model, spec, rows, compute)
        self.draft = draft

    def handlers(self) -> dict[str, Callable[[ir.Node], None]]:
        return {
            **super().handlers(),
            "BlockAttention": self.block_attention,
            "NormRope": self.norm_rope,
            "SwiGlu": self.swiglu,
            "Cast": self.cast_of,
        }

    @property
    def cache_shape(self) -> list[Dim]:
        return [1, self.draft.num_key_value_heads, self.context, self.draft.head_dim]

    @property
    def has_attention(self) -> bool:
        return True

    def cast_of(self, node: ir.Node) -> None:
        """A weight as float32; a value is float32 already."""
        (value,) = node.inputs
        assert value is not None
        if value.const_value is None:
            self.values[node.outputs[0]] = self.get(value)
        else:
            self.values[node.outputs[0]] = self.g.weight(in_dtype(weight_of(value), FLOAT))

    def norm_rope(self, node: ir.Node) -> None:
        g, ints, name = self.g, self.ints, name_of(node.outputs[0])
        x, weight, cos, sin = node.inputs
        norm = in_dtype(weight_of(weight), FLOAT)
        heads = g.op("Reshape", [self.get(x), ints(0, -1, norm.dims[0])], f"{name}.heads")
        epsilon = node.attributes["epsilon"].value
        normed = g.op(
            "RMSNormalization",
            [heads, g.weight(norm)],
            f"{name}.normed",
            axis=-1,
            epsilon=epsilon,
        )
        a, b = g.ops("Split", [normed], [f"{name}.a", f"{name}.b"], axis=-1, num_outputs=2)
        c, s = (
            g.op("Unsqueeze", [self.get(angle), ints(1)], f"{name}.{which}")
            for angle, which in ((cos, "cos"), (sin, "sin"))
        )

        def times(left: ir.Value, right: ir.Value, what: str) -> ir.Value:
            return g.op("Mul", [left, right], f"{name}.{what}")

        first = g.op("Sub", [times(a, c, "ac"), times(b, s, "bs")], f"{name}.first")
        second = g.op("Add", [times(b, c, "bc"), times(a, s, "as")], f"{name}.second")
        rotated = g.op("Concat", [first, second], f"{name}.rotated", axis=-1)
        width = norm.dims[0] * (
            self.draft.num_attention_heads if "q_norm" in name else self.draft.num_key_value_heads
        )
        self.values[node.outputs[0]] = g.op("Reshape", [rotated, ints(-1, width)], name)

    def swiglu(self, node: ir.Node) -> None:
        gate, up = (self.get(value) for value in node.inputs)
        name = name_of(node.outputs[0])
        silu = self.g.op(
            "Mul", [gate, self.g.op("Sigmoid", [gate], f"{name}.gate")], f"{name}.silu"
        )
        self.values[node.outputs[0]] = self.g.op("Mul", [silu, up], name)

    def block_attention(self, node: ir.Node) -> None:
        g, ints, draft = self.g, self.ints, self.draft
        q, k, v, key_cache, value_cache, length, *sinks = node.inputs
        name = name_of(node.outputs[0]).removesuffix(".y")
        kv, d = draft.num_key_value_heads, draft.head_dim
        group = draft.num_attention_heads // kv
        at = g.op("Reshape", [self.get(length), ints(1)], f"{name}.at")

        def appended(cache: ir.Value | None, rows: ir.Value | None, which: str) -> ir.Value:
            """The cache [1, kv, S, d] with the block's rows [T, kv d] behind the committed ones."""
            new = self.cast(self.get(rows), self.compute, f"{name}.{which}_rows")
            new = g.op("Reshape", [new, ints(1, -1, kv, d)], f"{name}.{which}_split")
            new = g.op("Transpose", [new], f"{name}.{which}_heads", perm=[0, 2, 1, 3])
            inputs = [self.get(cache), new, at]
            written = g.op("TensorScatter", inputs, f"{name}.{which}_all", axis=2, mode="linear")
            assert cache is not None
            out = name_of(cache).replace("_cache.", "_cache_out.")
            g.output(written, out, self.compute, self.cache_shape)
            return written

        keys, values = appended(key_cache, k, "k"), appended(value_cache, v, "v")
        # Query head h = kv group + i. [T, heads d] to [1, kv, group T, d].
        rows = self.cast(self.get(q), self.compute, f"{name}.q_rows")
        rows = g.op("Reshape", [rows, ints(1, -1, kv, group, d)], f"{name}.q_split")
        rows = g.op("Transpose", [rows], f"{name}.q_heads", perm=[0, 2, 3, 1, 4])
        rows = g.op("Reshape", [rows, ints(1, kv, -1, d)], f"{name}.q_groups")
        keys_t = g.op("Transpose", [keys], f"{name}.k_t", perm=[0, 1, 3, 2])
        scores = g.op("MatMul", [rows, keys_t], f"{name}.products")
        scores = self.cast(scores, FLOAT, f"{name}.products_f32")
        scale = g.const(f"{name}.scale", node.attributes["scale"].value, np.float32)
        scores = g.op("Mul", [scores, scale], f"{name}.scaled")
        scores = g.op("Reshape", [scores, ints(kv, group, -1, self.context)], f"{name}.by_head")
        hidden = g.const("attention.hidden", -1e30, np.float32)
        causal, window = (node.attributes[key].value for key in ("causal", "window"))
        visible = self.block_mask(self.get(length), bool(causal), window)
        scores = g.op("Where", [visible, scores, hidden], f"{name}.scores")
        weights = self.softmax(scores, sinks[0] if sinks else None, (kv, group), name)
        weights = self.cast(weights, self.compute, f"{name}.weights")
        weights = g.op("Reshape", [weights, ints(1, kv, -1, self.context)], f"{name}.weight_rows")
        y = g.op("MatMul", [weights, values], f"{name}.mixed")
        y = g.op("Reshape", [y, ints(kv, group, -1, d)], f"{name}.y_heads")
        y = g.op("Transpose", [y], f"{name}.y_split", perm=[2, 0, 1, 3])
        y = g.op("Reshape", [y, ints(-1, kv * group * d)], f"{name}.y_rows")
        self.values[node.outputs[0]] = self.cast(y, FLOAT, f"{name}.y")

    def softmax(
        self, scores: ir.Value, sinks: ir.Value | None, heads: tuple[int, int], name: str
    ) -> ir.Value:
        """Over the last axis of [kv, group, T, S], and each head's sink, which has no value."""
        g = self.g
        if sinks is None:
            return g.op("Softmax", [scores], f"{name}.softmax", axis=-1)
        weight = in_dtype(weight_of(sinks), FLOAT)
        shape = self.ints(*heads, 1, 1)
        sink = g.op("Reshape", [g.weight(weight), shape], f"{name}.sinks")
        largest = g.op("ReduceMax", [scores, self.ints(-1)], f"{name}.largest_score", keepdims=1)
        largest = g.op("Max", [largest, sink], f"{name}.largest")
        parts = g.op("Exp", [g.op("Sub", [scores, largest], f"{name}.below")], f"{name}.parts")
        of_sink = g.op("Exp", [g.op("Sub", [sink, largest], f"{name}.sink_below")], f"{name}.sink")
        whole = g.op("ReduceSum", [parts, self.ints(-1)], f"{name}.sum", keepdims=1)
        whole = g.op("Add", [whole, of_sink], f"{name}.whole")
        return g.op("Div", [parts, whole], f"{name}.softmax")

    def block_mask(self, length: ir.Value, causal: bool, window: int) -> ir.Value:
        """[1, 1, T, S] bools, true where a row looks; one for all layers."""
        if self.visible is None:
            g = self.g
            every = g.const("cache.positions", np.arange(self.context).reshape(1, 1, 1, -1))
            own = g.op("Add", [self.order.column, length], "positions")
            last = own
            if not causal:
                axis = self.ints(2)
                last = g.op("ReduceMax", [own, axis], "last_position", keepdims=1)
            self.visible = g.op("LessOrEqual", [every, last], "attention.mask")
            if window:
                oldest = g.op("Sub", [own, g.const("window", window)], "before_window")
                near = g.op("Greater", [every, oldest], "attention.near")
                self.visible = g.op("And", [self.visible, near], "attention.window")
        return self.visible
