"""What each node of a `plugin` graph computes, in NumPy: the graph without its kernels.

Activations are rounded to bfloat16 where the kernels hold them so; sums are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.kernels.moe import MoeLayer
from edgekit.kernels.nodes import read_matrix, read_moe
from edgekit.kernels.weights import Matrix
from edgekit.ops.attention import attention, to_fp8_cache
from edgekit.ops.draft import norm_rope, swiglu
from edgekit.ops.formats import E2M1_VALUES, FLOAT8_E4M3
from edgekit.ops.mamba2 import recurrence, silu
from edgekit.ops.moe import moe_route
from edgekit.ops.rms_norm import rms_norm
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.sampling import distribution
from tests.tools.tiles import from_tiles, to_tiles

Array = npt.NDArray[Any]
Arrays = Sequence[Array]
F32 = npt.NDArray[np.float32]
Attributes = Mapping[str, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def compute(op: str, attributes: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """Computes a node into `outputs`, which may be among the inputs."""
    _NODES[op](attributes, inputs, outputs)


# -- weights


def unpack(matrix: Matrix, codes: Array, scales: Array | None, scale: Array) -> F32:
    """The float32 matrix [N, K] of packed tiles: the inverse of `pack`, after weights.cuh."""
    rows, columns = matrix.row_tiles, matrix.column_tiles
    words = codes.reshape(-1).view(np.uint32)
    if matrix.format == "dense":
        # [N/16, K/64, step, g, q, pair, row half] -> [N/16, row half, g, K/64, step, q, pair]
        units = words.reshape(rows, columns, 4, 8, 4, 2, 2).transpose(0, 6, 3, 1, 2, 4, 5)
        values = np.ascontiguousarray(units).view(BFLOAT16).astype(np.float32)
        return values.reshape(rows * 16, columns * 64)[: matrix.N, : matrix.K]
    if matrix.format == "fp8":
        halves = words.view(np.uint16).reshape(rows, columns, 2, 8, 4, 2, 2, 2)
        first = halves >> 15 << 7 | halves >> 4 & 0x7F
        second = (halves >> 14 & 1) << 7 | (halves >> 11 & 7) << 4 | halves & 15
        both = np.stack([first, second]).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
        # [row half, N/16, K/64, load, g, q, step, pair, half]
        values = both.astype(np.float32).transpose(1, 0, 4, 2, 3, 6, 5, 7, 8)
        return values.reshape(rows * 16, columns * 64)[: matrix.N, : matrix.K] * scale
    halves = words.view(np.uint16).reshape(rows, columns, 8, 4, 4, 2)  # .. g, q, step, half
    if matrix.format == "nvfp4":
        places = ((15, 6), (12, 3), (14, 0), (13, 9))
        found = [(halves >> s & 1) << 3 | halves >> low & 7 for s, low in places]
        values = E2M1_VALUES[np.stack(found)]
    else:
        values = np.stack([halves >> 4 * i & 15 for i in range(4)]).astype(np.float32) - 8
    # [pair, row half, N/16, K/64, g, q, step, half] -> rows, then K/64, step, q, pair, half
    values = values.reshape(2, 2, *halves.shape).transpose(2, 1, 4, 3, 6, 5, 0, 7)
    values = values.reshape(rows * 16, columns * 64)
    assert scales is not None
    by_row = scales.reshape(rows, columns, 8, 2, -1).transpose(0, 3, 2, 1, 4)
    by_row = by_row.reshape(rows * 16, -1).astype(np.float32)
    values *= np.repeat(by_row, values.shape[1] // by_row.shape[1], axis=1)
    return values[: matrix.N, : matrix.K] * scale


def _take_matrix(matrix: Matrix, inputs: list[Array]) -> F32:
    """A matrix from the front of a kernel's inputs."""
    codes = inputs.pop(0)
    scales = inputs.pop(0) if matrix.has_block_scales else None
    return unpack(matrix, codes, scales, inputs.pop(0))


def _expert(matrix: Matrix, parts: Arrays, e: int) -> F32:
    codes, scales, scale = parts
    return unpack(matrix, codes[e], scales[e] if matrix.has_block_scales else None, scale[e])


def _always_three(matrix: Matrix, parts: Arrays) -> F32:
    codes, scales, scale = parts
    return unpack(matrix, codes, scales if matrix.has_block_scales else None, scale)


# -- activations


def round_bf16(x: Array) -> F32:
    return x.astype(BFLOAT16).astype(np.float32)


def _to_tiles(x: F32, matrix: Matrix, out: Array) -> None:
    out[...] = to_tiles((x * np.float32(_activation_scale(matrix))).astype(BFLOAT16))


def _from_tiles(tiles: Array, matrix: Matrix) -> F32:
    return from_tiles(tiles, matrix.K).astype(np.float32) / np.float32(_activation_scale(matrix))


def _activation_scale(matrix: Matrix) -> float:
    return 2.0**96 if matrix.format in ("fp8", "nvfp4") else 1.0


def _relu2(x: F32) -> F32:
    return np.square(np.maximum(x, 0))


def _norm(x: F32, weight: F32, groups: int, epsilon: float) -> F32:
    grouped = x.astype(np.float32).reshape(len(x), groups, -1)
    ones = np.ones(grouped.shape[-1], np.float32)
    return rms_norm(grouped, ones, epsilon=epsilon).reshape(x.shape) * weight


# -- nodes


def _embed(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    tokens, table = inputs
    outputs[0][...] = table[tokens]


def _linear(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    rest = list(inputs)
    x = rest.pop(0).astype(np.float32)
    if a["norm_groups"]:
        x = _norm(x, rest.pop(0), a["norm_groups"], a["epsilon"])
    y = round_bf16(x) @ _take_matrix(read_matrix(a), rest).T
    if a["relu2"]:
        y = _relu2(y)
    if a["residual"]:
        y = y + rest.pop(0)
    assert not rest
    outputs[0][...] = y


def _mamba2_scan(
    a: Attributes, inputs: Arrays, outputs: Arrays, xBC_dtype: npt.DTypeLike = np.float32
) -> None:
    projected, conv_weight, conv_bias, A_log, D, dt_bias, conv_state, ssm_state = inputs[:8]
    d_inner = a["num_heads"] * a["head_dim"]
    rows = projected.astype(np.float32)
    y, conv, ssm = recurrence(
        rows[:, d_inner:],
        conv_weight,
        conv_bias,
        A_log,
        D,
        dt_bias,
        conv_state,
        ssm_state,
        a["n_groups"],
        xBC_dtype,
    )
    outputs[0][...] = y * silu(rows[:, :d_inner])
    for state, after in zip(outputs[1:], (conv, ssm), strict=False):
        state[...] = after


def _mamba2_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    _mamba2_scan(a, inputs, outputs, BFLOAT16)


def _mamba2_commit(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    stash, conv_weight, conv_bias, A_log, dt_bias, n, conv_state, ssm_state, _ = inputs
    d_inner = a["num_heads"] * a["head_dim"]
    for i in range(len(stash)):
        rows = stash[i, : n[0], d_inner:].astype(np.float32)
        weights = (conv_weight[i], conv_bias[i], A_log[i], np.zeros_like(A_log[i]), dt_bias[i])
        _, conv, ssm = recurrence(rows, *weights, conv_state[i], ssm_state[i], a["n_groups"])
        outputs[0][i], outputs[1][i] = conv, ssm


def _attention(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    qkv, key_cache, value_cache, length = inputs[:4]
    q, kv = a["num_heads"] * a["head_dim"], a["kv_num_heads"] * a["head_dim"]
    rows = qkv.astype(np.float32)
    scales = a.get("key_scale", 1.0), a.get("value_scale", 1.0)
    y, *after = attention(
        rows[:, :q],
        rows[:, q : q + kv],
        rows[:, q + kv :],
        key_cache.astype(np.float32) * np.float32(scales[0]),
        value_cache.astype(np.float32) * np.float32(scales[1]),
        int(length[0]),
        num_heads=a["num_heads"],
        kv_num_heads=a["kv_num_heads"],
        scale=a["scale"],
        window=a.get("window", 0),
        sinks=inputs[-1] if a.get("sinks") else None,
    )
    outputs[0][...] = y
    for out, cache, scale in zip(outputs[1:3], after, scales, strict=True):
        out[...] = to_fp8_cache(cache, scale) if out.dtype == FLOAT8_E4M3 else cache


def _chosen(layer: MoeLayer, x: F32, gate: Array, bias: Array) -> tuple[Array, Array]:
    """Weights and experts of each token."""
    weights, indices = moe_route(
        x,
        gate,
        bias,
        top_k=layer.num_experts_per_tok,
        n_group=layer.n_group,
        topk_group=layer.topk_group,
        norm_topk_prob=layer.norm_topk_prob,
        routed_scaling_factor=layer.routed_scaling_factor,
    )
    return weights, indices


def _moe_route_step(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    layer = read_moe(a)
    h, norm_weight, gate, bias, *shared, _ = inputs
    scores, slots, shares, normed = outputs[:4]
    x = _norm(h, norm_weight, 1, layer.epsilon)
    scores[...] = 1 / (1 + np.exp(-(x @ gate.T)))
    weights, indices = _chosen(layer, x, gate, bias)
    distinct = np.unique(indices)
    slots[...], shares[...] = -1, 0
    slots[0], slots[1 : 1 + len(distinct)] = len(distinct), distinct
    for s, e in enumerate(distinct):
        for t, k in zip(*np.nonzero(indices == e), strict=True):
            shares[s, t] = weights[t, k]
    _to_tiles(x, layer.up, normed)
    if layer.shared_up is not None and layer.shared_down is not None:
        hidden = _relu2(round_bf16(x) @ _always_three(layer.shared_up, shared).T)
        _to_tiles(hidden, layer.shared_down, outputs[4])


def _moe_up_step(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    layer = read_moe(a)
    normed, slots, shares, *up = inputs
    x = _from_tiles(normed, layer.up)
    for s, e in enumerate(slots[1 : 1 + slots[0]]):
        matrix = _expert(layer.up, up, e)
        for t in np.flatnonzero(shares[s]):
            _to_tiles(_relu2(matrix @ x[t]), layer.down, outputs[0][s, t])


def _moe_down_step(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    layer = read_moe(a)
    hidden, slots, shares, *rest, residual, _ = inputs
    y = residual.astype(np.float32)
    for s, e in enumerate(slots[1 : 1 + slots[0]]):
        matrix = _expert(layer.down, rest[:3], e)
        for t in np.flatnonzero(shares[s]):
            y[t] += shares[s, t] * (matrix @ _from_tiles(hidden[s, t], layer.down))
    if layer.shared_down is not None:
        shared = _from_tiles(rest[3], layer.shared_down)
        y += shared @ _always_three(layer.shared_down, rest[4:7]).T
    outputs[0][...] = y


# -- nodes of the prefill graph, whose activations in tile order are not scaled


def _norm_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    x = inputs[0].astype(np.float32)
    if a["norm_groups"]:
        x = _norm(x, inputs[1], a["norm_groups"], a["epsilon"])
    outputs[0][...] = to_tiles(x.astype(BFLOAT16))


def _linear_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    matrix, rest = read_matrix(a), list(inputs)
    x = from_tiles(rest.pop(0), matrix.K).astype(np.float32)
    y = x @ _take_matrix(matrix, rest).T
    if a["relu2"]:
        y = _relu2(y)
    if a["residual"]:
        y = y + rest.pop(0)
    assert not rest
    outputs[0][...] = to_tiles(y.astype(BFLOAT16)) if a["output"] == "tiles" else y


def _moe_route_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    layer = read_moe(a)
    h, norm_weight, gate, bias = inputs
    x = _norm(h, norm_weight, 1, layer.epsilon)
    outputs[1][...], outputs[0][...] = _chosen(layer, x, gate, bias)


def _moe_sort_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    """Tiles that hold nothing are not written, here and in what follows."""
    experts, (order, tile_expert) = inputs[0].reshape(-1), outputs
    tile_expert[...] = -1
    tile = 0
    for e in np.unique(experts):
        pairs = np.flatnonzero(experts == e)
        for first in range(0, len(pairs), order.shape[1]):
            own = pairs[first : first + order.shape[1]]
            order[tile], tile_expert[tile] = -1, e
            order[tile, : len(own)] = own
            tile += 1


def _moe_up_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    layer = read_moe(a)
    normed, order, tile_expert, *up = inputs
    x = from_tiles(normed, layer.up.K).astype(np.float32)
    hidden = outputs[0].reshape(*order.shape, -1)
    for tile in np.flatnonzero(tile_expert >= 0):
        own = order[tile][order[tile] >= 0]
        matrix = _expert(layer.up, up, tile_expert[tile])
        hidden[tile] = 0
        y = _relu2(x[own // layer.num_experts_per_tok] @ matrix.T)
        hidden[tile, : len(own)] = to_tiles(y.astype(BFLOAT16))


def _moe_down_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    layer = read_moe(a)
    hidden, order, tile_expert, weights, *down = inputs
    x = from_tiles(hidden, layer.down.K).astype(np.float32).reshape(*order.shape, -1)
    parts = outputs[0].reshape(-1, layer.down.N)
    for tile in np.flatnonzero(tile_expert >= 0):
        own = order[tile][order[tile] >= 0]
        matrix = _expert(layer.down, down, tile_expert[tile])
        parts[own] = (x[tile, : len(own)] @ matrix.T) * weights.reshape(-1, 1)[own]


def _moe_sum_prefill(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    parts, residual = inputs
    outputs[0][...] = residual + parts.astype(np.float32).sum(axis=1)


# -- nodes of a draft's graphs, and what follows the logits


def _argmax(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    outputs[0][...] = inputs[0].argmax(axis=-1)


def philox(position: int, purpose: int, seed: int) -> int:
    """The first 64 bits of Philox4x32-10 (Salmon et al. 2011) at (position, purpose, 0, 0)."""
    counter, key = [position, purpose, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    low = 0xFFFFFFFF
    for _ in range(10):
        a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        one, three = counter[1], counter[3]
        counter = [(b >> 32) ^ one ^ key[0], b & low, (a >> 32) ^ three ^ key[1], a & low]
        key = [(key[0] + 0x9E3779B9) & low, (key[1] + 0xBB67AE85) & low]
    return counter[0] | counter[1] << 32


def _shares(random: Array, row: int, count: int) -> list[float]:
    low, high, position, purpose = (int(word) for word in random.view(np.uint32))
    seed = low | high << 32
    return [philox(position + row, purpose + i, seed) / 2**64 for i in range(count)]


def read_settings(words: Array) -> SamplingParams:
    by, _, _, min_p = (float(one) for one in words.view(np.float32))
    _, top_k, top_p, _ = (int(word) for word in words.view(np.uint32))
    return SamplingParams(
        temperature=1 / by, top_k=top_k, top_p=top_p / 2**32 if top_p else 1.0, min_p=min_p
    )


def _drawn(weights: npt.NDArray[np.float64], share: float) -> int:
    mass = np.cumsum(weights)
    return int(np.searchsorted(mass, share * mass[-1], side="right"))


def _sample(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    logits, _, _, settings, random = inputs
    params = read_settings(settings)
    for i, row in enumerate(logits):
        (share,) = _shares(random, i, 1)
        outputs[0][i] = _drawn(distribution(row, params), share)


def _judge(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    logits, _, _, base, _, _, tokens, settings, random = inputs
    params = read_settings(settings)
    for i, row in enumerate(logits):
        share, keep = _shares(random, i, 2)
        p = distribution(row, params)
        if i + 1 == len(logits):
            outputs[0][i] = _drawn(p, share)
            continue
        q, drafted = distribution(base[i], params), int(tokens[i + 1])
        stays = keep * q[drafted] < p[drafted]
        outputs[0][i] = drafted if stays else _drawn(np.maximum(p - q, 0), share)


def _norm_rope(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    qkv, query_norm, key_norm, cos, sin = inputs
    heads, kv, D = a["num_heads"], a["kv_num_heads"], a["head_dim"]
    rows = qkv.astype(np.float32)
    split = [heads * D, (heads + kv) * D]
    q, k, v = np.split(rows, split, axis=1)
    epsilon = a["epsilon"]
    q = norm_rope(q, query_norm, cos, sin, epsilon=epsilon)
    k = norm_rope(k, key_norm, cos, sin, epsilon=epsilon)
    outputs[0][...] = np.concatenate([q, k, v], axis=1)


def _context_rows(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    rows, key_norms, cos, sin, length = inputs[:5]
    kv, D, layers = a["kv_num_heads"], a["head_dim"], a["layers"]
    T, at = len(rows), int(length[0])
    parts = rows.astype(np.float32).reshape(T, layers, 2, kv * D)
    for i in range(layers):
        keys = norm_rope(parts[:, i, 0], key_norms[i], cos, sin, epsilon=a["epsilon"])
        for cache, one in zip(outputs, (keys, parts[:, i, 1]), strict=True):
            cache[i, :, at : at + T] = one.reshape(T, kv, D).swapaxes(0, 1)


def _swiglu(a: Attributes, inputs: Arrays, outputs: Arrays) -> None:
    gate, up = (x.astype(np.float32) for x in inputs)
    outputs[0][...] = swiglu(gate, up)


_NODES: dict[str, Callable[[Attributes, Arrays, Arrays], None]] = {
    "embed": _embed,
    "linear_step": _linear,
    "mamba2_scan": _mamba2_scan,
    "mamba2_commit": _mamba2_commit,
    "attention_step": _attention,
    "moe_route_step": _moe_route_step,
    "moe_up_step": _moe_up_step,
    "moe_down_step": _moe_down_step,
    "norm_prefill": _norm_prefill,
    "linear_prefill": _linear_prefill,
    "mamba2_prefill": _mamba2_prefill,
    "attention_prefill": _attention,
    "moe_route_prefill": _moe_route_prefill,
    "moe_sort_prefill": _moe_sort_prefill,
    "moe_up_prefill": _moe_up_prefill,
    "moe_down_prefill": _moe_down_prefill,
    "moe_sum_prefill": _moe_sum_prefill,
    "argmax": _argmax,
    "sample": _sample,
    "judge": _judge,
    "norm_rope": _norm_rope,
    "context_rows": _context_rows,
    "swiglu": _swiglu,
}
