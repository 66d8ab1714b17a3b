"""The `ort` lowering: canonical nodes become ONNX Runtime operators (domain com.microsoft).

Activations are float32, as ONNX Runtime's CPU kernels want them, and gain a batch axis: [1, T,
width]. int4 weights stay 4 bits (`MatMulNBits`, `QMoE`); those kernels round activations to 8 bits,
block by block. All other weights become float32, quantized ones exactly, while they are written.

Three operators need a word:

- `LinearAttention` (gated) is the Mamba-2 recurrence with q = C, k = B, v = delta x, decay =
  delta A and scale 1, groups read by several heads. Its state is transposed to
  [1, heads, ssm_state_size, head_dim].
- `MoE` has no squared ReLU on the CPU. Its SwiGLU over the same matrix twice does it:
  h sigmoid(a h) h tends to relu(h)^2, off by less than 0.3 / a^2, so a = 1e4 is exact in float32.
- `MoEGroupRouter` returns log sigmoid at the chosen experts and a large negative number elsewhere,
  so MoE's own softmax yields the normalised sigmoid weights.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder, sizes
from edgekit.export.graph.tensors import Weight, computed
from edgekit.export.lower.ort_block import bidirectional_attention
from edgekit.export.lower.ort_weights import experts, matmul, matmul_nbits
from edgekit.model import ModelSpec
from edgekit.ops.formats import PARTS

MS = "com.microsoft"
FLOAT, INT64, INT32 = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32
F32 = np.dtype(np.float32)

_SQUARED_RELU = {
    "activation_type": "swiglu",
    "swiglu_fusion": 1,
    "activation_alpha": 1e4,
    "activation_beta": 0.0,
    "normalize_routing_weights": 1,
}
_INT8_ACTIVATIONS = (
    4  # accuracy level: with float activations these kernels are slower than float32
)
_NOT_CHOSEN = -1e4  # exp underflows to 0, and no log sigmoid of a real score comes near


ATTENTIONS = ("Attention", "BlockAttention")


def lower(model: ir.Model, spec: ModelSpec) -> ir.Model:
    """Lowers a canonical graph of the target, or of its draft or MTP head.

    Args:
        spec: of the target.
    """
    return _OrtLowering(model, spec).run()


class _OrtLowering:
    def __init__(self, model: ir.Model, spec: ModelSpec) -> None:
        self.source = model.graph
        self.spec = spec
        self.g = GraphBuilder(str(model.graph.name), {"": 21, MS: 1})
        self.values: dict[ir.Value, ir.Value] = {}
        # An Add that a RmsNorm may absorb, and the router a MoeExperts node belongs to.
        self.pending_adds: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self.routers: dict[ir.Value, ir.Node] = {}
        self.stash_dt: dict[ir.Value, ir.Value] = {}
        self.row_numbers: ir.Value | None = None

    def run(self) -> ir.Model:
        self.inputs()
        handlers: dict[str, Callable[[ir.Node], None]] = {
            "Linear": self.linear,
            "RmsNorm": self.rms_norm,
            "Mamba2Scan": self.mamba2_scan,
            "Mamba2Commit": self.mamba2_commit,
            "Attention": self.attention,
            "BlockAttention": self.block_attention,
            "NormRope": self.norm_rope,
            "SwiGlu": self.swiglu,
            "MoeRoute": self.moe_route,
            "MoeExperts": self.moe_experts,
            "Gather": self.gather,
            "Cast": self.cast,
            "Add": self.add,
        }
        for node in self.source:
            handlers.get(node.op_type, self.same)(node)
        for value in self.source.outputs:
            if "_out." not in str(value.name) and not str(value.name).startswith("stash."):
                self.g.output(self.get(value), _name(value), FLOAT, [1, *sizes(value)])
        return self.g.model()

    # -- values

    def get(self, value: ir.Value) -> ir.Value:
        """The lowered form of a canonical value, emitting the Add that was held back for it."""
        if value.const_value is not None:
            return self.as_float(value)
        if value in self.pending_adds:
            left, right = self.pending_adds.pop(value)
            self.values[value] = self.g.op("Add", [left, right], _name(value))
        return self.values[value]

    def inputs(self) -> None:
        spec, g = self.spec, self.g
        for value in self.source.inputs:
            name = str(value.name)
            kind = name.split(".")[0]
            dims = sizes(value)
            if name == "tokens":
                lowered = g.input(name, INT64, [1, *dims])
            elif name == "rows":
                lowered = g.input(name, INT64, dims)
            elif name == "length":
                attentions = [node for node in self.source if node.op_type in ATTENTIONS]
                if not attentions:
                    continue
                # GroupQueryAttention takes the length after this step: minus one, and as it is.
                if (
                    "causal" not in attentions[0].attributes
                    or attentions[0].attributes["causal"].value
                ):
                    self.last_position = g.input("last_position", INT32, [1])
                lowered = g.input("total_length", INT32, [])
            elif kind == "conv_state":
                lowered = g.input(name, FLOAT, [1, spec.conv_dim, spec.conv_kernel - 1])
            elif kind == "ssm_state":
                lowered = g.input(name, FLOAT, self.ssm_shape)
            elif kind == "stash":
                lowered = g.input(name, FLOAT, [1, "n", spec.conv_dim])
                dt_name = f"stash_dt.{_layer(value)}"
                self.stash_dt[value] = g.input(dt_name, FLOAT, self.dt_shape("n"))
            elif name in ("cos", "sin"):
                lowered = g.input(name, FLOAT, dims)
            else:  # a cache, or rows of features
                lowered = g.input(name, FLOAT, [1, *dims])
            self.values[value] = lowered

    def dt_shape(self, rows: str) -> list[int | str]:
        return [1, rows, self.spec.mamba_num_heads]

    @property
    def ssm_shape(self) -> list[int]:
        spec = self.spec
        return [1, spec.mamba_num_heads, spec.ssm_state_size, spec.mamba_head_dim]

    # -- weights

    def derived(
        self, parts: list[ir.Value], suffix: str, shape: tuple[int, ...], compute: Any
    ) -> ir.Value:
        """A float32 weight computed from canonical ones."""
        sources = [_weight(part) for part in parts]

        def evaluate() -> npt.NDArray[Any]:
            result: npt.NDArray[Any] = compute(*(s.numpy().astype(np.float32) for s in sources))
            return result

        return self.g.weight(computed(f"{sources[0].name}{suffix}", F32, shape, evaluate))

    def as_float(self, part: ir.Value) -> ir.Value:
        return self.derived([part], "", _weight(part).dims, lambda array: array)

    # -- canonical operators

    def linear(self, node: ir.Node) -> None:
        x, *parts = _inputs(node)
        form, name = node.attributes["format"].value, _name(node.outputs[0])
        if form == "int4":
            product = self.matmul_int4(self.get(x), [_weight(part) for part in parts], name)
        else:
            matrix = self.g.weight(matmul([_weight(part) for part in parts], form))
            product = self.g.op("MatMul", [self.get(x), matrix], name)
        self.bind(node, product)

    def matmul_int4(self, x: ir.Value, parts: list[Weight], name: str) -> ir.Value:
        codes, scales = matmul_nbits(parts)
        N, blocks, half = codes.dims
        return self.g.op(
            "MatMulNBits",
            [x, self.g.weight(codes), self.g.weight(scales)],
            name,
            domain=MS,
            N=N,
            K=blocks * half * 2,
            bits=4,
            block_size=half * 2,
            accuracy_level=_INT8_ACTIVATIONS,
        )

    def rms_norm(self, node: ir.Node) -> None:
        x, weight = _inputs(node)
        out, epsilon = node.outputs[0], node.attributes["epsilon"].value
        gamma = self.as_float(weight)
        if x in self.pending_adds:
            left, right = self.pending_adds.pop(x)
            normed, _, _, total = self.g.ops(
                "SkipSimplifiedLayerNormalization",
                [left, right, gamma],
                [_name(out), "", "", _name(x)],
                domain=MS,
                epsilon=epsilon,
            )
            self.values[x] = total
        else:
            normed = self.simplified_norm(self.get(x), gamma, _name(out), epsilon)
        self.values[out] = normed

    def simplified_norm(self, x: ir.Value, gamma: ir.Value, name: str, epsilon: float) -> ir.Value:
        return self.g.op("SimplifiedLayerNormalization", [x, gamma], name, axis=-1, epsilon=epsilon)

    def mamba2_scan(self, node: ir.Node) -> None:
        g, spec = self.g, self.spec
        projected, conv_weight, conv_bias, A_log, D, dt_bias, norm_weight, *states = _inputs(node)
        layer = _layer(node.outputs[1])
        mixer = f"backbone.layers.{layer}.mixer"
        split = g.const("split.zxd", [spec.d_inner, spec.conv_dim, spec.mamba_num_heads])
        z, xBC, dt = g.ops(
            "Split",
            [self.get(projected), split],
            [f"{mixer}.z", f"stash.{layer}", f"stash_dt.{layer}"],
            axis=-1,
        )
        y, x, _ = self.recurrence(
            layer, xBC, dt, [conv_weight, conv_bias, A_log, dt_bias, *states], node.outputs[2:]
        )
        skip = self.derived(
            [D], ".expanded", (spec.d_inner,), lambda D: np.repeat(D, spec.mamba_head_dim)
        )
        y = g.op("Add", [y, g.op("Mul", [x, skip], f"{mixer}.Dx")], f"{mixer}.y_skip")
        gate = g.op("QuickGelu", [z], f"{mixer}.gate", domain=MS, alpha=1.0)  # alpha 1 is SiLU
        gated = g.op("Mul", [y, gate], f"{mixer}.gated")
        epsilon, groups = node.attributes["epsilon"].value, spec.n_groups
        name = _name(node.outputs[0])
        if groups == 1:
            normed = self.simplified_norm(gated, self.as_float(norm_weight), name, epsilon)
        else:
            width = spec.d_inner // groups
            by_group = g.const("shape.groups", [0, 0, groups, width])
            ones = g.const("ones.group", np.ones(width), np.float32)
            gated = g.op("Reshape", [gated, by_group], f"{mixer}.grouped")
            gated = self.simplified_norm(gated, ones, f"{mixer}.group_normed", epsilon)
            flat = g.const("shape.d_inner", [0, 0, spec.d_inner])
            gated = g.op("Reshape", [gated, flat], f"{mixer}.flat")
            normed = g.op("Mul", [gated, self.as_float(norm_weight)], name)
        self.values[node.outputs[0]] = normed
        g.output(xBC, f"stash.{layer}", FLOAT, [1, "T", spec.conv_dim])
        g.output(dt, f"stash_dt.{layer}", FLOAT, self.dt_shape("T"))

    def mamba2_commit(self, node: ir.Node) -> None:
        stash, *rest = _inputs(node)
        self.recurrence(_layer(stash), self.get(stash), self.stash_dt[stash], rest, node.outputs)

    def recurrence(
        self,
        layer: str,
        xBC: ir.Value,
        dt: ir.Value,
        inputs: list[ir.Value],
        state_outputs: Any,
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Convolution and scan over [1, T, ...] rows; returns y and x [1, T, d_inner]."""
        g, spec = self.g, self.spec
        conv_weight, conv_bias, A_log, dt_bias, conv_state, ssm_state = inputs
        mixer = f"backbone.layers.{layer}.mixer"
        shape = (spec.conv_dim, 1, spec.conv_kernel)
        kernel = self.derived([conv_weight], "", shape, lambda w: w.reshape(shape))
        # Channels first: ONNX Runtime's channels-last convolution is slower at every T.
        convolved, conv_out = g.ops(
            "CausalConvWithState",
            [
                g.op("Transpose", [xBC], f"{mixer}.xBC_t", perm=[0, 2, 1]),
                kernel,
                self.as_float(conv_bias),
                self.get(conv_state),
            ],
            [f"{mixer}.convolved", _name(state_outputs[0])],
            domain=MS,
            activation="silu",
        )
        rows = g.op("Transpose", [convolved], f"{mixer}.xBC", perm=[0, 2, 1])
        bc = spec.n_groups * spec.ssm_state_size
        split = g.const("split.xBC", [spec.d_inner, bc, bc])
        x, B, C = g.ops("Split", [rows, split], [f"{mixer}.{n}" for n in "xBC"], axis=-1)

        delta = g.op("Add", [dt, self.as_float(dt_bias)], f"{mixer}.dt")
        delta = g.op("Softplus", [delta], f"{mixer}.delta")
        heads = (spec.mamba_num_heads,)
        A = self.derived([A_log], ".A", heads, lambda A_log: -np.exp(A_log))
        decay = g.op("Mul", [delta, A], f"{mixer}.decay")
        per_head = g.const("shape.heads", [0, 0, spec.mamba_num_heads, spec.mamba_head_dim])
        step = g.op("Unsqueeze", [delta, g.const("axis.last", [-1])], f"{mixer}.delta_col")
        scaled = g.op(
            "Mul", [g.op("Reshape", [x, per_head], f"{mixer}.x_heads"), step], f"{mixer}.dx_heads"
        )
        flat = g.const("shape.d_inner", [0, 0, spec.d_inner])
        y, ssm_out = g.ops(
            "LinearAttention",
            [
                C,
                B,
                g.op("Reshape", [scaled, flat], f"{mixer}.dx"),
                self.get(ssm_state),
                decay,
            ],
            [f"{mixer}.scan", _name(state_outputs[1])],
            domain=MS,
            q_num_heads=spec.n_groups,
            kv_num_heads=spec.mamba_num_heads,
            update_rule="gated",
            scale=1.0,
        )
        conv_shape = [1, spec.conv_dim, spec.conv_kernel - 1]
        g.output(conv_out, f"conv_state_out.{layer}", FLOAT, conv_shape)
        g.output(ssm_out, f"ssm_state_out.{layer}", FLOAT, self.ssm_shape)
        return y, x, decay

    def attention(self, node: ir.Node) -> None:
        self.values[node.outputs[0]] = self.grouped_attention(node, frozenset())

    def block_attention(self, node: ir.Node) -> None:
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        if attributes["causal"]:
            self.values[node.outputs[0]] = self.grouped_attention(node, {"causal", "window"})
            return
        self.values[node.outputs[0]] = bidirectional_attention(
            self.g,
            [self.get(value) for value in _inputs(node)],
            attributes["num_heads"] // attributes["kv_num_heads"],
            attributes["scale"],
            _name(node.outputs[0]).removesuffix(".y"),
        )

    def grouped_attention(self, node: ir.Node, ours: Set[str]) -> ir.Value:
        """`GroupQueryAttention` over a cache that it appends to in place.

        Args:
            ours: attributes of the node that are not the operator's.
        """
        q, k, v, key_cache, value_cache, length, *sinks = _inputs(node)
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        if window := attributes.get("window"):
            attributes["local_window_size"] = window
        inputs: list[ir.Value | None] = [self.get(x) for x in (q, k, v, key_cache, value_cache)]
        inputs += [self.last_position, self.get(length)]
        # cos_cache, sin_cache, position_ids and attention_bias are not given
        inputs += [None, None, None, None, self.as_float(sinks[0])] if sinks else []
        layer = _layer(key_cache)
        y, key_out, value_out = self.g.ops(
            "GroupQueryAttention",
            inputs,
            [_name(node.outputs[0]), f"key_cache_out.{layer}", f"value_cache_out.{layer}"],
            domain=MS,
            **{name: value for name, value in attributes.items() if name not in ours},
        )
        heads, _, head_dim = sizes(key_cache)
        shape = (1, heads, "S", head_dim)
        self.g.output(key_out, f"key_cache_out.{layer}", FLOAT, shape)
        self.g.output(value_out, f"value_cache_out.{layer}", FLOAT, shape)
        return y

    def norm_rope(self, node: ir.Node) -> None:
        g = self.g
        x, weight, cos, sin = _inputs(node)
        name, head_dim = _name(node.outputs[0]), _weight(weight).dims[0]
        by_head = g.const(f"shape.head_{head_dim}", [0, 0, -1, head_dim])
        flat = g.const("shape.flat", [0, 0, -1])
        heads = g.op("Reshape", [self.get(x), by_head], f"{name}.heads")
        epsilon = node.attributes["epsilon"].value
        normed = self.simplified_norm(heads, self.as_float(weight), f"{name}.normed", epsilon)
        angles = [self.get(cos), self.get(sin)]
        positions = self.positions(angles[0])
        rotated = g.op(
            "RotaryEmbedding",
            [g.op("Reshape", [normed, flat], f"{name}.rows"), positions, *angles],
            name,
            domain=MS,
            num_heads=0,
            rotary_embedding_dim=0,
        )
        self.bind(node, rotated)

    def positions(self, cos: ir.Value) -> ir.Value:
        """Row numbers [1, T] of the angles: a graph gets those of its rows and no others."""
        if self.row_numbers is None:
            g = self.g
            count = g.op("Shape", [cos], "angles", start=0, end=1)
            count = g.op("Squeeze", [count], "angle_count")
            numbers = [g.const("zero", 0), count, g.const("one", 1)]
            numbers = [g.op("Range", numbers, "row_numbers"), g.const("axis.first", [0])]
            self.row_numbers = g.op("Unsqueeze", numbers, "positions")
        return self.row_numbers

    def swiglu(self, node: ir.Node) -> None:
        gate, up = _inputs(node)
        name = _name(node.outputs[0])
        silu = self.g.op("QuickGelu", [self.get(gate)], f"{name}.silu", domain=MS, alpha=1.0)
        self.bind(node, self.g.op("Mul", [silu, self.get(up)], name))

    def moe_route(self, node: ir.Node) -> None:
        self.routers[node.outputs[0]] = node

    def moe_experts(self, node: ir.Node) -> None:
        g = self.g
        x, weights, _, *parts = _inputs(node)
        router = self.routers[weights]
        _, gate_weight, bias = _inputs(router)
        route = {name: attribute.value for name, attribute in router.attributes.items()}
        mixer = _name(node.outputs[0]).removesuffix(".routed")

        gate = g.weight(matmul([_weight(gate_weight)], "dense"))
        by_row = g.const("shape.experts", [-1, self.spec.n_routed_experts])
        scores = g.op("MatMul", [self.get(x), gate], f"{mixer}.gate")
        scores = g.op("Reshape", [scores, by_row], f"{mixer}.rows")
        chosen = g.op(
            "MoEGroupRouter",
            [scores, self.as_float(bias)],
            f"{mixer}.chosen",
            domain=MS,
            top_k=route["top_k"],
            n_group=route["n_group"],
            topk_group=route["topk_group"],
            group_topk=2,
            router_sentinel=_NOT_CHOSEN,
        )
        up_format, down_format = (node.attributes[f"{n}_format"].value for n in ("up", "down"))
        half = len(PARTS[up_format])
        up, down = ([_weight(part) for part in half_] for half_ in (parts[:half], parts[half:]))
        packed = experts(up, up_format, down, down_format, route["routed_scaling_factor"])
        op_type, attributes = "MoE", _SQUARED_RELU | {"k": route["top_k"]}
        if packed.group:
            op_type = "QMoE"
            attributes |= {"expert_weight_bits": 4, "block_size": packed.group}
            attributes |= {"accuracy_level": _INT8_ACTIVATIONS}
        matrices: list[ir.Value | None] = [g.weight(weight) for weight in packed.up]
        matrices += [None, *(g.weight(weight) for weight in packed.down)]
        inputs = [self.get(x), chosen, *matrices]
        routed = g.op(op_type, inputs, _name(node.outputs[0]), domain=MS, **attributes)
        if not route["norm_topk_prob"]:
            total = g.op("Exp", [chosen], f"{mixer}.sigmoids")
            axis = g.const("axis.last", [-1])
            total = g.op("ReduceSum", [total, axis], f"{mixer}.sigmoid_sum", keepdims=1)
            routed = g.op("Mul", [routed, total], f"{mixer}.unnormalised")
        self.values[node.outputs[0]] = routed

    # -- standard operators

    def gather(self, node: ir.Node) -> None:
        data, index = _inputs(node)
        name = _name(node.outputs[0])
        if data.const_value is not None:  # the embedding table
            gathered = self.g.op("Gather", [self.as_float(data), self.get(index)], name)
        else:
            gathered = self.g.op("Gather", [self.get(data), self.get(index)], name, axis=1)
        self.bind(node, gathered)

    def cast(self, node: ir.Node) -> None:
        self.bind(node, self.get(_inputs(node)[0]))  # everything is float32 already

    def add(self, node: ir.Node) -> None:
        left, right = _inputs(node)
        self.pending_adds[node.outputs[0]] = (self.get(left), self.get(right))

    def same(self, node: ir.Node) -> None:
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        inputs = [self.get(value) for value in _inputs(node)]
        names = [_name(value) for value in node.outputs]
        lowered = self.g.ops(node.op_type, inputs, names, **attributes)
        self.values.update(zip(node.outputs, lowered, strict=True))

    def bind(self, node: ir.Node, value: ir.Value) -> None:
        self.values[node.outputs[0]] = value


def _inputs(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs if value is not None]


def _name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name


def _layer(value: ir.Value) -> str:
    return _name(value).rsplit(".", 1)[1]


def _weight(value: ir.Value) -> Weight:
    weight = value.const_value
    assert isinstance(weight, Weight)
    return weight
