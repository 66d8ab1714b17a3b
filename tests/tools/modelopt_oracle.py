"""What NVIDIA ModelOpt makes of small weights, and the golden file of it that CI compares with.

    python -m tests.tools.modelopt_oracle tests/export/quantize_golden.npz

ModelOpt calibrates and packs; only its NVFP4 simulation, which chooses between six and four, runs
on `edgekit.export.quantize.modelopt_cpu` where there is no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from edgekit.ops.formats import INT4_ZERO, pack_nibbles

Array = npt.NDArray[Any]
N, K = 8, 64

_NVFP4 = {-1: 16, "scale_bits": (4, 3)}
_MSE = {
    "method": "mse",
    "fp8_scale_sweep": False,
    "start_multiplier": 1.0,
    "stop_multiplier": 1.5,
    "step_size": 0.5,
}
QUANTIZERS: dict[str, tuple[dict[str, Any], Any]] = {
    "nvfp4": ({"num_bits": (2, 1), "block_sizes": _NVFP4 | {"type": "dynamic"}}, "max"),
    "nvfp4_4o6": (
        {
            "num_bits": (2, 1),
            "block_sizes": _NVFP4 | {"type": "static", "four_over_six": True},
        },
        _MSE,
    ),
    "fp8": ({"num_bits": (4, 3), "axis": None}, "max"),
    "fp8_mse": ({"num_bits": (4, 3), "axis": None}, _MSE),
    "int4_32": ({"num_bits": 4, "block_sizes": {-1: 32, "type": "static"}}, "max"),
    "int4_64": ({"num_bits": 4, "block_sizes": {-1: 64, "type": "static"}}, "max"),
}


def weights(shape: tuple[int, int] = (N, K)) -> Iterator[tuple[str, Array]]:
    """Random and adversarial weights [N, K], in float32 and bfloat16."""
    rng = np.random.default_rng(20)
    gauss = rng.standard_normal(shape, np.float32)
    plain = {
        "gauss": gauss,
        "small": gauss * np.float32(0.02),
        "cauchy": rng.standard_cauchy(shape).astype(np.float32),
        "uniform": rng.uniform(-1, 1, shape).astype(np.float32),
        "tiny": gauss * np.float32(1e-30),
        "large": gauss * np.float32(1e30),
    }
    zeros = gauss.copy()
    zeros[1] = 0
    zeros[2:, 16:48] = -0.0
    plain["zeros"] = zeros
    plain["denormals"] = np.where(rng.random(shape) < 0.5, gauss * np.float32(1e-41), gauss)
    huge = gauss.copy()
    huge[3, 5] = -3e8
    plain["one_huge"] = huge
    outliers = gauss.copy()
    outliers[rng.random(shape) < 0.02] *= 300
    plain["outliers"] = outliers
    halfway = rng.choice(
        np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, 0.5, 7], np.float32), shape
    )
    plain["halfway"] = halfway * np.where(rng.random(shape) < 0.5, 1, -1).astype(np.float32)
    for name, weight in plain.items():
        yield f"{name}.float32", weight.astype(np.float32)
        yield f"{name}.bfloat16", weight.astype(ml_dtypes.bfloat16)


def modelopt_parts(quantizer: str, weight: Array, device: str = "cpu") -> tuple[Array, ...]:
    """The tensors ModelOpt exports for a linear module with this weight, in edgekit's layout.

    Returns:
        weight, scale(s) as `edgekit.ops.formats.PARTS` orders them.
    """
    import modelopt.torch.quantization as mtq
    import torch
    from modelopt.torch.export.unified_export_hf import _export_quantized_weight

    config, algorithm = QUANTIZERS[quantizer]
    if device == "cpu":
        from edgekit.export.quantize.modelopt_cpu import install

        install()
    rows, columns = weight.shape
    dtype = torch.float32 if weight.dtype == np.float32 else torch.bfloat16
    linear = torch.nn.Linear(columns, rows, bias=False, dtype=dtype, device=device)
    linear.weight.data.copy_(torch.from_numpy(weight.astype(np.float32)))
    model = torch.nn.Sequential(linear)
    rules = [
        {"quantizer_name": "*", "enable": False},
        {"quantizer_name": "*weight_quantizer", "cfg": config, "enable": True},
    ]
    mtq.quantize(model, {"quant_cfg": rules, "algorithm": algorithm}, lambda m: None)
    _export_quantized_weight(linear, dtype)
    packed = linear.weight.data.cpu()
    scale = linear.weight_scale.data.float().cpu().numpy()
    if quantizer.startswith("fp8"):
        return packed.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn), scale.reshape(())
    if quantizer.startswith("nvfp4"):
        scale_2 = linear.weight_scale_2.data.float().cpu().numpy().reshape(())
        return packed.numpy(), scale.astype(ml_dtypes.float8_e4m3fn), scale_2
    return _int4_along_k(packed.numpy()), scale


def _int4_along_k(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """ModelOpt's int4 [N/2, K], two's complement with even rows low, as codes + 8 along K."""
    half, columns = packed.shape
    codes = np.empty((2 * half, columns), np.uint8)
    codes[0::2] = packed & 0xF
    codes[1::2] = packed >> 4
    return pack_nibbles((codes + INT4_ZERO) & 0xF)


def main() -> None:
    """Writes the golden file: the weights' bytes, and for each quantizer all exported bytes."""
    cases = dict(weights())
    arrays = {"weights": _bytes(list(cases.values()))}
    for quantizer in QUANTIZERS:
        exported = [modelopt_parts(quantizer, weight) for weight in cases.values()]
        arrays[quantizer] = _bytes([part for parts in exported for part in parts])
    np.savez_compressed(Path(sys.argv[1]), allow_pickle=False, **arrays)


def _bytes(parts: list[Array]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(part.tobytes() for part in parts), np.uint8)


if __name__ == "__main__":
    main()
