"""The commit graph of the `plugin` lowering."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import computed
from edgekit.export.lower.plugin_parts import mamba_attributes, name_of, weight_of
from edgekit.kernels.mamba2 import STASH_ROWS
from edgekit.kernels.nodes import ARRIVALS, DOMAIN
from edgekit.model import ModelSpec

F32 = np.dtype(np.float32)
FLOAT, BF16, INT32 = ir.DataType.FLOAT, ir.DataType.BFLOAT16, ir.DataType.INT32


def lower_commit(model: ir.Model, spec: ModelSpec) -> ir.Model:
    """The graph that replays the first n rows of every layer's stash, in one launch.

    The layers' states, stashes and small weights are stacked on a first axis.
    """
    g = GraphBuilder("commit", {"": 21, DOMAIN: 1})
    nodes = list(model.graph)
    L = len(nodes)
    stash = g.input("stash", BF16, [L, STASH_ROWS, spec.in_proj_dim])
    conv_shape = [L, spec.conv_dim, spec.conv_kernel - 1]
    ssm_shape = [L, spec.mamba_num_heads, spec.mamba_head_dim, spec.ssm_state_size]
    conv, ssm = g.input("conv_state", FLOAT, conv_shape), g.input("ssm_state", FLOAT, ssm_shape)
    n, arrivals = g.input("n", INT32, [1]), g.input("arrivals", INT32, [ARRIVALS])

    def stacked(i: int) -> ir.Value:
        weights = [weight_of(node.inputs[i]) for node in nodes]
        suffix = str(weights[0].name).split(".mixer.")[-1]

        def stack() -> Any:
            return np.stack([weight.numpy().astype(np.float32) for weight in weights])

        return g.weight(computed(f"mamba.{suffix}", F32, (L, *weights[0].dims), stack))

    outputs = g.ops(
        "mamba2_commit",
        [stash, *(stacked(i) for i in range(1, 5)), n, conv, ssm, arrivals],
        ["conv_state_out", "ssm_state_out", "arrivals_out"],
        domain=DOMAIN,
        layers=L,
        **mamba_attributes(spec),
    )
    for value, shape in zip(outputs, (conv_shape, ssm_shape), strict=False):
        g.output(value, name_of(value), FLOAT, shape)
    return g.model()
