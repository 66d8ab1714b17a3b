"""Write a Lightning-shaped checkpoint with synthetic weights, full size (19 GB) or small.

    python -m tests.tools.synthetic_lightning OUT [--layers N] [--seed N] [--mtp]

Quantized values are cut out of a few quantized Gaussian pools, each tensor from an offset of its
own, so that writing costs little more than the disk does and memory stays below 300 MB. Scales
are those of weights with standard deviation about 1 / sqrt(columns).
"""

from __future__ import annotations

import argparse
import json
import math
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.tools.lightning_quantization import (
    LIGHTNING,
    hf_quant_config,
    lightning_entries,
    quantization_config,
)
from tests.tools.nemotron_layout import Dims, TensorSpec, config_dict
from tests.tools.random_checkpoint import random_values
from tests.tools.safetensors_stream import Buffer, Entry, write_folder

_BLOCKS = 1 << 19
_STRIDE = 0x9E3779B1  # odd: blocks * stride visits every offset of a power-of-two pool once
_E2M1_MIDPOINTS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
_E4M3_MAX = 448.0
_E2M1_MAX = 6.0

Bytes = npt.NDArray[np.uint8]


class Pools:
    """Quantized Gaussian values shared by all tensors, as raw bytes."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._bf16: dict[float, Bytes] = {}
        values = self._rng.standard_normal((_BLOCKS, 16), np.float32)
        block_max = np.abs(values).max(axis=1)
        self.nvfp4_scale_2 = float(block_max.max()) / (_E2M1_MAX * _E4M3_MAX)
        scales = (block_max / (_E2M1_MAX * self.nvfp4_scale_2)).astype(ml_dtypes.float8_e4m3fn)
        self.nvfp4_scales: Bytes = scales.view(np.uint8)
        values /= (scales.astype(np.float32) * np.float32(self.nvfp4_scale_2))[:, None]
        self.nvfp4_codes: Bytes = _pack_e2m1(values)
        values = self._rng.standard_normal(8 * _BLOCKS, np.float32)
        self.fp8_scale = float(np.abs(values).max()) / _E4M3_MAX
        values /= np.float32(self.fp8_scale)
        self.fp8: Bytes = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)

    def bf16(self, deviation: float) -> Bytes:
        """Gaussian bfloat16 bytes of one standard deviation."""
        if deviation not in self._bf16:
            values = self._rng.standard_normal(4 * _BLOCKS, np.float32) * np.float32(deviation)
            self._bf16[deviation] = values.astype(ml_dtypes.bfloat16).view(np.uint8)
        return self._bf16[deviation]


def _pack_e2m1(values: npt.NDArray[np.float32]) -> Bytes:
    """Round to E2M1 codes (sign, then 0 .5 1 1.5 2 3 4 6), two a byte, the even column low."""
    packed = np.empty((len(values), values.shape[1] // 2), np.uint8)
    for start in range(0, len(values), 1 << 16):
        part = values[start : start + (1 << 16)]
        codes = np.searchsorted(_E2M1_MIDPOINTS, np.abs(part)).astype(np.uint8)
        codes |= np.signbit(part).astype(np.uint8) << 3
        packed[start : start + len(part)] = codes[:, 0::2] | codes[:, 1::2] << 4
    return packed.reshape(-1)


def _cut(pool: Bytes, start: int, count: int) -> Iterator[Buffer]:
    """`count` bytes of `pool` from `start`, going round as often as needed."""
    position = start % len(pool)
    while count:
        part = pool[position : position + count]
        yield part.data
        count -= len(part)
        position = 0


class Filler:
    """Gives each stored tensor its bytes."""

    def __init__(self, parts: dict[str, TensorSpec], seed: int) -> None:
        self._pools = Pools(seed)
        self._parts = parts
        self._seed = seed
        names = dict.fromkeys(spec.name for spec in parts.values())
        self._block = {name: i * _STRIDE % _BLOCKS for i, name in enumerate(names)}

    def __call__(self, entry: Entry) -> Iterator[Buffer]:
        spec = self._parts[entry.name]
        if entry.shape == ():
            yield np.float32(self._scale(entry.name, spec)).tobytes()
            return
        block = self._block[spec.name]
        if entry.dtype == "U8":
            yield from _cut(self._pools.nvfp4_codes, 8 * block, entry.nbytes)
        elif entry.dtype == "F8_E4M3" and entry.name != spec.name:
            yield from _cut(self._pools.nvfp4_scales, block, entry.nbytes)
        elif entry.dtype == "F8_E4M3":
            yield from _cut(self._pools.fp8, 8 * block, entry.nbytes)
        elif entry.dtype == "BF16" and spec.role in ("linear", "embedding"):
            deviation = 1.0 if spec.role == "embedding" else 1 / math.sqrt(spec.shape[-1])
            yield from _cut(self._pools.bf16(deviation), 8 * block, entry.nbytes)
        else:
            values = random_values(spec, self._seed)
            yield values.astype(
                ml_dtypes.bfloat16 if entry.dtype == "BF16" else np.float32
            ).tobytes()

    def _scale(self, name: str, spec: TensorSpec) -> float:
        """A scalar scale, up to 20 % to either side of its nominal value."""
        spread = 0.8 + 0.4 * (zlib.crc32(f"{self._seed} {name}".encode()) / 2**32)
        deviation = spread / math.sqrt(spec.shape[-1])
        if name.endswith("weight_scale_2"):
            return deviation * self._pools.nvfp4_scale_2
        if name.endswith("weight_scale"):
            return deviation * self._pools.fp8_scale
        amax = 20.0 if name.endswith("input_scale") else 8.0  # activations; keys and values
        return spread * amax / _E4M3_MAX


def write_synthetic_lightning(
    folder: str | Path,
    *,
    dims: Dims = LIGHTNING,
    seed: int = 0,
    mtp: bool = False,
    gate_dtype: Literal["BF16", "F32"] = "BF16",
    max_shard_bytes: int = 5_000_000_000,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write config.json, hf_quant_config.json and the shards; return the folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    stored = list(lightning_entries(dims, mtp=mtp, gate_dtype=gate_dtype))
    config: dict[str, Any] = config_dict(
        dims, key_style="layers_block_type", torch_dtype="bfloat16"
    )
    config |= {
        "num_nextn_predict_layers": int(mtp),
        "mtp_layers_block_type": ["attention", "moe"],
        "moe_shared_expert_overlap": True,
        "quantization_config": quantization_config(dims),
    }
    (path / "config.json").write_text(json.dumps(config, indent=2))
    (path / "hf_quant_config.json").write_text(json.dumps(hf_quant_config(dims), indent=2))
    write_folder(
        path,
        [entry for entry, _ in stored],
        Filler({entry.name: spec for entry, spec in stored}, seed),
        max_shard_bytes=max_shard_bytes,
        progress=progress,
    )
    return path


def main() -> None:
    """Command line: write the checkpoint and print its size, the time and the peak memory."""
    parser = argparse.ArgumentParser(prog="tests.tools.synthetic_lightning", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, help="keep only the first N layers")
    parser.add_argument("--pattern", help="layer kinds over M E * - instead of Lightning's")
    parser.add_argument("--hidden", type=int, default=LIGHTNING.hidden_size)
    parser.add_argument("--vocab", type=int, default=LIGHTNING.vocab_size)
    parser.add_argument("--experts", type=int, default=LIGHTNING.n_routed_experts)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mtp", action="store_true", help="add the BF16 mtp.* module")
    parser.add_argument("--gate-dtype", choices=["BF16", "F32"], default="BF16")
    parser.add_argument("--shard-bytes", type=int, default=5_000_000_000)
    flags = parser.parse_args()
    dims = replace(
        LIGHTNING,
        pattern=(flags.pattern or LIGHTNING.pattern)[: flags.layers],
        hidden_size=flags.hidden,
        vocab_size=flags.vocab,
        n_routed_experts=flags.experts,
    )
    started = time.perf_counter()
    write_synthetic_lightning(
        flags.out,
        dims=dims,
        seed=flags.seed,
        mtp=flags.mtp,
        gate_dtype=flags.gate_dtype,
        max_shard_bytes=flags.shard_bytes,
        progress=lambda name: print(f"{time.perf_counter() - started:7.1f} s  {name}", flush=True),
    )
    seconds = time.perf_counter() - started
    total = sum(file.stat().st_size for file in flags.out.glob("*.safetensors"))
    peak = next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    print(f"{total / 1e9:.2f} GB in {seconds:.1f} s, {total / 1e9 / seconds:.2f} GB/s, {peak} kB")


if __name__ == "__main__":
    main()
