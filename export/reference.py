"""Runs a canonical graph in float32 with the NumPy definitions of its operators.

This is the oracle a bundle's golden logits come from. Weights are read when a node needs them and
dropped afterwards, so it runs a checkpoint of any size in the memory of one layer, slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgekit import ops
from edgekit.model import ModelSpec
from edgekit.ops import DOMAIN
from edgekit.ops.formats import PARTS

Array = npt.NDArray[Any]


def run_graph(
    model: ir.Model,
    feeds: Mapping[str, Array],
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Array]:
    """Evaluates every output of a canonical graph.

    Args:
        feeds: arrays by input name.
        on_progress: called with (nodes done, nodes in all).

    Returns:
        arrays by output name.
    """
    values: dict[str, Array] = dict(feeds)
    for done, node in enumerate(model.graph):
        if on_progress is not None:
            on_progress(done + 1, len(model.graph))
        inputs = [_value(v, values) for v in node.inputs if v is not None]
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        table = _CANONICAL if node.domain == DOMAIN else _STANDARD
        results = table[node.op_type](inputs, attributes)
        outputs = results if isinstance(results, tuple) else (results,)
        for value, result in zip(node.outputs, outputs, strict=True):
            assert value.name is not None
            values[value.name] = result
    return {str(v.name): values[str(v.name)] for v in model.graph.outputs}


class ReferenceSession:
    """A sequence run by `run_graph`: the state of the graph between calls.

    Args:
        model: a graph from `build_step`.
        capacity: KV rows to keep.
    """

    def __init__(self, model: ir.Model, spec: ModelSpec, capacity: int) -> None:
        self.model = model
        self.length = 0
        self._state = {
            str(v.name): np.zeros(
                [capacity if isinstance(d, ir.SymbolicDim) else int(d) for d in v.shape],
                dtype=np.float32,
            )
            for v in model.graph.inputs
            if str(v.name).split(".")[0].endswith(("_state", "_cache")) and v.shape is not None
        }

    def step(
        self,
        tokens: Sequence[int],
        rows: Sequence[int] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Array]:
        """Commits tokens and returns the graph's outputs; logits for `rows` (default: all)."""
        feeds: dict[str, Array] = {
            "tokens": np.asarray(tokens, dtype=np.int64),
            "rows": np.asarray(range(len(tokens)) if rows is None else rows, dtype=np.int64),
            "length": np.asarray(self.length, dtype=np.int64),
            **self._state,
        }
        outputs = run_graph(self.model, feeds, on_progress)
        for name in self._state:
            kind, layer = name.split(".")
            self._state[name] = outputs[f"{kind}_out.{layer}"]
        self.length += len(tokens)
        return outputs


def _value(value: ir.Value, values: dict[str, Array]) -> Array:
    if value.const_value is not None:
        return value.const_value.numpy()
    return values[str(value.name)]


def _linear(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    x, *weight = inputs
    return ops.linear(x, *weight, format=attributes["format"])


def _moe_experts(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    x, weights, indices, *experts = inputs
    split = len(PARTS[attributes["up_format"]])
    return ops.moe_experts(
        x,
        weights,
        indices,
        experts[:split],
        experts[split:],
        **attributes,
    )


def _moe_route(inputs: list[Array], attributes: dict[str, Any]) -> tuple[Array, Array]:
    flags = {**attributes, "norm_topk_prob": bool(attributes["norm_topk_prob"])}
    return ops.moe_route(*inputs, **flags)


def _attention(inputs: list[Array], attributes: dict[str, Any]) -> tuple[Array, Array, Array]:
    query, key, value, key_cache, value_cache, length = inputs
    return ops.attention(query, key, value, key_cache, value_cache, int(length), **attributes)


def _block_attention(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    query, key, value, key_cache, value_cache, length, *sinks = inputs
    flags = {**attributes, "causal": bool(attributes["causal"])}
    return ops.block_attention(
        query, key, value, key_cache, value_cache, int(length), *sinks, **flags
    )


_CANONICAL: dict[str, Callable[[list[Array], dict[str, Any]], Array | tuple[Array, ...]]] = {
    "Linear": _linear,
    "RmsNorm": lambda i, a: ops.rms_norm(*i, **a),
    "Mamba2Scan": lambda i, a: ops.mamba2_scan(*i, **a),
    "Mamba2Commit": lambda i, a: ops.mamba2_commit(*i, **a),
    "Attention": _attention,
    "BlockAttention": _block_attention,
    "NormRope": lambda i, a: ops.norm_rope(*i, **a),
    "SwiGlu": lambda i, a: ops.swiglu(*i),
    "MoeRoute": _moe_route,
    "MoeExperts": _moe_experts,
}

_STANDARD: dict[str, Callable[[list[Array], dict[str, Any]], Array | tuple[Array, ...]]] = {
    "Gather": lambda i, a: np.take(i[0], i[1], axis=0),
    "Cast": lambda i, a: i[0].astype(np.float32),
    "Add": lambda i, a: i[0] + i[1],
    "Mul": lambda i, a: i[0] * i[1],
    "Sub": lambda i, a: i[0] - i[1],
    "Relu": lambda i, a: np.maximum(i[0], 0),
    "Sigmoid": lambda i, a: 1 / (1 + np.exp(-i[0])),
    "Tanh": lambda i, a: np.tanh(i[0]),
    "Split": lambda i, a: tuple(np.split(i[0], a["num_outputs"], axis=a["axis"])),
    "Concat": lambda i, a: np.concatenate(i, axis=a["axis"]),
}
