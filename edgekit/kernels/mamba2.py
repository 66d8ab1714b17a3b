"""Mamba-2 between its projections.

export/plugins/mamba2.cu for a few tokens, mamba2_prefill.cu for a prompt's.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.errors import BuildError
from edgekit.kernels.launch import Kernel, Launch, Size, defines

WARPS, BLOCK_ROWS = 4, 16
STASH_ROWS = 8
"""Rows of a layer's stash, however many a verify step had."""

PREFILL_WARPS, PREFILL_ROWS, CHUNK = 8, 32, 64
"""A block of the prefill kernel: its warps, rows of one head's state, tokens at a time."""


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

    def kernel(self, name: str, source: str = "mamba2.cu", **more: int) -> Kernel:
        constants = defines(STATE=self.state_size, CONV_KERNEL=self.conv_kernel, **more)
        return Kernel(source, name, constants)


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


def mamba2_prefill(T: Size, layer: MambaLayer) -> Launch:
    """Convolution, scan and gate of a prompt's T tokens, any number of them, on tensor cores.

    Arguments and outputs are those of `mamba2_scan` that commits. x, B and C are rounded to
    bfloat16 after the convolution; the state stays float32.

    Raises:
        BuildError: the layer's sizes are none that the kernel is made for.
    """
    if layer.num_heads % 2 or layer.head_dim % 2:
        raise _no_prefill("heads and head_dim are even")
    if layer.state_size % 16 or layer.state_size > 128:
        raise _no_prefill("the state's size is a multiple of 16 up to 128")
    state_row, x_row = 2 * (layer.state_size + 8), 2 * (PREFILL_ROWS + 8)
    chunk = CHUNK * (2 * state_row + x_row + 3 * 4)
    return Launch(
        layer.kernel("mamba2_prefill", "mamba2_prefill.cu"),
        grid=(layer.num_heads * -(-layer.head_dim // PREFILL_ROWS), 1, 1),
        block=PREFILL_WARPS * 32,
        shared=2 * chunk + 2 * PREFILL_ROWS * state_row + 16,
        integers=(T, layer.num_heads, layer.head_dim, layer.n_groups),
    )


def _no_prefill(condition: str) -> BuildError:
    return BuildError(
        "this model cannot run on edgekit's CUDA kernels",
        cause=f"the prefill kernel is made for Mamba layers whose {condition}",
        hint="build for ONNX Runtime with --device cpu",
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
