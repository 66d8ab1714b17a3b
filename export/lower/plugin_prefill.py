"""The `prefill` graph of the `plugin` lowering: a prompt's tokens through products of many tokens.

Activations go from launch to launch as bfloat16 in tile order, which the products read; norms are
launches of their own, because a product's blocks would each repeat them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from edgekit.export.lower.plugin import Normed, PluginLowering, Product
from edgekit.export.lower.plugin_parts import dtype_name
from edgekit.kernels.attention import KvCache
from edgekit.kernels.moe import MoeLayer
from edgekit.kernels.nodes import matrix_attributes, moe_attributes
from edgekit.model import ModelSpec


def lower(
    model: ir.Model,
    spec: ModelSpec,
    context: int,
    kv_dtype: KvCache = "bfloat16",
    taps: Sequence[int] = (),
) -> ir.Model:
    """Lowers a canonical step graph; see `plugin.lower`."""
    return _PrefillLowering(model, spec, "prefill", context, kv_dtype, taps).run()


class _PrefillLowering(PluginLowering):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tiles: dict[Normed | ir.Value, ir.Value] = {}

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

    def emit_product(
        self, product: Product, output: str, residual: ir.Value | None = None, name: str = ""
    ) -> ir.Value:
        packed = self.packed(product.name, product.source)
        if isinstance(product.x, Product):
            x = self.emit_product(product.x, "tiles")
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

    def scan(
        self, inputs: list[ir.Value], outputs: list[tuple[str, str]], **attributes: Any
    ) -> Sequence[ir.Value]:
        return self.node("mamba2_prefill", inputs, outputs, **attributes)

    def attend(
        self,
        layer: str,
        inputs: list[ir.Value],
        outputs: list[tuple[str, str]],
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        return self.node("attention_prefill", inputs, outputs, **attributes)

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
        (up, down), attributes = matrices, moe_attributes(layer)
        indices, weights = self.node(
            "moe_route_prefill",
            [x.x, x.weight, *router],
            [(f"{mixer}.indices", "int32"), (f"{mixer}.weights", "float32")],
            **attributes,
        )
        sorting = self.node(
            "moe_sort_prefill",
            [indices],
            [(f"{mixer}.order", "int32"), (f"{mixer}.tile_expert", "int32")],
            **attributes,
        )
        normed = self.tiles(x, layer.up.K, f"{mixer}.normed")
        (hidden,) = self.node(
            "moe_up_prefill",
            [normed, *sorting, *up],
            [(f"{mixer}.hidden", "bfloat16")],
            **attributes,
        )
        (parts,) = self.node(
            "moe_down_prefill",
            [hidden, *sorting, weights, *down],
            [(f"{mixer}.parts", "bfloat16")],
            **attributes,
        )
        if shared is not None:
            residual = self.emit_product(shared, "float32", residual, f"{mixer}.with_shared")
        (y,) = self.node("moe_sum_prefill", [parts, residual], [(name, "float32")], **attributes)
        return y
