"""Times the step kernels at Lightning's sizes on this machine's GPU.

    python -m tests.bench.kernels_step [--tokens 1 4 8] [--json FILE]

Each figure is a launch in a replayed CUDA graph with its weights cold in the cache; `share` is the
bytes of weights it must read over the measured copy bandwidth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from edgekit.kernels.launch import Launch
from edgekit.kernels.linear import linear_step
from edgekit.kernels.moe import (
    MoeLayer,
    down_sums_shape,
    moe_down_step,
    moe_route_step,
    moe_up_step,
)
from edgekit.kernels.weights import MAX_TOKENS, Matrix
from tests.tools import gpu

BITS = {"dense": 16, "fp8": 8, "nvfp4": 4.5, "int4": 4.25}
EXPERTS, TOP_K, H, I, SHARED = 128, 6, 2688, 1856, 3712


def packed(matrix: Matrix, count: int = 1) -> list[np.ndarray]:
    """Random codes and harmless scales of `count` matrices."""
    random = np.random.default_rng(0)
    words = {"dense": 4, "fp8": 2, "nvfp4": 1, "int4": 1}[matrix.format]
    tiles = matrix.row_tiles * matrix.column_tiles * count
    codes = random.integers(0, 256, tiles * words * 512, dtype=np.uint8)
    if matrix.format == "dense":
        codes = (codes & 0x3F).astype(np.uint8)  # small numbers, no NaN
    arrays = [codes]
    if matrix.format == "nvfp4":
        arrays.append(np.full(tiles * 64, 0x30, np.uint8))
    elif matrix.format == "int4":
        arrays.append(np.full(tiles * 16, 0.01, np.float16))
    return [*arrays, np.full(count, 0.01, np.float32)]


def linear_case(T: int, matrix: Matrix) -> tuple[Launch, list[np.ndarray], list[np.ndarray], float]:
    x = np.ones((T, matrix.K), np.float32)
    norm = np.ones(matrix.K, np.float32)
    launch = linear_step(T, matrix, input="float32", output="float32", norm_groups=1, epsilon=1e-5)
    y = np.zeros((T, matrix.N), np.float32)
    nbytes = matrix.N * matrix.K * BITS[matrix.format] / 8
    return launch, [x, norm, *packed(matrix)], [y], nbytes


def moe_cases(T: int) -> dict[str, tuple[Launch, list[np.ndarray], list[np.ndarray], float]]:
    up, down = Matrix(I, H, "nvfp4"), Matrix(H, I, "nvfp4")
    shared_up, shared_down = Matrix(SHARED, H, "nvfp4"), Matrix(H, SHARED, "nvfp4")
    layer = MoeLayer(up, down, EXPERTS, TOP_K, shared_up, shared_down, routed_scaling_factor=2.5)
    random = np.random.default_rng(1)
    h = random.normal(size=(T, H)).astype(np.float32)
    scores = random.uniform(size=(T, EXPERTS)).astype(np.float32)
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :TOP_K].astype(np.int32)
    experts = np.unique(chosen)
    distinct = len(experts)
    bf16 = np.dtype(ml_dtypes.bfloat16)
    normed, hidden = np.ones((T, H), bf16), np.ones((T * TOP_K, T, I), bf16)
    shared_hidden = np.ones((T, SHARED), bf16)
    slots = np.full(1 + T * TOP_K, -1, np.int32)
    slots[: 1 + distinct] = distinct, *experts
    shares = np.zeros((T * TOP_K, MAX_TOKENS), np.float32)
    for slot, expert in enumerate(experts):
        shares[slot, :T] = (chosen == expert).any(axis=1)
    one = BITS["nvfp4"] / 8 * I * H
    gate = random.normal(size=(EXPERTS, H)).astype(np.float32)
    bias, arrivals = np.zeros(EXPERTS, np.float32), np.zeros(1024, np.int32)
    sums = np.zeros(down_sums_shape(layer), np.float32)
    table = [hidden, slots, shares]
    shared_bytes = BITS["nvfp4"] / 8 * SHARED * H
    return {
        "moe route + shared up": (
            moe_route_step(T, layer),
            [h, np.ones(H, np.float32), gate, bias, *packed(shared_up), arrivals],
            [scores, slots.copy(), shares.copy(), normed, shared_hidden, arrivals],
            gate.nbytes + shared_bytes,
        ),
        f"moe up ({distinct} experts)": (
            moe_up_step(T, layer),
            [normed, slots, shares, *packed(up, EXPERTS)],
            [hidden],
            distinct * one,
        ),
        f"moe down ({distinct} experts)": (
            moe_down_step(T, layer),
            [*table, *packed(down, EXPERTS), shared_hidden, *packed(shared_down), h, arrivals],
            [h, sums, arrivals],
            distinct * one + shared_bytes,
        ),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    bandwidth = gpu.copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s")
    matrices = {
        "mamba in_proj fp8": Matrix(10304, H, "fp8"),
        "mamba out_proj fp8": Matrix(H, 4096, "fp8"),
        "attention qkv bf16": Matrix(4608, H, "dense"),
        "attention o_proj bf16": Matrix(H, 4096, "dense"),
        "lm_head nvfp4": Matrix(131072, H, "nvfp4"),
        "in_proj int4": Matrix(10304, H, "int4"),
    }
    records = []
    for T in arguments.tokens:
        cases = {name: linear_case(T, matrix) for name, matrix in matrices.items()} | moe_cases(T)
        for name, (launch, inputs, outputs, nbytes) in cases.items():
            seconds = gpu.time(launch, inputs, outputs)
            rate = nbytes / seconds
            share = rate / bandwidth
            records.append({"T": T, "name": name, "us": seconds * 1e6, "share": share})
            print(f"T={T} {name:32} {seconds * 1e6:8.2f} us {rate / 1e9:7.0f} GB/s {share:6.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"bandwidth": bandwidth, "records": records}))


if __name__ == "__main__":
    main()
