"""Mamba-2 between its projections; export/plugins/mamba2.cu."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.kernels.launch import Kernel, Launch, Size, defines

WARPS, BLOCK_ROWS = 4, 16
STASH_ROWS = 8
"""Rows of a layer's stash, however many a verify step had."""


@dataclass(frozen=True, slots=True)
class MambaLayer:
    """One layer, by config.json's names."""

    num_heads: int
    head_dim: int
    n_groups: int
    state_size: int
    conv_kernel: int

    @property
    def d_inner(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def conv_dim(self) -> int:
        return self.d_inner + 2 * self.n_groups * self.state_size

    @property
    def blocks(self) -> int:
        return self.num_heads * -(-self.head_dim // BLOCK_ROWS)

    def kernel(self, name: str, **more: int) -> Kernel:
        constants = defines(STATE=self.state_size, CONV_KERNEL=self.conv_kernel, **more)
        return Kernel("mamba2.cu", name, constants)


def mamba2_scan(T: Size, layer: MambaLayer, *, commits: bool) -> Launch:
    """Convolution, scan and gate of T tokens, any number of them.

    Arguments: projected [T, d_inner + conv_dim + heads] bfloat16; conv weight [conv_dim,
    conv_kernel], conv bias [conv_dim], A_log, D, dt_bias [heads]; conv state [conv_dim,
    conv_kernel - 1], SSM state [heads, head_dim, state_size], all float32; arrivals, if it commits:
    zeros [at least n_groups] int32. Outputs: y [T, d_inner] bfloat16, gated and not normalised; if
    it commits, both states and arrivals, in place.
    """
    return Launch(
        layer.kernel("mamba2_scan", COMMITS=int(commits)),
        grid=(layer.blocks, 1, 1),
        block=WARPS * 32,
        integers=(T, layer.num_heads, layer.head_dim, layer.n_groups),
    )


def mamba2_commit(layers: int, layer: MambaLayer) -> Launch:
    """Replays n rows of every layer's stash into the states.

    Arguments, stacked over layers: stash [layers, STASH_ROWS, d_inner + conv_dim + heads] bfloat16;
    conv weight, conv bias, A_log, dt_bias; n [1] int32; conv state, SSM state; arrivals, zeros [at
    least layers x n_groups] int32. Outputs: both states and arrivals, in place.
    """
    return Launch(
        layer.kernel("mamba2_commit", REPLAY=1),
        grid=(layer.blocks, layers, 1),
        block=WARPS * 32,
        integers=(STASH_ROWS, layer.num_heads, layer.head_dim, layer.n_groups),
    )
