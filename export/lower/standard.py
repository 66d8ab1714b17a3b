"""The `standard` lowering: canonical nodes become ONNX's own operators, for any number of tokens.

It is what TensorRT for RTX builds, which takes no plugins, and any TensorRT whose plugins do not
do. Activations between operators are float32; matrix products, the embedding and the KV caches are
in one type `compute`, bfloat16 in an engine and float32 in the tests that compare with the
reference. Weights keep their stored bits (`standard_weights.py`). Inputs and outputs are those of
the canonical graph, except that caches are [1, kv heads, context, head_dim] of `compute`:
TensorScatter appends to them, in place where past and present are one buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import onnx_ir as ir

from edgekit.export.graph.builder import Dim, GraphBuilder
from edgekit.export.lower.plugin_parts import expert_sources, name_of, source_of, weight_of
from edgekit.export.lower.standard_mamba import MambaWriter, Recurrence
from edgekit.export.lower.standard_moe import MoeWriter
from edgekit.export.lower.standard_parts import write_order
from edgekit.export.lower.standard_weights import in_dtype, matrix
from edgekit.model import ModelSpec

OPSET, IR_VERSION = 25, 11  # four-bit floats with block scales, and their type
FLOAT = ir.DataType.FLOAT
Compute = Literal["float32", "bfloat16"]
TYPES = {"float32": FLOAT, "bfloat16": ir.DataType.BFLOAT16}


def lower(model: ir.Model, spec: ModelSpec, context: int, compute: Compute) -> ir.Model:
    """Lowers a canonical step or commit graph.

    Args:
        context: rows of the KV caches.
        compute: type of matrix products, embedding and caches.
    """
    return StandardLowering(model, spec, context, TYPES[compute]).run()


class StandardLowering:
    def __init__(
        self, model: ir.Model, spec: ModelSpec, context: int, compute: ir.DataType
    ) -> None:
        self.source, self.spec = model.graph, spec
        self.context, self.compute = context, compute
        self.g = GraphBuilder(str(model.graph.name), {"": OPSET}, ir_version=IR_VERSION)
        self.values: dict[ir.Value, ir.Value] = {}
        self.visible: ir.Value | None = None
        self.routes: dict[ir.Value, ir.Value] = {}  # weights [T, E] by what MoeExperts takes

    def run(self) -> ir.Model:
        self.inputs()
        self.order = write_order(self.g, self.get(self.source.inputs[0]))  # tokens, or a stash
        handlers = self.handlers()
        for node in self.source:
            handlers.get(node.op_type, self.same)(node)
        for value in self.source.outputs:
            lowered = self.get(value)
            is_cache = "_cache_out." in name_of(value)
            shape = self.cache_shape if is_cache else _dims(value)
            self.g.output(lowered, name_of(value), self.compute if is_cache else FLOAT, shape)
        return self.g.model()

    def handlers(self) -> dict[str, Callable[[ir.Node], None]]:
        """What lowers a node of each type; `same` lowers the others."""
        return {
            "Linear": self.linear,
            "RmsNorm": self.rms_norm,
            "Mamba2Scan": self.mamba2_scan,
            "Mamba2Commit": self.mamba2_commit,
            "Attention": self.attention,
            "MoeRoute": self.moe_route,
            "MoeExperts": self.moe_experts,
            "Gather": self.gather,
        }

    # -- values

    def get(self, value: ir.Value | None) -> ir.Value:
        assert value is not None
        return self.values[value]

    @property
    def cache_shape(self) -> list[Dim]:
        return [1, self.spec.num_key_value_heads, self.context, self.spec.head_dim]

    @property
    def has_attention(self) -> bool:
        return bool(self.spec.layers_of("*"))

    def inputs(self) -> None:
        for value in self.source.inputs:
            name = name_of(value)
            assert value.dtype is not None
            if name == "length" and not self.has_attention:
                continue
            if "_cache." in name:
                self.values[value] = self.g.input(name, self.compute, self.cache_shape)
            else:
                self.values[value] = self.g.input(name, value.dtype, _dims(value))

    def cast(self, x: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
        """x in another type; itself where everything is float32."""
        return x if self.compute == FLOAT else self.g.op("Cast", [x], name, to=dtype.value)

    def ints(self, *values: int) -> ir.Value:
        return self.g.const("ints." + ".".join(map(str, values)), list(values))

    # -- canonical operators

    def linear(self, node: ir.Node) -> None:
        name = name_of(node.outputs[0])
        weight = matrix(self.g, source_of(node), self.compute)
        transposed = self.g.op("Transpose", [weight.values], f"{name}.weight_t", perm=[1, 0])
        x = self.cast(self.get(node.inputs[0]), self.compute, f"{name}.x")
        product = self.g.op("MatMul", [x, transposed], f"{name}.product")
        product = self.cast(product, FLOAT, f"{name}.product_f32")
        if weight.scale is not None:
            product = self.g.op("Mul", [product, self.g.weight(weight.scale)], name)
        self.values[node.outputs[0]] = product

    def rms_norm(self, node: ir.Node) -> None:
        x, weight = node.inputs
        self.values[node.outputs[0]] = self.g.op(
            "RMSNormalization",
            [self.get(x), self.g.weight(in_dtype(weight_of(weight), FLOAT))],
            name_of(node.outputs[0]),
            axis=-1,
            epsilon=node.attributes["epsilon"].value,
        )

    def mamba2_scan(self, node: ir.Node) -> None:
        projected, conv, bias, A_log, D, dt_bias, norm, conv_state, ssm_state = node.inputs
        writer = MambaWriter(
            self.g, self.spec, name_of(node.outputs[0]).removesuffix(".y"), self.order
        )
        y_out, stash_out, conv_out, ssm_out = node.outputs
        width = self.spec.conv_dim + self.spec.mamba_num_heads
        z, stash = self.g.ops(
            "Split",
            [self.get(projected), self.ints(self.spec.d_inner, width)],
            [f"{writer.prefix}.z", name_of(stash_out)],
            axis=1,
        )
        inputs = Recurrence(
            weight_of(conv),
            weight_of(bias),
            weight_of(A_log),
            weight_of(D),
            weight_of(dt_bias),
            (self.get(conv_state), self.get(ssm_state)),
        )
        y, *states = writer.recurrence(stash, inputs)
        assert y is not None
        epsilon = node.attributes["epsilon"].value
        self.values[y_out] = writer.gated_norm(y, z, weight_of(norm), epsilon)
        self.values[stash_out] = stash
        self.values[conv_out], self.values[ssm_out] = states

    def mamba2_commit(self, node: ir.Node) -> None:
        stash, conv, bias, A_log, dt_bias, conv_state, ssm_state = node.inputs
        layer = name_of(node.outputs[0]).rsplit(".", 1)[1]
        writer = MambaWriter(self.g, self.spec, f"backbone.layers.{layer}.mixer", self.order)
        inputs = Recurrence(
            weight_of(conv),
            weight_of(bias),
            weight_of(A_log),
            None,
            weight_of(dt_bias),
            (self.get(conv_state), self.get(ssm_state)),
        )
        _, *states = writer.recurrence(self.get(stash), inputs)
        for output, state in zip(node.outputs, states, strict=True):
            self.values[output] = state

    def attention(self, node: ir.Node) -> None:
        g, spec, ints = self.g, self.spec, self.ints
        q, k, v, key_cache, value_cache, length = node.inputs
        mixer = name_of(node.outputs[0]).removesuffix(".y")
        kv = spec.num_key_value_heads

        def heads(x: ir.Value | None, count: int, name: str) -> ir.Value:
            """[T, count x head_dim] to [1, count, T, head_dim]."""
            rows = self.cast(self.get(x), self.compute, f"{mixer}.{name}_rows")
            shape = ints(1, -1, count, spec.head_dim)
            split = g.op("Reshape", [rows, shape], f"{mixer}.{name}_split")
            return g.op("Transpose", [split], f"{mixer}.{name}_heads", perm=[0, 2, 1, 3])

        at = g.op("Reshape", [self.get(length), ints(1)], f"{mixer}.at")
        caches = []
        for cache, new, name in ((key_cache, k, "k"), (value_cache, v, "v")):
            inputs = [self.get(cache), heads(new, kv, name), at]
            appended = g.op("TensorScatter", inputs, f"{mixer}.{name}_cache", axis=2, mode="linear")
            caches.append(appended)
        y = g.op(
            "Attention",
            [heads(q, spec.num_attention_heads, "q"), *caches, self.mask(length)],
            f"{mixer}.attended",
            scale=node.attributes["scale"].value,
        )
        y = g.op("Transpose", [y], f"{mixer}.y_split", perm=[0, 2, 1, 3])
        width = spec.num_attention_heads * spec.head_dim
        y = g.op("Reshape", [y, ints(-1, width)], f"{mixer}.y_rows")
        results = (self.cast(y, FLOAT, f"{mixer}.y"), *caches)
        for output, result in zip(node.outputs, results, strict=True):
            self.values[output] = result

    def mask(self, length: ir.Value | None) -> ir.Value:
        """[1, 1, T, context] bools, true where a token may look; one for all layers."""
        if self.visible is None:
            g = self.g
            positions = g.op("Add", [self.order.column, self.get(length)], "positions")
            every = g.const("cache.positions", np.arange(self.context).reshape(1, 1, 1, -1))
            self.visible = g.op("LessOrEqual", [every, positions], "attention.mask")
        return self.visible

    def moe_route(self, node: ir.Node) -> None:
        x, gate, bias = node.inputs
        weights, _ = node.outputs
        mixer = name_of(weights).removesuffix(".gate.weights")
        route = {name: attribute.value for name, attribute in node.attributes.items()}
        writer = MoeWriter(self.g, self.spec, mixer, self.compute)
        self.routes[weights] = writer.route(self.get(x), weight_of(gate), weight_of(bias), route)

    def moe_experts(self, node: ir.Node) -> None:
        x, weights = node.inputs[:2]
        assert weights is not None
        name = name_of(node.outputs[0])
        writer = MoeWriter(self.g, self.spec, name.removesuffix(".routed"), self.compute)
        x = self.cast(self.get(x), self.compute, f"{writer.prefix}.x")
        up, down = expert_sources(node)
        routed = writer.experts(x, self.routes[weights], up, down)
        self.values[node.outputs[0]] = self.cast(routed, FLOAT, name)

    # -- standard operators

    def gather(self, node: ir.Node) -> None:
        data, index = node.inputs
        assert data is not None
        name = name_of(node.outputs[0])
        if data.const_value is None:
            self.values[node.outputs[0]] = self.g.op(
                "Gather", [self.get(data), self.get(index)], name
            )
            return
        table = self.g.weight(in_dtype(weight_of(data), self.compute))
        rows = self.g.op("Gather", [table, self.get(index)], f"{name}.rows")
        self.values[node.outputs[0]] = self.cast(rows, FLOAT, name)

    def same(self, node: ir.Node) -> None:
        if node.op_type == "Cast":  # of the embedding, which is float32 by now
            self.values[node.outputs[0]] = self.get(node.inputs[0])
            return
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        inputs = [self.get(value) for value in node.inputs]
        names = [name_of(value) for value in node.outputs]
        made = self.g.ops(node.op_type, inputs, names, **attributes)
        self.values |= zip(node.outputs, made, strict=True)


def _dims(value: ir.Value) -> list[Dim]:
    assert value.shape is not None
    return [dim if isinstance(dim, int) else str(dim.value) for dim in value.shape]
