"""The `prefill` graph of the `plugin` lowering: a prompt's tokens through products of many tokens.

Activations go from launch to launch as bfloat16 in tile order, which the products read; norms are
launches of their own, because a product's blocks would each repeat them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from edgekit.export.lower.plugin import PluginLowering
from edgekit.export.lower.plugin_parts import Normed, Product
from edgekit.kernels.attention import LIMITED_KEYS, KvCache
from edgekit.kernels.moe import MoeLayer
from edgekit.kernels.nodes import moe_attributes
from edgekit.model import ModelSpec


def lower(
    model: ir.Model,
    spec: ModelSpec,
    context: int,
    kv_dtype: KvCache = "bfloat16",
    taps: Sequence[int] = (),
    limited: bool = False,
) -> ir.Model:
    """Lowers a canonical step graph; see `plugin.lower`."""
    return _PrefillLowering(model, spec, "prefill", context, kv_dtype, taps, limited).run()


class _PrefillLowering(PluginLowering):
    def emit_product(
        self, product: Product, output: str, residual: ir.Value | None = None, name: str = ""
    ) -> ir.Value:
        return self.emit_wide_product(product, output, residual, name)

    def scan(
        self, inputs: list[ir.Value], outputs: list[tuple[str, str]], **attributes: Any
    ) -> Sequence[ir.Value]:
        if self.limited:  # the prefill kernel's chunks take 96 KiB of shared memory
            return super().scan(inputs, outputs, **attributes)
        return self.node("mamba2_prefill", inputs, outputs, **attributes)

    def attend(
        self,
        layer: str,
        inputs: list[ir.Value],
        outputs: list[tuple[str, str]],
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        if self.limited:
            attributes["keys"] = LIMITED_KEYS
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
