"""The canonical graph of NemotronH: `h = h + mixer(norm(h))` for each layer, then norm and head.

Inputs are ``tokens [T]``, ``rows [R]`` (which positions need logits), ``length`` (tokens already
cached) and the state of each layer; outputs are ``logits [R, vocab_size]``, the new state, the
replay stash of each Mamba layer, and ``taps [T, n_taps x hidden_size]`` when layers are tapped.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgekit.errors import CheckpointError
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import Weight, stored
from edgekit.ops import DOMAIN
from edgekit.ops.formats import PARTS, WeightFormat

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64


def build_step(checkpoint: Checkpoint, taps: Sequence[int] = ()) -> ir.Model:
    """The graph that runs T tokens.

    Args:
        taps: layers whose output residual stream is returned, in this order; one past the last
            layer is the stream behind the final norm.
    """
    return StepWriter(checkpoint).write(taps)


def build_commit(checkpoint: Checkpoint) -> ir.Model | None:
    """The graph that replays n stashed rows into the state; None without Mamba layers."""
    spec = checkpoint.spec
    if "M" not in spec.layers:
        return None
    writer = StepWriter(checkpoint)
    g = writer.g = GraphBuilder("commit")
    for i in spec.layers_of("M"):
        stash = g.input(f"stash.{i}", FLOAT, ["n", spec.conv_dim + spec.mamba_num_heads])
        conv_state, ssm_state = writer.mamba_state(i)
        conv_out, ssm_out = g.ops(
            "Mamba2Commit",
            [stash, *writer.recurrence_weights(i, with_D=False), conv_state, ssm_state],
            [f"conv_state_out.{i}", f"ssm_state_out.{i}"],
            domain=DOMAIN,
            n_groups=spec.n_groups,
        )
        g.output(conv_out, f"conv_state_out.{i}", FLOAT, writer.conv_shape)
        g.output(ssm_out, f"ssm_state_out.{i}", FLOAT, writer.ssm_shape)
    return g.model()


class StepWriter:
    """Writes a step graph.

    Args:
        layers: the module that the layers are numbered in.
    """

    def __init__(self, checkpoint: Checkpoint, layers: str = "backbone.layers") -> None:
        self.layers = layers
        self.checkpoint = checkpoint
        self.spec = spec = checkpoint.spec
        self.g = GraphBuilder("step")
        self.conv_shape = (spec.conv_dim, spec.conv_kernel - 1)
        self.ssm_shape = (spec.mamba_num_heads, spec.mamba_head_dim, spec.ssm_state_size)

    def write(self, taps: Sequence[int]) -> ir.Model:
        g, spec = self.g, self.spec
        tokens = g.input("tokens", INT64, ["T"])
        rows = g.input("rows", INT64, ["R"])
        self.length = g.input("length", INT64, [])

        embedded = g.op("Gather", [self.tensor("backbone.embeddings.weight"), tokens], "embedded")
        h = g.op("Cast", [embedded], "hidden", to=FLOAT.value)
        tapped = {}
        mixers = {"M": self.mamba, "E": self.moe, "*": self.attention, "-": self.mlp}
        for i, kind in enumerate(spec.layers):
            layer = f"{self.layers}.{i}"
            normed = self.norm(h, f"{layer}.norm")
            h = g.op("Add", [h, mixers[kind](i, normed)], layer)
            tapped[i] = h
        h = self.norm(h, "backbone.norm_f")
        tapped[spec.num_hidden_layers] = h
        h = g.op("Gather", [h, rows], "final")
        logits = self.linear(h, "lm_head")
        g.output(logits, "logits", FLOAT, ["R", spec.vocab_size])
        if taps:
            chosen = g.op("Concat", [tapped[i] for i in taps], "taps", axis=-1)
            g.output(chosen, "taps", FLOAT, ["T", len(taps) * spec.hidden_size])
        return g.model()

    # -- mixers: [T, hidden_size] -> [T, hidden_size]

    def mamba(self, i: int, x: ir.Value) -> ir.Value:
        g, spec = self.g, self.spec
        mixer = f"{self.layers}.{i}.mixer"
        projected = self.linear(x, f"{mixer}.in_proj")
        conv_state, ssm_state = self.mamba_state(i)
        y, stash, conv_out, ssm_out = g.ops(
            "Mamba2Scan",
            [
                projected,
                *self.recurrence_weights(i, with_D=True),
                self.tensor(f"{mixer}.norm.weight"),
                conv_state,
                ssm_state,
            ],
            [f"{mixer}.y", f"stash.{i}", f"conv_state_out.{i}", f"ssm_state_out.{i}"],
            domain=DOMAIN,
            n_groups=spec.n_groups,
            epsilon=spec.layer_norm_epsilon,
        )
        g.output(stash, f"stash.{i}", FLOAT, ["T", spec.conv_dim + spec.mamba_num_heads])
        g.output(conv_out, f"conv_state_out.{i}", FLOAT, self.conv_shape)
        g.output(ssm_out, f"ssm_state_out.{i}", FLOAT, self.ssm_shape)
        return self.linear(y, f"{mixer}.out_proj")

    def attention(self, i: int, x: ir.Value) -> ir.Value:
        g, spec = self.g, self.spec
        mixer = f"{self.layers}.{i}.mixer"
        shape = (spec.num_key_value_heads, "S", spec.head_dim)
        caches = [g.input(f"{name}_cache.{i}", FLOAT, shape) for name in ("key", "value")]
        projections = [self.linear(x, f"{mixer}.{name}_proj") for name in "qkv"]
        y, key_out, value_out = g.ops(
            "Attention",
            [*projections, *caches, self.length],
            [f"{mixer}.y", f"key_cache_out.{i}", f"value_cache_out.{i}"],
            domain=DOMAIN,
            num_heads=spec.num_attention_heads,
            kv_num_heads=spec.num_key_value_heads,
            scale=spec.head_dim**-0.5,
        )
        g.output(key_out, f"key_cache_out.{i}", FLOAT, shape)
        g.output(value_out, f"value_cache_out.{i}", FLOAT, shape)
        return self.linear(y, f"{mixer}.o_proj")

    def moe(self, i: int, x: ir.Value) -> ir.Value:
        g, spec = self.g, self.spec
        mixer = f"{self.layers}.{i}.mixer"
        weights, indices = g.ops(
            "MoeRoute",
            [
                x,
                self.tensor(f"{mixer}.gate.weight"),
                self.tensor(f"{mixer}.gate.e_score_correction_bias"),
            ],
            [f"{mixer}.gate.weights", f"{mixer}.gate.indices"],
            domain=DOMAIN,
            top_k=spec.num_experts_per_tok,
            n_group=spec.n_group,
            topk_group=spec.topk_group,
            norm_topk_prob=int(spec.norm_topk_prob),
            routed_scaling_factor=spec.routed_scaling_factor,
        )
        up, form = self.experts(i, "up_proj")
        down, down_form = self.experts(i, "down_proj")
        routed = g.op(
            "MoeExperts",
            [x, weights, indices, *up, *down],
            f"{mixer}.routed",
            domain=DOMAIN,
            up_format=form,
            down_format=down_form,
        )
        if not spec.n_shared_experts:
            return routed
        return g.op("Add", [routed, self.ffn(x, f"{mixer}.shared_experts")], f"{mixer}.y")

    def mlp(self, i: int, x: ir.Value) -> ir.Value:
        return self.ffn(x, f"{self.layers}.{i}.mixer")

    def ffn(self, x: ir.Value, module: str) -> ir.Value:
        """down(relu(up x)^2)."""
        g = self.g
        rectified = g.op("Relu", [self.linear(x, f"{module}.up_proj")], f"{module}.rectified")
        squared = g.op("Mul", [rectified, rectified], f"{module}.squared")
        return self.linear(squared, f"{module}.down_proj")

    # -- weights

    def tensor(self, name: str) -> ir.Value:
        return self.g.weight(stored(name, [self.checkpoint.entry(name)]))

    def linear(self, x: ir.Value, module: str) -> ir.Value:
        parts = [self.tensor(entry.name) for entry in self.checkpoint.parts(module)]
        form = self.checkpoint.formats[module]
        return self.g.op("Linear", [x, *parts], f"{module}.out", domain=DOMAIN, format=form)

    def norm(self, x: ir.Value, module: str) -> ir.Value:
        return self.g.op(
            "RmsNorm",
            [x, self.tensor(f"{module}.weight")],
            f"{module}.out",
            domain=DOMAIN,
            epsilon=self.spec.layer_norm_epsilon,
        )

    def experts(self, i: int, projection: str) -> tuple[list[ir.Value], str]:
        """One projection of all experts, stacked part by part, and its format."""
        mixer = f"{self.layers}.{i}.mixer"
        modules = [f"{mixer}.experts.{e}.{projection}" for e in range(self.spec.n_routed_experts)]
        form = self.uniform_format(modules)
        weights: list[Weight] = []
        for part in PARTS[form]:
            entries = [self.checkpoint.entry(f"{module}.{part}") for module in modules]
            shape = (len(entries), *(entries[0].shape if entries[0].shape != (1,) else ()))
            weights.append(stored(f"{mixer}.experts.{projection}.{part}", entries, shape))
        return [self.g.weight(weight) for weight in weights], form

    def uniform_format(self, modules: Sequence[str]) -> WeightFormat:
        forms = {self.checkpoint.formats[module] for module in modules}
        stored = {tuple(part.dtype for part in self.checkpoint.parts(m)) for m in modules}
        if len(stored) > 1:
            found = sorted({str(dtypes[0]) for dtypes in stored} | {str(form) for form in forms})
            raise CheckpointError(
                f"the experts of {modules[0].split('.experts')[0]} differ in format",
                cause=f"found {', '.join(found)}",
                hint="quantize all experts of a layer alike",
            )
        return forms.pop()

    def recurrence_weights(self, i: int, *, with_D: bool) -> list[ir.Value]:
        """conv weight and bias, A_log, (D,) dt_bias of one Mamba layer."""
        mixer, spec = f"{self.layers}.{i}.mixer", self.spec
        conv = self.checkpoint.entry(f"{mixer}.conv1d.weight")
        conv_weight = stored(conv.name, [conv], (spec.conv_dim, spec.conv_kernel))
        if spec.use_conv_bias:
            conv_bias = self.tensor(f"{mixer}.conv1d.bias")
        else:
            conv_bias = self.g.const(f"{mixer}.conv1d.bias", [0.0] * spec.conv_dim, "float32")
        heads = [self.tensor(f"{mixer}.A_log")]
        if with_D:
            heads.append(self.tensor(f"{mixer}.D"))
        heads.append(self.tensor(f"{mixer}.dt_bias"))
        return [self.g.weight(conv_weight), conv_bias, *heads]

    def mamba_state(self, i: int) -> tuple[ir.Value, ir.Value]:
        conv = self.g.input(f"conv_state.{i}", FLOAT, self.conv_shape)
        ssm = self.g.input(f"ssm_state.{i}", FLOAT, self.ssm_shape)
        return conv, ssm
