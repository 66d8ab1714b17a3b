"""Routing and experts in standard operators.

Experts are gathered once a step, not once a token: T tokens choose at most M = min(T top_k, E)
distinct experts, TopK over "the largest weight any token gives it" finds them, and all T tokens go
through those M with their weights, which are 0 where a token did not choose an expert. One token
reads exactly its own experts; from E / top_k tokens on the gather is of all experts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import Weight
from edgekit.export.lower.packing import Source
from edgekit.export.lower.standard_parts import FLOAT, PartWriter
from edgekit.export.lower.standard_weights import in_dtype, matrix
from edgekit.model import ModelSpec


class MoeWriter(PartWriter):
    """Writes one layer's nodes."""

    def __init__(self, g: GraphBuilder, spec: ModelSpec, prefix: str, compute: ir.DataType) -> None:
        super().__init__(g, prefix, compute)
        self.spec = spec

    def route(self, x: ir.Value, gate: Weight, bias: Weight, route: dict[str, Any]) -> ir.Value:
        """The weight of each expert for each token [T, E], 0 for those not chosen; all float32."""
        op, ints, g = self.op, self.ints, self.g
        E = self.spec.n_routed_experts
        matrix_t = self.transpose(g.weight(in_dtype(gate, FLOAT)), "gate.T", 1, 0)
        scores = op("Sigmoid", [op("MatMul", [x, matrix_t], "gate.logits")], "gate.scores")
        biased = op("Add", [scores, g.weight(in_dtype(bias, FLOAT))], "gate.biased")
        if route["n_group"] > 1:
            biased = self.only_best_groups(biased, route["n_group"], route["topk_group"])
        chosen = self.is_among_best(biased, E, route["top_k"], "gate")
        weights = op("Where", [chosen, scores, self.number(0.0)], "gate.chosen_scores")
        if route["norm_topk_prob"]:
            total = op("ReduceSum", [weights, ints(-1)], "gate.total", keepdims=1)
            total = op("Add", [total, self.number(1e-20)], "gate.total_above_0")
            weights = op("Div", [weights, total], "gate.normalised")
        factor = self.number(route["routed_scaling_factor"])
        return op("Mul", [weights, factor], "gate.weights")

    def only_best_groups(self, biased: ir.Value, n_group: int, topk_group: int) -> ir.Value:
        """Scores of groups that are not among the best are lowered out of reach."""
        op, ints, E = self.op, self.ints, self.spec.n_routed_experts
        grouped = op("Reshape", [biased, ints(0, n_group, E // n_group)], "gate.grouped")
        best, _ = self.ops("TopK", [grouped, ints(2)], ["gate.best_two", "gate.best_two_index"])
        sums = op("ReduceSum", [best, ints(-1)], "gate.group_scores", keepdims=0)
        allowed = self.is_among_best(sums, n_group, topk_group, "gate.groups")
        allowed = op("Unsqueeze", [allowed, ints(-1)], "gate.allowed")
        kept = op("Where", [allowed, grouped, self.number(-1e30)], "gate.kept")
        return op("Reshape", [kept, ints(0, E)], "gate.kept_flat")

    def is_among_best(self, scores: ir.Value, n: int, k: int, name: str) -> ir.Value:
        """[T, n] bools: the k best of each row, the first of equals."""
        op, ints = self.op, self.ints
        _, indices = self.ops("TopK", [scores, ints(k)], [f"{name}.best", f"{name}.indices"])
        column = op("Unsqueeze", [indices, ints(-1)], f"{name}.index_column")
        every = self.g.const(f"range.{n}", np.arange(n))
        hits = op("Equal", [column, every], f"{name}.hits")  # [T, k, n]
        hits = op("Cast", [hits], f"{name}.hits_f32", to=FLOAT.value)
        counts = op("ReduceMax", [hits, ints(1)], f"{name}.any", keepdims=0)
        return op("Greater", [counts, self.number(0.5)], f"{name}.is_best")

    def experts(self, x: ir.Value, weights: ir.Value, up: Source, down: Source) -> ir.Value:
        """sum over experts of weight x down(relu(up x)^2): [T, hidden_size] in `compute`."""
        op, ints, spec = self.op, self.ints, self.spec
        H, I = up.matrix.K, up.matrix.N
        tokens = op("Shape", [x], "T", start=0, end=1)
        slots = op("Mul", [tokens, ints(spec.num_experts_per_tok)], "slots")
        M = op("Min", [slots, ints(spec.n_routed_experts)], "M")
        largest = op("ReduceMax", [weights, ints(0)], "largest", keepdims=0)
        _, used = self.ops("TopK", [largest, M], ["used_weight", "used"])
        up_matrix, down_matrix = (matrix(self.g, source, self.compute) for source in (up, down))
        weights = self.scaled(weights, up_matrix.scale, down_matrix.scale)
        share = op("Gather", [weights, used], "share", axis=1)  # [T, M]

        ups = op("Gather", [up_matrix.values, used], "ups", axis=0)  # [M, I, H]
        ups = self.transpose(op("Reshape", [ups, ints(-1, H)], "ups_rows"), "ups_t", 1, 0)
        hidden = op("MatMul", [x, ups], "hidden")  # [T, M I]
        hidden = self.cast(op("Relu", [hidden], "rectified"), FLOAT, "rectified_f32")
        hidden = op("Mul", [hidden, hidden], "squared")
        hidden = self.reshape(hidden, [tokens, M, ints(I)], "hidden_experts")
        share = op("Unsqueeze", [share, ints(-1)], "share_column")
        hidden = op("Mul", [hidden, share], "hidden_weighted")
        hidden = self.reshape(hidden, [tokens, ints(-1)], "hidden_flat")
        hidden = self.cast(hidden, self.compute, "hidden_sum")
        downs = op("Gather", [down_matrix.values, used], "downs", axis=0)
        downs = self.transpose(downs, "downs_t", 0, 2, 1)  # [M, I, H]
        return op("MatMul", [hidden, op("Reshape", [downs, ints(-1, H)], "downs_rows")], "sum")

    def scaled(self, weights: ir.Value, up: Weight | None, down: Weight | None) -> ir.Value:
        """Experts' weights times their scales: down (u h)^2 d = u^2 d (down h^2)."""
        factors = [up, up, down]
        for i, factor in enumerate(factors):
            if factor is not None:
                weights = self.op("Mul", [weights, self.g.weight(factor)], f"weights.scaled.{i}")
        return weights
