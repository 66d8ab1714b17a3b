"""The canonical graphs of a DSpark or DFlash draft.

Three graphs, because they run at different times:

- `context` turns taps of committed tokens into rows of the draft's caches:
  ``taps [T, n_taps x hidden_size], cos, sin -> key_rows.i, value_rows.i [T, kv x head_dim]``
- `block` runs the anchor and mask tokens behind it over those caches:
  ``tokens [T], rows [R], length, cos, sin -> base [R, vocab_size], hidden [R, hidden_size]``
- `head`, one drafted token at a time, corrects a row of `base` by the token before it:
  ``tokens [1], base [1, vocab_size] -> logits [1, vocab_size]``; the gated and the recurrent head
  read ``hidden [1, hidden_size]`` too, the recurrent one a ``state [1, rank]`` that it returns as
  ``state_out``, and a confidence head adds ``confidence [1, 1]``.

``cos`` and ``sin`` [T, head_dim / 2] are those of the rows' positions (`edgekit.rope`).
Source: the DSpark paper (DeepSeek 2026) and DFlash (z-lab 2026), in NVIDIA's published layout.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.export.draft_checkpoint import DraftCheckpoint
from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import stored
from edgekit.ops import DOMAIN
from edgekit.ops.formats import PARTS
from edgekit.safetensors import TensorEntry

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def build_draft(checkpoint: DraftCheckpoint) -> dict[str, ir.Model]:
    """The graphs by name; no `head` without a Markov head."""
    writer = _DraftWriter(checkpoint)
    graphs = {"context": writer.context(), "block": writer.block()}
    if checkpoint.spec.markov_rank:
        graphs["head"] = writer.head()
    return graphs


class _DraftWriter:
    def __init__(self, checkpoint: DraftCheckpoint) -> None:
        self.checkpoint = checkpoint
        self.spec = checkpoint.spec
        self.kv_width = self.spec.num_key_value_heads * self.spec.head_dim

    def context(self) -> ir.Model:
        g = self.g = GraphBuilder("context")
        spec = self.spec
        taps = g.input("taps", FLOAT, ["T", len(spec.target_layer_ids) * spec.hidden_size])
        self.angles()
        c = self.norm(self.linear(taps, "fc"), "hidden_norm")
        for i in range(spec.num_hidden_layers):
            key, value = self.keys_values(c, i)
            g.output(key, f"key_rows.{i}", FLOAT, ["T", self.kv_width])
            g.output(value, f"value_rows.{i}", FLOAT, ["T", self.kv_width])
        return g.model()

    def block(self) -> ir.Model:
        g = self.g = GraphBuilder("block")
        spec, checkpoint = self.spec, self.checkpoint
        tokens = g.input("tokens", INT64, ["T"])
        rows = g.input("rows", INT64, ["R"])
        self.length = g.input("length", INT64, [])
        self.angles()
        table = self.shared(checkpoint.embedding)
        x = g.op("Cast", [g.op("Gather", [table, tokens], "embedded")], "x", to=FLOAT.value)
        for i in range(spec.num_hidden_layers):
            layer = f"layers.{i}"
            normed = self.norm(x, f"{layer}.input_layernorm")
            x = g.op("Add", [x, self.attention(i, normed)], f"{layer}.attended")
            normed = self.norm(x, f"{layer}.post_attention_layernorm")
            gate, up = (self.linear(normed, f"{layer}.mlp.{p}_proj") for p in ("gate", "up"))
            gated = g.op("SwiGlu", [gate, up], f"{layer}.mlp.gated", domain=DOMAIN)
            x = g.op("Add", [x, self.linear(gated, f"{layer}.mlp.down_proj")], layer)
        hidden = g.op("Gather", [self.norm(x, "norm"), rows], "hidden")
        parts = [self.shared(entry) for entry in checkpoint.lm_head]
        form = checkpoint.lm_head_format
        base = g.op("Linear", [hidden, *parts], "base", domain=DOMAIN, format=form)
        g.output(base, "base", FLOAT, ["R", spec.vocab_size])
        g.output(hidden, "hidden", FLOAT, ["R", spec.hidden_size])
        return g.model()

    def head(self) -> ir.Model:
        g = self.g = GraphBuilder("head")
        spec, rank = self.spec, self.spec.markov_rank
        kind = spec.markov_head_type
        tokens = g.input("tokens", INT64, [1])
        base = g.input("base", FLOAT, [1, spec.vocab_size])
        reads_hidden = kind != "vanilla" or self.checkpoint.confidence
        hidden = g.input("hidden", FLOAT, [1, spec.hidden_size]) if reads_hidden else None
        table = self.tensor("markov_head.markov_w1.weight")
        gathered = g.op("Gather", [table, tokens], "markov_row")
        before = g.op("Cast", [gathered], "before", to=FLOAT.value)
        x = before
        if kind == "gated":
            gate = self.affine([hidden, before], "markov_head.gate_proj")
            x = g.op("Mul", [g.op("Sigmoid", [gate], "gate"), before], "gated")
        elif kind == "rnn":
            state = g.input("state", FLOAT, [1, rank])
            joint = self.affine([state, before, hidden], "markov_head.joint_proj")
            names = ["gate_raw", "candidate_raw", "output_raw"]
            raw = g.ops("Split", [joint], names, axis=-1, num_outputs=3)
            gate = g.op("Sigmoid", [raw[0]], "gate")
            candidate = g.op("Tanh", [raw[1]], "candidate")
            # gate state + (1 - gate) candidate
            change = g.op("Mul", [gate, g.op("Sub", [state, candidate], "behind")], "change")
            g.output(g.op("Add", [candidate, change], "after"), "state_out", FLOAT, [1, rank])
            x = g.op("Tanh", [raw[2]], "markov_out")
        bias = self.linear(x, "markov_head.markov_w2")
        logits = g.op("Add", [base, bias], "corrected")
        g.output(logits, "logits", FLOAT, [1, spec.vocab_size])
        if self.checkpoint.confidence:
            survives = self.affine([hidden, before], "confidence_head.proj")
            g.output(g.op("Sigmoid", [survives], "survives"), "confidence", FLOAT, [1, 1])
        return g.model()

    # -- parts

    def angles(self) -> None:
        half = self.spec.head_dim // 2
        self.cos, self.sin = (self.g.input(name, FLOAT, ["T", half]) for name in ("cos", "sin"))

    def keys_values(self, x: ir.Value, i: int) -> tuple[ir.Value, ir.Value]:
        attention = f"layers.{i}.self_attn"
        key = self.rotated(self.linear(x, f"{attention}.k_proj"), f"{attention}.k_norm")
        return key, self.linear(x, f"{attention}.v_proj")

    def attention(self, i: int, x: ir.Value) -> ir.Value:
        g, spec = self.g, self.spec
        attention = f"layers.{i}.self_attn"
        shape = (spec.num_key_value_heads, "S", spec.head_dim)
        caches = [g.input(f"{name}_cache.{i}", FLOAT, shape) for name in ("key", "value")]
        query = self.rotated(self.linear(x, f"{attention}.q_proj"), f"{attention}.q_norm")
        sinks = [self.tensor(f"{attention}.attention_sink_bias")] if spec.sinks else []
        y = g.op(
            "BlockAttention",
            [query, *self.keys_values(x, i), *caches, self.length, *sinks],
            f"{attention}.y",
            domain=DOMAIN,
            num_heads=spec.num_attention_heads,
            kv_num_heads=spec.num_key_value_heads,
            scale=spec.head_dim**-0.5,
            window=spec.sliding_window or 0,
            causal=int(spec.causal),
        )
        return self.linear(y, f"{attention}.o_proj")

    def rotated(self, x: ir.Value, norm: str) -> ir.Value:
        return self.g.op(
            "NormRope",
            [x, self.tensor(f"{norm}.weight"), self.cos, self.sin],
            f"{norm}.rotated",
            domain=DOMAIN,
            epsilon=self.spec.rms_norm_eps,
        )

    # -- weights

    def shared(self, entry: TensorEntry) -> ir.Value:
        """A tensor that may be the target's; then it has the target's name and is stored once."""
        target = self.checkpoint.target.tensors.get(entry.name) is entry
        return self.g.weight(stored(entry.name if target else f"draft.{entry.name}", [entry]))

    def tensor(self, name: str) -> ir.Value:
        return self.g.weight(stored(f"draft.{name}", [self.checkpoint.tensors[name]]))

    def linear(self, x: ir.Value, module: str) -> ir.Value:
        form = self.checkpoint.formats[module]
        weights = [self.tensor(f"{module}.{part}") for part in PARTS[form]]
        return self.g.op("Linear", [x, *weights], f"{module}.out", domain=DOMAIN, format=form)

    def affine(self, inputs: list[ir.Value | None], module: str) -> ir.Value:
        """A small head's matrix and bias over its inputs side by side."""
        joined = self.g.op("Concat", inputs, f"{module}.in", axis=-1)
        if module in self.checkpoint.formats:
            product = self.linear(joined, module)
        else:
            weight = self.tensor(f"{module}.weight")
            product = self.g.op(
                "Linear", [joined, weight], f"{module}.out", domain=DOMAIN, format="dense"
            )
        bias = self.g.op(
            "Cast", [self.tensor(f"{module}.bias")], f"{module}.bias_f32", to=FLOAT.value
        )
        return self.g.op("Add", [product, bias], f"{module}.affine")

    def norm(self, x: ir.Value, module: str) -> ir.Value:
        return self.g.op(
            "RmsNorm",
            [x, self.tensor(f"{module}.weight")],
            f"{module}.out",
            domain=DOMAIN,
            epsilon=self.spec.rms_norm_eps,
        )
