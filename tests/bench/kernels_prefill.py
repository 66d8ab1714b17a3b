"""Times the prefill kernels at Lightning's sizes on this machine's GPU.

    python -m tests.bench.kernels_prefill [--tokens 512 2048] [--length 0] [--json FILE]

Each figure is a launch in a replayed CUDA graph with cold arrays; `share` is the useful products
and sums on tensor cores over the rate of a large bfloat16 product, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from edgekit.kernels.attention import AttentionLayer, attention_prefill
from edgekit.kernels.launch import Launch
from edgekit.kernels.mamba2 import CHUNK, MambaLayer, mamba2_prefill
from tests.tools import gpu

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ATTENTION = AttentionLayer(32, 2, 128, 128**-0.5)
MAMBA = MambaLayer(64, 64, 8, 128, 4)

Case = tuple[Launch, list[np.ndarray], list[np.ndarray], float]
"""A launch, its inputs and outputs, and the floating-point operations it is for."""


def attention_case(T: int, length: int) -> Case:
    random = np.random.default_rng(0)
    heads, kv, D = ATTENTION.num_heads, ATTENTION.kv_num_heads, ATTENTION.head_dim
    context = length + T
    qkv = random.normal(size=(T, (heads + 2 * kv) * D)).astype(BFLOAT16)
    caches = [random.normal(size=(kv, context, D)).astype(BFLOAT16) for _ in range(2)]
    y = np.zeros((T, heads * D), BFLOAT16)
    seen = T * length + T * (T + 1) / 2
    launch = attention_prefill(T, ATTENTION, context)
    return launch, [qkv, *caches, np.array([length], np.int32)], [y, *caches], 4 * heads * D * seen


def mamba_case(T: int) -> Case:
    random = np.random.default_rng(0)
    heads, P, N, kernel = MAMBA.num_heads, MAMBA.head_dim, MAMBA.state_size, MAMBA.conv_kernel

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    width = MAMBA.d_inner + MAMBA.conv_dim + heads
    weights = [normal(MAMBA.conv_dim, kernel) / 2, normal(MAMBA.conv_dim) / 10]
    weights += [np.log(random.uniform(1, 16, heads)).astype(np.float32), normal(heads)]
    weights += [normal(heads) - 3]
    conv, ssm = normal(MAMBA.conv_dim, kernel - 1), normal(heads, P, N)
    arrivals, y = np.zeros(64, np.int32), np.zeros((T, MAMBA.d_inner), BFLOAT16)
    projected = normal(T, width).astype(BFLOAT16)
    # A token: half a chunk of scores and their sums, the state's part of y, the state.
    work = 2 * T * heads * (CHUNK / 2 * (N + P) + 2 * N * P)
    inputs = [projected, *weights, conv, ssm, arrivals]
    return mamba2_prefill(T, MAMBA), inputs, [y, conv, ssm, arrivals], work


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--length", type=int, default=0, help="tokens before the prompt's")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    rate = gpu.multiply_rate()
    print(f"bfloat16 product {rate / 1e12:.0f} TFLOP/s")
    records = []
    for T in arguments.tokens:
        cases = {"attention": attention_case(T, arguments.length), "mamba2": mamba_case(T)}
        for name, (launch, inputs, outputs, work) in cases.items():
            seconds = gpu.time(launch, inputs, outputs)
            share = work / seconds / rate
            records.append({"T": T, "name": name, "us": seconds * 1e6, "share": share})
            print(f"T={T} {name:16} {seconds * 1e6:9.1f} us {share:6.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rate": rate, "records": records}))


if __name__ == "__main__":
    main()
