"""The `plugin` lowering of a DSpark draft: edgekit's CUDA kernels, for up to eight rows.

    context   tap.i [T, hidden_size] of the target, cos, sin, length: rows of every layer's cache
    block     tokens [T], cos, sin, length and the caches: hidden [T, hidden_size]
    base      hidden [R, hidden_size], any rows of it, to logits before the Markov head
    head      token [1] and its row of `base`: logits [1, vocab_size], and the likeliest token

The taps stay where the target's graphs leave them, one array a layer, so `fc` is a sum of as many
products. Caches of all layers lie together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from edgekit.draft import DraftSpec
from edgekit.errors import BuildError
from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import computed
from edgekit.export.lower.packing import Source, slice_columns, stack_rows
from edgekit.export.lower.plugin import (
    BF16,
    FLOAT,
    INT32,
    PluginLowering,
    picked,
)
from edgekit.export.lower.plugin_parts import Normed, Product, name_of, source_of, weight_of
from edgekit.kernels.attention import HEAD_DIMS
from edgekit.kernels.nodes import ARRIVALS, DOMAIN, tap_name
from edgekit.model import ModelSpec
from edgekit.ops.formats import BFLOAT16


def lower_draft(
    graphs: Mapping[str, ir.Model],
    draft: DraftSpec | None,
    spec: ModelSpec,
    rows: int,
    limited: bool = False,
) -> dict[str, ir.Model]:
    """Lowers the graphs of `build_draft`.

    Args:
        draft: None for an MTP head.
        rows: of the caches. limited: every launch stays within MAX_SHARED.

    Raises:
        BuildError: a draft of a kind that the kernels do not run.
    """
    draft = _checked(graphs, draft)
    lowering = _DraftLowering(graphs, draft, spec, rows, limited)
    return {
        "context": lowering.context_graph(),
        "block": lowering.block_graph(),
        "base": lowering.base_graph(),
        "head": lowering.head_graph(),
    }


def _checked(graphs: Mapping[str, ir.Model], draft: DraftSpec | None) -> DraftSpec:
    problem = None
    if draft is None:
        problem = "it is an MTP head"
    elif not draft.causal:
        problem = "its block is bidirectional"
    elif "head" not in graphs or draft.markov_head_type != "vanilla":
        problem = f"its head is {draft.markov_head_type if 'head' in graphs else 'missing'}"
    elif any(value.name == "confidence" for value in graphs["head"].graph.outputs):
        problem = "it has a confidence head"
    elif draft.head_dim not in HEAD_DIMS:
        problem = f"head_dim {draft.head_dim} is not one of {HEAD_DIMS}"
    if problem is not None or draft is None:
        raise BuildError(
            "edgekit's CUDA kernels cannot run this draft",
            cause=f"{problem}; they run DSpark's causal block with a vanilla Markov head",
            hint="build with --draft none",
        )
    return draft


class _DraftLowering(PluginLowering):
    def __init__(
        self,
        graphs: Mapping[str, ir.Model],
        draft: DraftSpec,
        spec: ModelSpec,
        rows: int,
        limited: bool,
    ) -> None:
        super().__init__(graphs["block"], spec, "draft", rows, limited=limited)
        self.draft = draft
        nodes = [node for model in graphs.values() for node in model.graph]
        self.nodes = {name_of(node.outputs[0]): node for node in nodes}
        heads = {
            "num_heads": draft.num_attention_heads,
            "kv_num_heads": draft.num_key_value_heads,
            "head_dim": draft.head_dim,
        }
        self.heads = heads | {"epsilon": draft.rms_norm_eps}
        self.cache_shape = (draft.num_key_value_heads, rows, draft.head_dim)

    # -- graphs

    def context_graph(self) -> ir.Model:
        draft, H = self.draft, self.draft.hidden_size
        g = self.begin("context")
        x: ir.Value | None = None
        fc = self.source_named("fc")
        for i, layer in enumerate(draft.target_layer_ids):
            tap = g.input(tap_name(layer, self.spec), FLOAT, ["T", H])
            part = slice_columns(f"draft.fc.{i}", fc, i * H, H)
            product = Product(tap, part, f"draft.fc.{i}")
            x = self.emit_product(product, "float32", residual=x, name=f"fused.{i}")
        assert x is not None
        cos, sin = self.angles()
        length = g.input("length", INT32, (1,))
        shape = (draft.num_hidden_layers, *self.cache_shape)
        caches = [g.input(name, BF16, shape) for name in ("key_cache", "value_cache")]
        names = [
            f"layers.{i}.self_attn.{p}_proj" for i in range(draft.num_hidden_layers) for p in "kv"
        ]
        stacked = stack_rows("draft.context_kv", [self.source_named(name) for name in names])
        normed = self.normed(x, "hidden_norm")
        rows = self.emit_product(Product(normed, stacked, "draft.context_kv"), "bfloat16")
        written = self.node(
            "context_rows",
            [rows, self.key_norms(), cos, sin, length, *caches],
            [("key_cache_out", "bfloat16"), ("value_cache_out", "bfloat16")],
            **self.heads | {"num_heads": 0},
            layers=draft.num_hidden_layers,
            rows=self.context,
        )
        for value in written:
            g.output(value, name_of(value), BF16, shape)
        return g.model()

    def block_graph(self) -> ir.Model:
        draft = self.draft
        g = self.begin("block")
        self.arrivals = g.input("arrivals", INT32, (ARRIVALS,))
        tokens = g.input("tokens", INT32, ["T"])
        self.length = g.input("length", INT32, (1,))
        cos, sin = self.angles()
        table = self.nodes["embedded"].inputs[0]
        x = self.looked_up(tokens, table, "embedded")
        for i in range(draft.num_hidden_layers):
            layer = f"layers.{i}"
            y = self.attended(i, self.normed(x, f"{layer}.input_layernorm"), cos, sin)
            x = self.product(f"{layer}.self_attn.o_proj", y, "float32", x)
            normed = self.normed(x, f"{layer}.post_attention_layernorm")
            gate, up = (
                self.product(f"{layer}.mlp.{p}_proj", normed, "bfloat16") for p in ("gate", "up")
            )
            (gated,) = self.node(
                "swiglu",
                [gate, up],
                [(f"{layer}.mlp.gated", "bfloat16")],
                intermediate_size=draft.intermediate_size,
            )
            x = self.product(f"{layer}.mlp.down_proj", gated, "float32", x)
        g.output(x, "draft_hidden", FLOAT, ["T", draft.hidden_size])
        return g.model()

    def base_graph(self) -> ir.Model:
        g = self.begin("base")
        hidden = g.input("draft_hidden", FLOAT, ["R", self.draft.hidden_size])
        source = source_of(self.nodes["base"])
        own = str(source.parts[0].name).startswith("draft.")
        product = Product(
            self.normed(hidden, "norm"), source, "draft.lm_head" if own else "lm_head"
        )
        base = self.emit_product(product, "float32", name="base")
        g.output(base, "base", FLOAT, ["R", self.draft.vocab_size])
        return g.model()

    def head_graph(self) -> ir.Model:
        g = self.begin("head")
        self.arrivals = g.input("arrivals", INT32, (ARRIVALS,))
        token = g.input("tokens", INT32, [1])
        base = g.input("base", FLOAT, [1, self.draft.vocab_size])
        before = self.looked_up(token, self.nodes["markov_row"].inputs[0], "before")
        logits = self.product("markov_head.markov_w2", before, "float32", base, "logits")
        g.output(logits, "logits", FLOAT, [1, self.draft.vocab_size])
        picked(g, logits, self.arrivals, self.draft.vocab_size, [1])
        return g.model()

    # -- parts

    def begin(self, name: str) -> GraphBuilder:
        self.g = GraphBuilder(name, {"": 21, DOMAIN: 1})
        return self.g

    def angles(self) -> tuple[ir.Value, ir.Value]:
        shape: list[int | str] = ["T", self.draft.head_dim // 2]
        return self.g.input("cos", FLOAT, shape), self.g.input("sin", FLOAT, shape)

    def looked_up(self, tokens: ir.Value, table: ir.Value | None, name: str) -> ir.Value:
        width = weight_of(table).dims[1]
        inputs = [tokens, self.weight(table, BFLOAT16)]
        (rows,) = self.node("embed", inputs, [(name, "float32")], hidden_size=width)
        return rows

    def attended(self, i: int, x: Normed, cos: ir.Value, sin: ir.Value) -> ir.Value:
        draft, attention = self.draft, f"layers.{i}.self_attn"
        sources = [self.source_named(f"{attention}.{p}_proj") for p in "qkv"]
        name = f"draft.{attention}.qkv_proj"
        qkv = self.emit_product(Product(x, stack_rows(name, sources), name), "bfloat16")
        norms = [self.weight(self.norm_weight(f"{attention}.{p}_norm")) for p in "qk"]
        (turned,) = self.node(
            "norm_rope",
            [qkv, *norms, cos, sin],
            [(f"{attention}.turned", "bfloat16")],
            **self.heads,
        )
        caches = [self.g.input(f"{p}_cache.{i}", BF16, self.cache_shape) for p in ("key", "value")]
        inputs = [turned, *caches, self.length, self.arrivals]
        if draft.sinks:
            inputs.append(self.weight(self.nodes[f"{attention}.y"].inputs[6]))
        y, *_ = self.node(
            "attention_step",
            inputs,
            [
                (f"{attention}.y", "bfloat16"),
                (f"key_cache_out.{i}", "bfloat16"),
                (f"value_cache_out.{i}", "bfloat16"),
                (f"{attention}.partials", "float32"),
                (f"{attention}.arrivals", "int32"),
            ],
            num_heads=draft.num_attention_heads,
            kv_num_heads=draft.num_key_value_heads,
            head_dim=draft.head_dim,
            scale=draft.head_dim**-0.5,
            context=self.context,
            kv_dtype="bfloat16",
            window=draft.sliding_window or 0,
            sinks=int(draft.sinks),
        )
        return y

    # -- weights

    def source_named(self, module: str) -> Source:
        return source_of(self.nodes[f"{module}.out"])

    def product(
        self,
        module: str,
        x: Normed | ir.Value,
        output: str,
        residual: ir.Value | None = None,
        name: str = "",
    ) -> ir.Value:
        product = Product(x, self.source_named(module), f"draft.{module}")
        return self.emit_product(product, output, residual, name)

    def normed(self, x: ir.Value, module: str) -> Normed:
        weight = self.weight(self.nodes[f"{module}.out"].inputs[1])
        return Normed(x, weight, self.draft.rms_norm_eps)

    def norm_weight(self, module: str) -> ir.Value:
        weight = self.nodes[f"{module}.rotated"].inputs[1]
        assert weight is not None
        return weight

    def key_norms(self) -> ir.Value:
        layers = range(self.draft.num_hidden_layers)
        weights = [weight_of(self.norm_weight(f"layers.{i}.self_attn.k_norm")) for i in layers]
        shape = (len(weights), self.draft.head_dim)

        def stacked() -> np.ndarray:
            return np.stack([weight.numpy().astype(np.float32) for weight in weights])

        return self.g.weight(computed("draft.key_norms", np.dtype(np.float32), shape, stacked))
