"""Mamba-2 in standard operators: no loop over tokens, whatever their number.

All T rows are one chunk of the state space duality (Dao and Gu 2024, arXiv:2405.21060, section 6).
With a_t = delta_t A and segsum(a)[i, j] = a_{j+1} + ... + a_i, per head:

    L = exp(segsum(a)), 0 above the diagonal                                       [T, T]
    Y = (C B^T * L) (delta x) + exp(a_0 + ... + a_t) C S                           [T, head_dim]
    S = exp(a_0 + ... + a_{T-1}) S + (L[T-1] delta x)^T B                          S: the state

Sums are made by CumSum over a masked matrix, not as differences of one running sum: those would
cancel where the sum is large. L has heads x T^2 elements, which bounds a step's tokens: 64 MB at
512 tokens of 64 heads. Everything is float32, and heads are [group, head of the group].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import Weight, computed
from edgekit.export.lower.standard_parts import END, FLOAT, Order, PartWriter
from edgekit.model import ModelSpec

F32 = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What a `Mamba2Scan` or `Mamba2Commit` node takes besides its rows; D only where y is wanted.

    Attributes:
        states: of the convolution and of the scan.
    """

    conv_weight: Weight
    conv_bias: Weight
    A_log: Weight
    D: Weight | None
    dt_bias: Weight
    states: tuple[ir.Value, ir.Value]


class MambaWriter(PartWriter):
    """Writes one layer's nodes; nothing of it is in a type but float32."""

    def __init__(self, g: GraphBuilder, spec: ModelSpec, prefix: str, order: Order) -> None:
        super().__init__(g, prefix, FLOAT)
        self.spec, self.order = spec, order

    def weight(self, source: Weight, suffix: str, shape: tuple[int, ...], compute: Any) -> ir.Value:
        def evaluate() -> npt.NDArray[Any]:
            result: npt.NDArray[Any] = compute(source.numpy().astype(np.float32))
            return result

        return self.g.weight(computed(f"{source.name}.{suffix}", F32, shape, evaluate))

    def recurrence(
        self, stash: ir.Value, inputs: Recurrence
    ) -> tuple[ir.Value | None, ir.Value, ir.Value]:
        """Rows [T, conv_dim + heads] to y [T, d_inner] (None without D) and both new states."""
        spec = self.spec
        xBC, dt = self.ops(
            "Split",
            [stash, self.ints(spec.conv_dim, spec.mamba_num_heads)],
            ["xBC_rows", "dt_rows"],
            axis=1,
        )
        convolved, conv_out = self.convolution(xBC, inputs)
        heads = (spec.mamba_num_heads,)
        bias = self.weight(inputs.dt_bias, "f32", heads, lambda b: b)
        delta = self.op("Softplus", [self.op("Add", [dt, bias], "dt")], "delta")
        y, ssm_out = self.scan(convolved, delta, inputs)
        return y, conv_out, ssm_out

    # -- convolution

    def convolution(self, xBC: ir.Value, inputs: Recurrence) -> tuple[ir.Value, ir.Value]:
        """silu(causal depthwise convolution) of [T, conv_dim], and the rows it leaves behind."""
        spec, K = self.spec, self.spec.conv_kernel
        past = self.transpose(inputs.states[0], "past", 1, 0)
        rows = self.op("Concat", [past, xBC], "rows", axis=0)  # [K-1+T, conv_dim]
        total = self.weight(inputs.conv_bias, "f32", (spec.conv_dim,), lambda b: b)
        for k in range(K):
            window = rows
            if K > 1:
                end = self.ints(k - K + 1) if k < K - 1 else self.ints(END)
                starts = [rows, self.ints(k), end, self.ints(0)]
                window = self.op("Slice", starts, f"window.{k}")
            tap = self.weight(
                inputs.conv_weight, f"tap.{k}", (spec.conv_dim,), lambda w, k=k: w[:, k]
            )
            total = self.op(
                "Add", [total, self.op("Mul", [window, tap], f"tapped.{k}")], f"convolved.{k}"
            )
        last = [rows, self.ints(1 - K), self.ints(END), self.ints(0)]
        left = self.op("Slice", last, "rows_left")
        return self.silu(total, "xBC"), self.transpose(left, "conv_out", 1, 0)

    def silu(self, x: ir.Value, name: str) -> ir.Value:
        return self.op("Mul", [x, self.op("Sigmoid", [x], f"{name}.sigmoid")], name)

    # -- scan

    def scan(
        self, xBC: ir.Value, delta: ir.Value, inputs: Recurrence
    ) -> tuple[ir.Value | None, ir.Value]:
        op, ints, spec = self.op, self.ints, self.spec
        G, P, N = spec.n_groups, spec.mamba_head_dim, spec.ssm_state_size
        per_group = spec.mamba_num_heads // G
        split = [xBC, ints(spec.d_inner, G * N, G * N)]
        x, B, C = self.ops("Split", split, ["x", "B_rows", "C_rows"], axis=1)
        B, C = (
            self.transpose(op("Reshape", [m, ints(-1, G, N)], f"{name}_split"), name, 1, 0, 2)
            for m, name in ((B, "B"), (C, "C"))
        )  # [G, T, N]
        delta = op("Reshape", [delta, ints(-1, G, per_group, 1)], "delta_heads")
        dx = op("Mul", [op("Reshape", [x, ints(-1, G, per_group, P)], "x_heads"), delta], "dx")
        negative = self.weight(
            inputs.A_log, "A", (G, per_group, 1), lambda a: -np.exp(a).reshape(G, per_group, 1)
        )
        a = op("Mul", [delta, negative], "a")  # [T, G, h, 1]
        L = self.decays(self.transpose(a, "a_heads", 1, 2, 0, 3))  # [G, h, T, T]
        from_start = op("Exp", [op("CumSum", [a, self.scalar(0)], "a_sums")], "from_start")

        before = op("Reshape", [inputs.states[1], ints(G, per_group * P, N)], "state")
        last_row = op("Slice", [L, ints(-1), ints(END), ints(2)], "last_row")
        to_end = self.transpose(last_row, "to_end", 3, 0, 1, 2)  # [T, G, h, 1]
        left = op("Mul", [dx, to_end], "dx_to_end")
        left = op("Reshape", [left, ints(-1, G, per_group * P)], "dx_to_end_flat")
        added = op("MatMul", [self.transpose(left, "dx_to_end_t", 1, 2, 0), B], "added")
        decay = op("Slice", [from_start, ints(-1), ints(END), ints(0)], "decay")  # [1, G, h, 1]
        decay = op("Reshape", [decay, ints(spec.mamba_num_heads, 1, 1)], "decay_heads")
        kept = op("Mul", [inputs.states[1], decay], "kept")
        added = op("Reshape", [added, ints(spec.mamba_num_heads, P, N)], "added_heads")
        ssm_out = op("Add", [kept, added], "ssm_out")
        if inputs.D is None:
            return None, ssm_out

        CB = op("MatMul", [C, self.transpose(B, "B_t", 0, 2, 1)], "CB")  # [G, T, T]
        mixing = op("Mul", [L, op("Unsqueeze", [CB, ints(1)], "CB_heads")], "mixing")
        within = op("MatMul", [mixing, self.transpose(dx, "dx_heads", 1, 2, 0, 3)], "within")
        within = self.transpose(within, "within_rows", 2, 0, 1, 3)  # [T, G, h, P]
        carried = op("MatMul", [C, self.transpose(before, "state_t", 0, 2, 1)], "CS")
        carried = self.transpose(carried, "CS_rows", 1, 0, 2)
        carried = op("Reshape", [carried, ints(-1, G, per_group, P)], "CS_heads")
        carried = op("Mul", [carried, from_start], "carried")
        y = op(
            "Reshape", [op("Add", [within, carried], "y_heads"), ints(-1, spec.d_inner)], "y_scan"
        )
        skip = self.weight(inputs.D, "expanded", (spec.d_inner,), lambda D: np.repeat(D, P))
        return op("Add", [y, op("Mul", [x, skip], "Dx")], "y_skip"), ssm_out

    def decays(self, a: ir.Value) -> ir.Value:
        """exp(segsum(a)) [G, h, T, T] of a column [G, h, T, 1], zero above the diagonal."""
        op, zero = self.op, self.number(0.0)
        sums = op(
            "CumSum",
            [op("Where", [self.order.strictly_before, a, zero], "a_terms"), self.scalar(2)],
            "segsum",
        )
        return op("Where", [self.order.not_after, op("Exp", [sums], "L_full"), zero], "L")

    # -- gate

    def gated_norm(self, y: ir.Value, z: ir.Value, weight: Weight, epsilon: float) -> ir.Value:
        """rms_norm(y silu(z)) x weight, in groups."""
        op, ints, spec = self.op, self.ints, self.spec
        width = spec.d_inner // spec.n_groups
        gated = op("Mul", [y, self.silu(z, "gate")], "gated")
        grouped = op("Reshape", [gated, ints(0, spec.n_groups, width)], "grouped")
        ones = self.g.const(f"ones.{width}", np.ones(width), np.float32)
        normed = op("RMSNormalization", [grouped, ones], "normed", axis=-1, epsilon=epsilon)
        flat = op("Reshape", [normed, ints(0, spec.d_inner)], "normed_flat")
        scale = self.weight(weight, "f32", (spec.d_inner,), lambda w: w)
        return op("Mul", [flat, scale], "y_f32")
