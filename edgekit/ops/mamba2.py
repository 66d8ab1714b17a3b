"""Mamba2Scan and Mamba2Commit: causal convolution, selective scan, gated group norm.

The recurrence of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), per head with A = -exp(A_log):

    delta_t = softplus(dt_t + dt_bias)
    S_t     = exp(delta_t A) S_{t-1} + delta_t x_t (outer) B_t      S [head_dim, ssm_state_size]
    y_t     = S_t C_t + D x_t

The output is gated before it is normalised, in n_groups groups: rms_norm(y silu(z)) x weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import F32


def silu(x: F32) -> F32:
    """x sigmoid(x), written so that large negative x cannot overflow."""
    y: F32 = (x * 0.5 * (1.0 + np.tanh(0.5 * x))).astype(np.float32)
    return y


def softplus(x: F32) -> F32:
    """log(1 + exp(x))."""
    return np.logaddexp(np.float32(0), x).astype(np.float32)


def mamba2_scan(
    projected: F32,
    conv_weight: npt.NDArray[Any],
    conv_bias: npt.NDArray[Any],
    A_log: npt.NDArray[Any],
    D: npt.NDArray[Any],
    dt_bias: npt.NDArray[Any],
    norm_weight: npt.NDArray[Any],
    conv_state: F32,
    ssm_state: F32,
    *,
    n_groups: int,
    epsilon: float,
) -> tuple[F32, F32, F32, F32]:
    """The Mamba-2 mixer between its two projections.

    Args:
        projected: [T, d_inner + conv_dim + heads], rows of z | x B C | dt.
        conv_weight, conv_bias: [conv_dim, K] and [conv_dim].
        A_log, D, dt_bias: [heads].
        norm_weight: [d_inner].
        conv_state: [conv_dim, K-1], the last K-1 rows of x B C before the convolution.
        ssm_state: [heads, head_dim, ssm_state_size].

    Returns:
        y [T, d_inner]; the stash [T, conv_dim + heads] that `mamba2_commit` replays, which is
        `projected` without z; and both states after the last token.
    """
    d_inner = norm_weight.shape[0]
    z, stash = projected[:, :d_inner], projected[:, d_inner:]
    y, conv_state, ssm_state = recurrence(
        stash, conv_weight, conv_bias, A_log, D, dt_bias, conv_state, ssm_state, n_groups
    )
    gated = (y * silu(z)).reshape(y.shape[0], n_groups, -1)
    gated = gated / np.sqrt(np.mean(np.square(gated), axis=-1, keepdims=True) + np.float32(epsilon))
    out = gated.reshape(y.shape) * norm_weight.astype(np.float32)
    return out.astype(np.float32), stash, conv_state, ssm_state


def mamba2_commit(
    stash: F32,
    conv_weight: npt.NDArray[Any],
    conv_bias: npt.NDArray[Any],
    A_log: npt.NDArray[Any],
    dt_bias: npt.NDArray[Any],
    conv_state: F32,
    ssm_state: F32,
    *,
    n_groups: int,
) -> tuple[F32, F32]:
    """Replays accepted rows of a verify step into the committed state: no projection, no output.

    Args:
        stash: [n, conv_dim + heads], rows of x B C | dt that the verify step projected.

    Returns:
        Both states, as `mamba2_scan` over the same n tokens would leave them.
    """
    D = np.zeros_like(A_log)
    _, conv_state, ssm_state = recurrence(
        stash, conv_weight, conv_bias, A_log, D, dt_bias, conv_state, ssm_state, n_groups
    )
    return conv_state, ssm_state


def recurrence(
    stash: F32,
    conv_weight: npt.NDArray[Any],
    conv_bias: npt.NDArray[Any],
    A_log: npt.NDArray[Any],
    D: npt.NDArray[Any],
    dt_bias: npt.NDArray[Any],
    conv_state: F32,
    ssm_state: F32,
    n_groups: int,
    xBC_dtype: npt.DTypeLike = np.float32,
) -> tuple[F32, F32, F32]:
    """Convolution and recurrence: y [T, d_inner] before the gate, and both states after.

    Args:
        xBC_dtype: what x, B and C are rounded to behind the convolution.
    """
    T, (conv_dim, K) = stash.shape[0], conv_weight.shape
    heads, head_dim, N = ssm_state.shape
    d_inner = heads * head_dim

    rows = np.concatenate([conv_state.T, stash[:, :conv_dim]])  # [K-1+T, conv_dim]
    taps = conv_weight.astype(np.float32)
    convolved = sum((rows[k : k + T] * taps[:, k] for k in range(K)), start=np.float32(0))
    xBC = silu(np.asarray(convolved + conv_bias.astype(np.float32), dtype=np.float32))
    xBC = xBC.astype(xBC_dtype).astype(np.float32)
    x = xBC[:, :d_inner].reshape(T, heads, head_dim)
    B = xBC[:, d_inner : d_inner + n_groups * N].reshape(T, n_groups, N)
    C = xBC[:, d_inner + n_groups * N :].reshape(T, n_groups, N)
    B, C = (np.repeat(m, heads // n_groups, axis=1) for m in (B, C))  # [T, heads, N]

    A = -np.exp(A_log.astype(np.float32))
    delta = softplus(stash[:, conv_dim:] + dt_bias.astype(np.float32))  # [T, heads]
    decay = np.exp(delta * A)
    state = ssm_state.astype(np.float32)
    y = np.empty((T, heads, head_dim), dtype=np.float32)
    for t in range(T):
        update = (delta[t, :, None] * x[t])[:, :, None] * B[t, :, None, :]
        state = decay[t, :, None, None] * state + update
        y[t] = np.einsum("hpn,hn->hp", state, C[t])
    y += D.astype(np.float32)[:, None] * x
    return y.reshape(T, d_inner), rows[T:].T.astype(np.float32), state.astype(np.float32)
