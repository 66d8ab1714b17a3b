"""The `plugin` lowering: canonical nodes become launches of edgekit's CUDA kernels.

There are eight graphs over one set of weights, each but prefill for up to eight tokens:

    step      tokens [T] to hidden [T, hidden_size], the residual stream before the last norm, and
              tap.i, the stream after layer i; commits them: recurrent state is updated in place
    verify    the same, but leaves the state alone and returns the rows a commit replays as `stash`
    prefill   the same as step for any number of tokens (plugin_prefill.py)
    head      hidden [R, hidden_size], any rows of it, to logits
    pick      logits [R, vocab_size] to the likeliest tokens [R]
    draw      logits [R, vocab_size] to drawn tokens [R]
    judge     logits and a draft's to the tokens [R] that stay or replace drafted ones
    commit    replays the first n rows of every layer's stash

Norms, squared ReLU and residual sums are held back until the node that can take them in is met:
`Normed`, `Product` and `Experts` are values that nothing computes yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from edgekit.errors import BuildError
from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.lower.packing import (
    PackedWeights,
    Source,
    converted,
    pack_source,
    stack_rows,
)
from edgekit.export.lower.plugin_parts import (
    Experts,
    Normed,
    Product,
    dtype_name,
    expert_sources,
    fits_step,
    mamba_attributes,
    moe_layer,
    name_of,
    source_of,
    weight_of,
)
from edgekit.kernels.attention import KvCache
from edgekit.kernels.moe import MoeLayer
from edgekit.kernels.nodes import (
    ARRIVALS,
    DOMAIN,
    matrix_attributes,
    moe_attributes,
    tap_name,
)
from edgekit.model import ModelSpec
from edgekit.ops.formats import BFLOAT16

GraphKind = Literal["step", "verify", "prefill", "head", "draft"]

F32 = np.dtype(np.float32)
FLOAT, BF16, INT32 = ir.DataType.FLOAT, ir.DataType.BFLOAT16, ir.DataType.INT32
_DTYPES = {"float32": FLOAT, "bfloat16": BF16, "float8_e4m3fn": ir.DataType.FLOAT8E4M3FN}


def lower(
    model: ir.Model,
    spec: ModelSpec,
    kind: GraphKind,
    context: int,
    kv_dtype: KvCache = "bfloat16",
    taps: Sequence[int] = (),
    limited: bool = False,
) -> ir.Model:
    """Lowers a canonical step graph to one of the graphs.

    Args:
        context: rows of the KV caches. kv_dtype: what they hold; e4m3 with a scale of 1.
        taps: the layers that the graph's taps are of.
        limited: every launch stays within MAX_SHARED, those of a step for `most_tokens` tokens.
    """
    return PluginLowering(model, spec, kind, context, kv_dtype, taps, limited).run()


def lower_pick(spec: ModelSpec) -> ir.Model:
    """The graph of greedy choices."""
    g = GraphBuilder("pick", {"": 21, DOMAIN: 1})
    logits = g.input("logits", FLOAT, ["R", spec.vocab_size])
    picked(g, logits, g.input("arrivals", INT32, (ARRIVALS,)), spec.vocab_size, ["R"])
    return g.model()


def lower_draw(spec: ModelSpec) -> ir.Model:
    """The graph of drawn tokens."""
    g = GraphBuilder("draw", {"": 21, DOMAIN: 1})
    V = spec.vocab_size
    logits = g.input("logits", FLOAT, ["R", V])
    arrivals = g.input("arrivals", INT32, (ARRIVALS,))
    found = [logits, *_found(g, logits, arrivals, V, "")]
    _drawn(g, "sample", found, V)
    return g.model()


def lower_judge(spec: ModelSpec) -> ir.Model:
    """The graph of what the target draws behind drafted tokens that were drawn."""
    g = GraphBuilder("judge", {"": 21, DOMAIN: 1})
    V = spec.vocab_size
    logits, base = (g.input(name, FLOAT, ["R", V]) for name in ("logits", "base"))
    arrivals = g.input("arrivals", INT32, (ARRIVALS,))
    found = [logits, *_found(g, logits, arrivals, V, "")]
    found += [base, *_found(g, base, arrivals, V, "draft_")]
    _drawn(g, "judge", [*found, g.input("tokens", INT32, ["R"])], V)
    return g.model()


def _found(
    g: GraphBuilder, logits: ir.Value, arrivals: ir.Value, vocab_size: int, prefix: str
) -> tuple[ir.Value, ir.Value]:
    names = [prefix + name for name in ("best", "slices", "arrivals_out")]
    best, slices, out = g.ops(
        "argmax", [logits, arrivals], names, domain=DOMAIN, vocab_size=vocab_size
    )
    for value in (best, slices, out):
        value.dtype = INT32
    return best, slices


def _drawn(g: GraphBuilder, op: str, found: list[ir.Value], vocab_size: int) -> None:
    words = [g.input(name, INT32, [4]) for name in ("settings", "random")]
    token, scratch = g.ops(
        op, [*found, *words], ["drawn", "scratch"], domain=DOMAIN, vocab_size=vocab_size, philox=1
    )
    scratch.dtype = FLOAT
    g.output(token, "drawn", INT32, ["R"])


def picked(
    g: GraphBuilder,
    logits: ir.Value,
    arrivals: ir.Value,
    vocab_size: int,
    shape: Sequence[int | str],
) -> None:
    """Adds the output `best`, the likeliest token of each row."""
    best, _ = _found(g, logits, arrivals, vocab_size, "")
    g.output(best, "best", INT32, shape)


Lowered = ir.Value | Normed | Product | Experts


class PluginLowering:
    def __init__(
        self,
        model: ir.Model,
        spec: ModelSpec,
        kind: GraphKind,
        context: int,
        kv_dtype: KvCache = "bfloat16",
        taps: Sequence[int] = (),
        limited: bool = False,
    ) -> None:
        self.kv_dtype, self.taps, self.limited = kv_dtype, taps, limited
        self._tiles: dict[Normed | ir.Value, ir.Value] = {}
        self.source, self.spec, self.kind, self.context = model.graph, spec, kind, context
        self.g = GraphBuilder(kind, {"": 21, DOMAIN: 1})
        self.values: dict[ir.Value, Lowered] = {}
        self.routers: dict[ir.Value, ir.Node] = {}
        self.shapes: dict[str, Sequence[int | str]] = {}  # of the graph's inputs

    def run(self) -> ir.Model:
        if self.kind == "head":
            return self.head()
        self.inputs()
        handlers: dict[str, Callable[[ir.Node], None]] = {
            "Linear": self.linear,
            "RmsNorm": self.rms_norm,
            "Mamba2Scan": self.mamba,
            "Attention": self.attention,
            "MoeRoute": self.moe_route,
            "MoeExperts": self.moe_experts,
            "Relu": self.relu,
            "Mul": self.square,
            "Gather": self.gather,
            "Cast": self.embedding,
            "Add": self.add,
            "Concat": self.concat,
        }
        for node in self.source:
            handlers[node.op_type](node)
        return self.g.model()

    # -- values

    def get(self, value: ir.Value | None) -> Lowered:
        assert value is not None
        return self.values[value]

    def computed(self, value: ir.Value | None) -> ir.Value:
        lowered = self.get(value)
        assert isinstance(lowered, ir.Value)
        return lowered

    def inputs(self) -> None:
        spec, g = self.spec, self.g
        cache = (spec.num_key_value_heads, self.context, spec.head_dim)
        shapes: dict[str, tuple[ir.DataType, Sequence[int | str]]] = {
            "tokens": (INT32, ("T",)),
            "length": (INT32, (1,)),
            "conv_state": (FLOAT, (spec.conv_dim, spec.conv_kernel - 1)),
            "ssm_state": (
                FLOAT,
                (spec.mamba_num_heads, spec.mamba_head_dim, spec.ssm_state_size),
            ),
            "key_cache": (_DTYPES[self.kv_dtype], cache),
            "value_cache": (_DTYPES[self.kv_dtype], cache),
        }
        for value in self.source.inputs:
            name = name_of(value)
            kind = name.split(".")[0]
            if kind in shapes and not (kind == "length" and not spec.layers_of("*")):
                dtype, shape = shapes[kind]
                self.values[value] = g.input(name, dtype, shape)
                self.shapes[name] = shape
        self.arrivals = g.input("arrivals", INT32, (ARRIVALS,))

    def node(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[tuple[str, str]],
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """A launch; `outputs` are names and types."""
        values = self.g.ops(op, inputs, [name for name, _ in outputs], domain=DOMAIN, **attributes)
        for value, (_, dtype) in zip(values, outputs, strict=True):
            value.dtype = _DTYPES.get(dtype, INT32)
        return values

    # -- weights

    def weight(self, value: ir.Value | None, dtype: np.dtype[Any] = F32) -> ir.Value:
        return self.g.weight(converted(weight_of(value), dtype))

    def packed(self, name: str, source: Source) -> PackedWeights:
        return pack_source(name, source)

    def matrix_inputs(
        self, packed: PackedWeights, *, always_scales: bool = False
    ) -> list[ir.Value]:
        """Codes, scales where the format has them, scale. A kernel whose signature has `scales`
        always takes another array in their place."""
        codes, scale = self.g.weight(packed.codes), self.g.weight(packed.scale)
        if packed.scales is not None:
            return [codes, self.g.weight(packed.scales), scale]
        return [codes, scale, scale] if always_scales else [codes, scale]

    # -- canonical nodes

    def gather(self, node: ir.Node) -> None:
        if node.inputs[0] is not None and node.inputs[0].const_value is not None:
            return  # the embedding, which the Cast behind it emits
        # Rows of the normed residual stream: this is where the layers end and the head begins.
        normed = self.get(node.inputs[0])
        assert isinstance(normed, Normed)
        self.values[node.outputs[0]] = normed
        self.g.output(normed.x, "hidden", FLOAT, ["T", self.spec.hidden_size])

    def embedding(self, node: ir.Node) -> None:
        assert node.inputs[0] is not None
        gather = node.inputs[0].producer()
        assert gather is not None
        table, tokens = gather.inputs
        width = weight_of(table).dims[1]
        (self.values[node.outputs[0]],) = self.node(
            "embed",
            [self.computed(tokens), self.weight(table, BFLOAT16)],
            [("embedded", "float32")],
            hidden_size=width,
        )

    def rms_norm(self, node: ir.Node) -> None:
        x, weight = node.inputs
        self.values[node.outputs[0]] = Normed(
            self.computed(x), self.weight(weight), node.attributes["epsilon"].value
        )

    def linear(self, node: ir.Node) -> None:
        name = name_of(node.outputs[0]).removesuffix(".out")
        if name == "logits":
            return
        x = self.get(node.inputs[0])
        assert not isinstance(x, Experts)
        self.values[node.outputs[0]] = Product(x, source_of(node), name)

    def relu(self, node: ir.Node) -> None:
        product = self.get(node.inputs[0])
        assert isinstance(product, Product)
        self.values[node.outputs[0]] = replace(product, relu2=True)

    def square(self, node: ir.Node) -> None:
        assert node.inputs[0] is node.inputs[1]
        self.values[node.outputs[0]] = self.get(node.inputs[0])  # its Relu said relu2

    def add(self, node: ir.Node) -> None:
        left, right = (self.get(value) for value in node.inputs)
        name = name_of(node.outputs[0])
        if isinstance(left, Experts):
            assert isinstance(right, Product)
            self.values[node.outputs[0]] = replace(left, shared=right)
        elif isinstance(right, Experts):
            assert isinstance(left, ir.Value)
            self.values[node.outputs[0]] = self.emit_experts(right, left, name)
        else:
            assert isinstance(left, ir.Value)
            assert isinstance(right, Product)
            self.values[node.outputs[0]] = self.emit_product(right, "float32", left, name)

    def concat(self, node: ir.Node) -> None:
        """Taps: the residual stream after a layer is written to an array of its own."""
        for layer, value in zip(self.taps, node.inputs, strict=True):
            tapped = self.get(value)
            if isinstance(tapped, Normed):
                raise BuildError(
                    "edgekit's CUDA kernels cannot return the stream behind the final norm",
                    hint="build with --draft none",
                )
            assert isinstance(tapped, ir.Value)
            if tapped.name != "hidden":  # the last layer's is an output anyway
                self.g.output(
                    tapped, tap_name(layer, self.spec), FLOAT, ["T", self.spec.hidden_size]
                )

    # -- products

    def emit_product(
        self, product: Product, output: str, residual: ir.Value | None = None, name: str = ""
    ) -> ir.Value:
        """The launch that computes a product, plus `residual`."""
        packed = self.packed(product.name, product.source)
        if self.limited and self.kind != "step" and not fits_step(packed.matrix):
            return self.emit_wide_product(product, output, residual, name)
        x: ir.Value | Normed
        if isinstance(product.x, Product):
            x = self.emit_product(product.x, "bfloat16")
        else:
            x = product.x
        if isinstance(x, Normed):
            inputs = [x.x, x.weight]
            norm = {"norm_groups": x.groups, "epsilon": x.epsilon}
        else:
            inputs, norm = [x], {"norm_groups": 0, "epsilon": 0.0}
        inputs += self.matrix_inputs(packed)
        if residual is not None:
            inputs.append(residual)
        (value,) = self.node(
            "linear_step",
            inputs,
            [(name or f"{product.name}.out", output)],
            **matrix_attributes(packed.matrix),
            **norm,
            input=dtype_name(inputs[0]),
            output=output,
            relu2=int(product.relu2),
            residual=int(residual is not None),
        )
        return value

    def tiles(self, x: Normed | ir.Value, K: int, name: str) -> ir.Value:
        """x [T, K] in tile order, computed once."""
        if x not in self._tiles:
            norm: dict[str, Any] = {"norm_groups": 0, "epsilon": 0.0}
            inputs = [x] if isinstance(x, ir.Value) else [x.x, x.weight]
            if isinstance(x, Normed):
                norm = {"norm_groups": x.groups, "epsilon": x.epsilon}
            (self._tiles[x],) = self.node(
                "norm_prefill",
                inputs,
                [(name, "bfloat16")],
                K=K,
                input=dtype_name(inputs[0]),
                **norm,
            )
        return self._tiles[x]

    def emit_wide_product(
        self, product: Product, output: str, residual: ir.Value | None = None, name: str = ""
    ) -> ir.Value:
        """`emit_product` for any number of tokens."""
        packed = self.packed(product.name, product.source)
        if isinstance(product.x, Product):
            x = self.emit_wide_product(product.x, "tiles")
        else:
            x = self.tiles(product.x, packed.matrix.K, f"{product.name}.in")
        inputs = [x, *self.matrix_inputs(packed)]
        if residual is not None:
            inputs.append(residual)
        (value,) = self.node(
            "linear_prefill",
            inputs,
            [(name or f"{product.name}.out", "float32" if output == "float32" else "bfloat16")],
            **matrix_attributes(packed.matrix),
            output=output,
            relu2=int(product.relu2),
            residual=int(residual is not None),
        )
        return value

    # -- Mamba-2

    def mamba(self, node: ir.Node) -> None:
        product = self.get(node.inputs[0])
        assert isinstance(product, Product)
        *small, norm_weight, conv_state, ssm_state = node.inputs[1:]
        layer = name_of(node.outputs[1]).rsplit(".", 1)[1]
        name = f"stash.{layer}" if self.kind == "verify" else ""
        projected = self.emit_product(product, "bfloat16", name=name)
        inputs = [projected, *(self.weight(value) for value in small)]
        states = [self.computed(conv_state), self.computed(ssm_state)]
        outputs = [(name_of(node.outputs[0]), "bfloat16")]
        commits = self.kind != "verify"
        if commits:
            states.append(self.arrivals)
            outputs += [(name_of(value), "float32") for value in node.outputs[2:]]
            outputs.append((f"arrivals_out.{layer}", "int32"))
        else:
            self.g.output(projected, name, BF16, ["T", self.spec.in_proj_dim])
        values = self.scan([*inputs, *states], outputs, **mamba_attributes(self.spec))
        for value, state in zip(values[1:3], states, strict=False):
            self.g.output(value, name_of(value), FLOAT, self.shapes[name_of(state)])
        epsilon = node.attributes["epsilon"].value
        self.values[node.outputs[0]] = Normed(
            values[0], self.weight(norm_weight), epsilon, self.spec.n_groups
        )

    def scan(
        self, inputs: list[ir.Value], outputs: list[tuple[str, str]], **attributes: Any
    ) -> Sequence[ir.Value]:
        commits = int(self.kind != "verify")
        return self.node("mamba2_scan", inputs, outputs, **attributes, commits=commits)

    # -- attention

    def attention(self, node: ir.Node) -> None:
        spec = self.spec
        products = [self.get(value) for value in node.inputs[:3]]
        sources = []
        for product in products:
            assert isinstance(product, Product)
            sources.append(product.source)
        first = products[0]
        assert isinstance(first, Product)
        name = first.name.removesuffix("q_proj") + "qkv_proj"
        stacked = Product(first.x, stack_rows(name, sources), name)
        qkv = self.emit_product(stacked, "bfloat16")
        caches = [self.computed(value) for value in node.inputs[3:5]]
        layer = name_of(caches[0]).rsplit(".", 1)[1]
        y, *written = self.attend(
            layer,
            [qkv, *caches, self.computed(node.inputs[5])],
            [
                (name_of(value), dtype)
                for value, dtype in zip(
                    node.outputs, ("bfloat16", self.kv_dtype, self.kv_dtype), strict=True
                )
            ],
            num_heads=spec.num_attention_heads,
            kv_num_heads=spec.num_key_value_heads,
            head_dim=spec.head_dim,
            scale=node.attributes["scale"].value,
            context=self.context,
            kv_dtype=self.kv_dtype,
        )
        for value, cache in zip(written[:2], caches, strict=True):
            self.g.output(
                value, name_of(value), _DTYPES[self.kv_dtype], self.shapes[name_of(cache)]
            )
        self.values[node.outputs[0]] = y

    def attend(
        self,
        layer: str,
        inputs: list[ir.Value],
        outputs: list[tuple[str, str]],
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        partial = [(f"partials.{layer}", "float32"), (f"arrivals_out.{layer}", "int32")]
        return self.node(
            "attention_step", [*inputs, self.arrivals], outputs + partial, **attributes
        )

    # -- experts

    def moe_route(self, node: ir.Node) -> None:
        self.routers[node.outputs[0]] = node

    def moe_experts(self, node: ir.Node) -> None:
        assert node.inputs[1] is not None
        self.values[node.outputs[0]] = Experts(node, self.routers[node.inputs[1]])

    def emit_experts(self, experts: Experts, residual: ir.Value, name: str) -> ir.Value:
        x = self.get(experts.node.inputs[0])
        assert isinstance(x, Normed)
        mixer = name_of(experts.node.outputs[0]).removesuffix(".routed")
        up, down = (
            self.packed(f"{mixer}.experts.{projection}", source)
            for projection, source in zip(("up", "down"), expert_sources(experts.node), strict=True)
        )
        shared = self.shared_packed(experts.shared)
        layer = moe_layer(self.spec, x.epsilon, up, down, *shared)
        _, gate, bias = experts.router.inputs
        router = [self.weight(gate), self.weight(bias)]
        matrices = [self.matrix_inputs(packed, always_scales=True) for packed in (up, down)]
        return self.experts(mixer, name, layer, x, router, matrices, experts.shared, residual)

    def shared_packed(
        self, shared: Product | None
    ) -> tuple[PackedWeights, PackedWeights] | tuple[None, None]:
        """The shared expert's up and down matrices."""
        if shared is None:
            return None, None
        assert isinstance(shared.x, Product)
        return self.packed(shared.x.name, shared.x.source), self.packed(shared.name, shared.source)

    def experts(
        self,
        mixer: str,
        name: str,
        layer: MoeLayer,
        x: Normed,
        router: list[ir.Value],
        matrices: list[list[ir.Value]],
        shared: Product | None,
        residual: ir.Value,
    ) -> ir.Value:
        """The launches of a layer of experts.

        Args:
            router: gate and correction bias. matrices: inputs for up and for down.
        """
        (gate, bias), (up, down), attributes = router, matrices, moe_attributes(layer)
        shared_up, shared_down = (
            self.matrix_inputs(packed, always_scales=True) if packed is not None else []
            for packed in self.shared_packed(shared)
        )
        _, slots, shares, normed, *shared_hidden, _ = self.node(
            "moe_route_step",
            [x.x, x.weight, gate, bias, *shared_up, self.arrivals],
            [
                (f"{mixer}.scores", "float32"),
                (f"{mixer}.slots", "int32"),
                (f"{mixer}.shares", "float32"),
                (f"{mixer}.normed", "bfloat16"),
                *([(f"{mixer}.shared_hidden", "bfloat16")] if shared_up else ()),
                (f"{mixer}.arrivals_route", "int32"),
            ],
            **attributes,
        )
        (hidden,) = self.node(
            "moe_up_step",
            [normed, slots, shares, *up],
            [(f"{mixer}.hidden", "bfloat16")],
            **attributes,
        )
        y, _, _ = self.node(
            "moe_down_step",
            [hidden, slots, shares, *down, *shared_hidden, *shared_down, residual, self.arrivals],
            [
                (name, "float32"),
                (f"{mixer}.sums", "float32"),
                (f"{mixer}.arrivals_down", "int32"),
            ],
            **attributes,
        )
        return y

    # -- head

    def head(self) -> ir.Model:
        logits = next(value for value in self.source.outputs if value.name == "logits")
        node = logits.producer()
        assert node is not None
        assert node.inputs[0] is not None
        gather = node.inputs[0].producer()
        assert gather is not None
        assert gather.inputs[0] is not None
        norm = gather.inputs[0].producer()
        assert norm is not None
        hidden = self.g.input("hidden", FLOAT, ["R", self.spec.hidden_size])
        normed = Normed(hidden, self.weight(norm.inputs[1]), norm.attributes["epsilon"].value)
        product = Product(normed, source_of(node), "lm_head")
        value = self.emit_product(product, "float32", name="logits")
        self.g.output(value, "logits", FLOAT, ["R", self.spec.vocab_size])
        return self.g.model()
