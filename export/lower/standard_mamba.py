"""Mamba-2 in standard operators: no loop over tokens, whatever their number.

The T rows are cut into chunks of Q = min(T, 64), the last one filled up with rows whose delta is 0,
which change no state. With a_t = delta_t A and segsum(a)[i, j] = a_{j+1} + ... + a_i, the state
space duality of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060, section 6) is products of matrices:

    L = exp(segsum(a)), 0 above the diagonal                            within a chunk
    Y = (C B^T * L) (delta x) + exp(a_0 + ... + a_i) C S_c              S_c: state before chunk c
    S = exp(segsum(a over whole chunks)) [S_0, states of the chunks]    all S_c and the last state

Sums are made by CumSum over a masked matrix, not as differences of one running sum: those would
cancel where the sum is large. Everything is float32 and indexed [chunk, group, head of the group].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.tensors import Weight, computed
from edgekit.export.lower.standard_parts import END, FLOAT, PartWriter
from edgekit.model import ModelSpec

CHUNK = 64
"""Rows of a chunk. Work within chunks grows with it, work between them shrinks."""

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

    def __init__(self, g: GraphBuilder, spec: ModelSpec, prefix: str) -> None:
        super().__init__(g, prefix, FLOAT)
        self.spec = spec

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
        T = op("Shape", [xBC], "T", start=0, end=1)
        Q = op("Min", [T, ints(CHUNK)], "Q")
        most = op("Sub", [op("Add", [T, Q], "T_and_Q"), ints(1)], "T_and_rest")
        filled_T = op("Mul", [op("Div", [most, Q], "chunk_count"), Q], "filled_T")
        missing = op("Sub", [filled_T, T], "missing")  # 0..Q-1 rows

        def chunked(rows: ir.Value, name: str, *dims: int) -> ir.Value:
            """[T, product of dims] to [chunks, Q, *dims], filled up with zeros."""
            pads = op("Concat", [ints(0, 0), missing, ints(0)], f"{name}.pads", axis=0)
            filled = op("Pad", [rows, pads], f"{name}.filled")
            return self.reshape(filled, [ints(-1), Q, ints(*dims)], f"{name}.chunks")

        split = [xBC, ints(spec.d_inner, G * N, G * N)]
        x_rows, B_rows, C_rows = self.ops("Split", split, ["x_rows", "B_rows", "C_rows"], axis=1)
        heads_first = [0, 2, 3, 1]
        x = self.transpose(chunked(x_rows, "x", G, per_group, P), "x", *heads_first, 4)
        dt = self.transpose(chunked(delta, "delta", G, per_group), "delta_t", *heads_first)
        # One head axis that B and C share out over their group's heads.
        B = self.transpose(chunked(B_rows, "B", G, 1, N), "B", *heads_first, 4)
        C = self.transpose(chunked(C_rows, "C", G, 1, N), "C", *heads_first, 4)
        negative = self.weight(
            inputs.A_log, "A", (G, per_group, 1), lambda a: -np.exp(a).reshape(G, per_group, 1)
        )
        a = op("Mul", [dt, negative], "a")  # [c, G, h, Q]
        dx = op("Mul", [x, op("Unsqueeze", [dt, ints(-1)], "delta_column")], "dx")

        L = self.decays(a, "within")  # [c, G, h, Q, Q]
        last = [L, ints(-1), ints(END), ints(3)]
        to_end = self.transpose(op("Slice", last, "last_row"), "to_end", 0, 1, 2, 4, 3)
        weighted = op("Mul", [dx, to_end], "dx_to_end")
        weighted = self.transpose(weighted, "dx_to_end_t", 0, 1, 2, 4, 3)
        own = op("MatMul", [weighted, B], "own_states")  # [c, G, h, P, N]

        before, ssm_out = self.pass_states(a, own, inputs.states[1])
        if inputs.D is None:
            return None, ssm_out
        B_t = self.transpose(B, "B_t", 0, 1, 2, 4, 3)
        mixing = op("Mul", [op("MatMul", [C, B_t], "CB"), L], "mixing")
        within = op("MatMul", [mixing, dx], "y_within")
        from_start = op("Exp", [op("CumSum", [a, self.scalar(3)], "a_running")], "from_start")
        from_start = op("Unsqueeze", [from_start, ints(-1)], "from_start_column")
        before_t = self.transpose(before, "before_t", 0, 1, 2, 4, 3)
        carried = op("Mul", [op("MatMul", [C, before_t], "CS"), from_start], "y_carried")
        y = op("Add", [within, carried], "y_heads")
        y = self.transpose(y, "y_chunks", 0, 3, 1, 2, 4)
        y = op("Reshape", [y, ints(-1, spec.d_inner)], "y_filled")
        y = op("Slice", [y, ints(0), T, ints(0)], "y_scan")
        skip = self.weight(inputs.D, "expanded", (spec.d_inner,), lambda D: np.repeat(D, P))
        return op("Add", [y, op("Mul", [x_rows, skip], "Dx")], "y_skip"), ssm_out

    def decays(self, a: ir.Value, name: str) -> ir.Value:
        """exp(segsum(a)) [..., n, n] of a [..., n], zero above the diagonal."""
        op = self.op
        n = op("Shape", [a], f"{name}.n", start=-1)
        one = op("Squeeze", [n], f"{name}.count")
        index = op("Range", [self.scalar(0), one, self.scalar(1)], f"{name}.index")
        row = op("Unsqueeze", [index, self.ints(1)], f"{name}.row")
        strictly = op("Greater", [row, index], f"{name}.strictly")
        below = op("GreaterOrEqual", [row, index], f"{name}.below")
        zero = self.number(0.0)
        column = op("Unsqueeze", [a, self.ints(-1)], f"{name}.column")
        terms = op("Where", [strictly, column, zero], f"{name}.terms")
        sums = op("CumSum", [terms, self.scalar(-2)], f"{name}.sums")
        return op("Where", [below, op("Exp", [sums], f"{name}.exp"), zero], f"{name}.decays")

    def pass_states(
        self, a: ir.Value, own: ir.Value, initial: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """States before each chunk [c, G, h, P, N], and after the last [heads, P, N]."""
        op, ints, spec = self.op, self.ints, self.spec
        G, P, N = spec.n_groups, spec.mamba_head_dim, spec.ssm_state_size
        per_group = spec.mamba_num_heads // G
        shape = ints(1, G, per_group, P, N)
        first = op("Reshape", [initial, shape], "first_state")
        states = op("Concat", [first, own], "states", axis=0)  # [c+1, G, h, P, N]
        whole = op("ReduceSum", [a, ints(-1)], "a_whole", keepdims=0)  # [c, G, h]
        zeros = self.g.const(f"zeros.{G}.{per_group}", np.zeros((1, G, per_group)), np.float32)
        steps = op("Concat", [zeros, whole], "a_steps", axis=0)
        decays = self.decays(self.transpose(steps, "a_steps_t", 1, 2, 0), "between")
        flat = op("Reshape", [states, ints(0, G, per_group, P * N)], "states_flat")
        flat = self.transpose(flat, "states_t", 1, 2, 0, 3)  # [G, h, c+1, P N]
        passed = op("MatMul", [decays, flat], "passed")
        passed = self.transpose(passed, "passed_t", 2, 0, 1, 3)
        before = op("Slice", [passed, ints(0), ints(-1), ints(0)], "before_flat")
        end = [passed, ints(-1), ints(END), ints(0)]
        after = op("Slice", end, "after_flat")
        before = op("Reshape", [before, ints(0, G, per_group, P, N)], "before")
        final = op("Reshape", [after, ints(spec.mamba_num_heads, P, N)], "ssm_out")
        return before, final

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
