"""NVFP4 simulation for ModelOpt without a GPU.

ModelOpt 0.47 simulates NVFP4 with Triton and CUDA kernels only, so that calibrating with an NVFP4
quantizer alive fails on a CPU. These are the same formulas in plain torch; export, which packs the
codes and scales, stays ModelOpt's own.
"""

from __future__ import annotations

from typing import Any

_E2M1_MAX, _E4M3_MAX = 6.0, 448.0


def install() -> None:
    """Replaces both kernels in this process. A process that runs ModelOpt ends afterwards."""
    import modelopt.torch.quantization.nn.modules.tensor_quantizer as quantizer
    import modelopt.torch.quantization.tensor_quant as tensor_quant

    for module in (tensor_quant, quantizer):
        module.static_blockwise_fp4_fake_quant = simulate_static
    tensor_quant.dynamic_block_quantize_op = simulate_dynamic


def simulate_static(
    x: Any,
    amax: Any,
    global_amax: Any = None,
    quantize_block_scales: bool = True,
    fp8_max: float = _E4M3_MAX,
    out_dtype: Any = None,
    pass_through: bool = False,
) -> Any:
    """Blocks of x rounded to e2m1 x scale.

    Args:
        x: any shape whose blocks are consecutive. amax: one a block.
        global_amax: of the tensor; fp8_max is what it becomes (256 for four-over-six).
    """
    import torch

    scale = amax.float() / _E2M1_MAX
    if quantize_block_scales:
        largest = amax.float().max() if global_amax is None else global_amax.float()
        scale = _round_e4m3(scale, largest * (_E4M3_MAX / fp8_max) / _E2M1_MAX)
    blocks = x.float().reshape(amax.numel(), -1)
    scale = scale.reshape(-1, 1)
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    values = _round_e2m1(blocks.abs() / safe) * safe
    values = torch.where(blocks >= 0, values, -values)
    values = torch.where(scale == 0, torch.zeros_like(values), values)
    return values.reshape(x.shape).to(out_dtype or x.dtype)


def simulate_dynamic(
    x: Any,
    block: int,
    amax: Any,
    num_bits: int,
    exponent_bits: int,
    scale_bits: int,
    scale_exponent_bits: int,
) -> Any:
    """The same with each block's own maximum; the arguments are the replaced operator's."""
    if (num_bits, exponent_bits, scale_bits) != (4, 2, 8) or scale_exponent_bits != 4:
        raise NotImplementedError("only NVFP4 is simulated on a CPU")
    width = x.shape[-1]
    padded = _pad(x, -width % block)
    block_amax = padded.reshape(-1, block).abs().amax(dim=-1)
    return simulate_static(padded, block_amax, amax.max())[..., :width].to(x.dtype)


def _pad(x: Any, columns: int) -> Any:
    import torch

    return torch.nn.functional.pad(x, (0, columns)) if columns else x


def _round_e4m3(values: Any, amax: Any) -> Any:
    import torch

    scale = _E4M3_MAX / torch.where(amax <= 2.0**-24, torch.ones_like(amax), amax)
    scaled = (values * scale).clamp(-_E4M3_MAX, _E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn).float() * (1 / scale)


def _round_e2m1(magnitude: Any) -> Any:
    """0 .5 1 1.5 2 3 4 6, halfway to the even code."""
    import torch

    result = torch.zeros_like(magnitude)
    steps = ((0.25, 0.5), (0.75, 0.5), (1.25, 0.5), (1.75, 0.5), (2.5, 1.0), (3.5, 1.0), (5.0, 2.0))
    for i, (halfway, step) in enumerate(steps):
        above = magnitude >= halfway if i % 2 else magnitude > halfway
        result = result + above.to(result.dtype) * step
    return result
