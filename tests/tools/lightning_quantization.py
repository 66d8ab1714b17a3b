"""The published Lightning NVFP4 recipe: which module has which format, and how config.json says it.

Routed and shared experts and lm_head are NVFP4 weight-only, Mamba projections FP8, everything
else BF16: ModelOpt's MIXED_PRECISION with an 8-bit float KV cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from tests.tools.nemotron_layout import Dims, TensorSpec, mixer_tensors, tensors
from tests.tools.safetensors_stream import Entry

Format = Literal["nvfp4", "fp8", "dense"]

GROUP_SIZE = 16
_DESCRIPTION: dict[Format, dict[str, Any]] = {
    "nvfp4": {"quant_algo": "W4A16_NVFP4", "group_size": GROUP_SIZE},
    "fp8": {"quant_algo": "FP8"},
}

LIGHTNING = Dims(
    pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    vocab_size=131072,
    hidden_size=2688,
    mamba_num_heads=64,
    mamba_head_dim=64,
    n_groups=8,
    ssm_state_size=128,
    conv_kernel=4,
    num_attention_heads=32,
    num_key_value_heads=2,
    head_dim=128,
    intermediate_size=1856,
    n_routed_experts=128,
    num_experts_per_tok=6,
    moe_intermediate_size=1856,
    moe_shared_expert_intermediate_size=3712,
    max_position_embeddings=262144,
)


def format_of(module: str) -> Format:
    """The stored format of a linear module, by its checkpoint name."""
    if module.startswith("mtp."):
        return "dense"
    if module == "lm_head" or ".experts." in module or ".shared_experts." in module:
        return "nvfp4"
    return "fp8" if module.endswith(("mixer.in_proj", "mixer.out_proj")) else "dense"


def lightning_entries(
    dims: Dims, *, mtp: bool = False, gate_dtype: Literal["BF16", "F32"] = "BF16"
) -> Iterator[tuple[Entry, TensorSpec]]:
    """Every stored tensor with the logical tensor that it is part of, in checkpoint order."""
    for spec in [*tensors(dims), *(mtp_tensors(dims) if mtp else ())]:
        module = spec.name.removesuffix(".weight")
        kind = format_of(module) if spec.role == "linear" else "dense"
        if kind == "nvfp4":
            rows, columns = spec.shape
            if columns % GROUP_SIZE:
                raise ValueError(f"{module}: {columns} columns do not divide into blocks of 16")
            yield Entry(spec.name, "U8", (rows, columns // 2)), spec
            yield Entry(f"{module}.weight_scale", "F8_E4M3", (rows, columns // GROUP_SIZE)), spec
            yield Entry(f"{module}.weight_scale_2", "F32", ()), spec
        elif kind == "fp8":
            yield Entry(spec.name, "F8_E4M3", spec.shape), spec
            yield Entry(f"{module}.weight_scale", "F32", ()), spec
            yield Entry(f"{module}.input_scale", "F32", ()), spec
        else:
            dtype = {"gate": gate_dtype, "correction_bias": "F32"}.get(spec.role, "BF16")
            yield Entry(spec.name, dtype, spec.shape), spec
        if module.startswith("backbone.") and module.endswith(("mixer.k_proj", "mixer.v_proj")):
            yield Entry(f"{module}.{module[-6]}_scale", "F32", ()), spec


def mtp_tensors(dims: Dims) -> Iterator[TensorSpec]:
    """The MTP module: fusion and attention in `mtp.layers.0`, experts in `mtp.layers.1`."""
    H = dims.hidden_size
    for name in ("enorm", "hnorm", "norm"):
        yield TensorSpec(f"mtp.layers.0.{name}.weight", (H,), "norm")
    yield TensorSpec("mtp.layers.0.eh_proj.weight", (H, 2 * H), "linear")
    yield from mixer_tensors(dims, "*", "mtp.layers.0.mixer.")
    yield TensorSpec("mtp.layers.1.norm.weight", (H,), "norm")
    yield from mixer_tensors(dims, "E", "mtp.layers.1.mixer.")
    yield TensorSpec("mtp.layers.1.final_layernorm.weight", (H,), "norm")


def quantized_modules(dims: Dims) -> dict[str, Format]:
    """Every quantized module with its format, in checkpoint order."""
    names = [spec.name.removesuffix(".weight") for spec in tensors(dims) if spec.role == "linear"]
    return {name: kind for name in names if (kind := format_of(name)) != "dense"}


def ignored_modules(dims: Dims) -> list[str]:
    """The modules that the recipe leaves in BF16, as the published `ignore` list has them."""
    suffixes = {"*": ("q_proj", "k_proj", "v_proj", "o_proj"), "M": ("conv1d",), "E": ("gate",)}
    layers = [
        f"backbone.layers.{index}.mixer.{suffix}"
        for index, kind in enumerate(dims.pattern)
        for suffix in suffixes.get(kind, ())
    ]
    return ["backbone.embeddings", *layers, "mtp*"]


def quantization_config(dims: Dims) -> dict[str, Any]:
    """config.json's `quantization_config`."""
    modules = quantized_modules(dims)
    four_bit: dict[str, Any] = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    eight_bit: dict[str, Any] = {"dynamic": False, "num_bits": 8, "type": "float"}
    return {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "kv_cache_scheme": eight_bit,
        "config_groups": {
            "group_0": {
                "input_activations": eight_bit,
                "weights": eight_bit,
                "targets": [name for name, kind in modules.items() if kind == "fp8"],
            },
            "group_1": {
                "weights": four_bit,
                "targets": [name for name, kind in modules.items() if kind == "nvfp4"],
            },
        },
        "quantized_layers": {name: _DESCRIPTION[kind] for name, kind in modules.items()},
        "ignore": ignored_modules(dims),
    }


def hf_quant_config(dims: Dims) -> dict[str, Any]:
    """hf_quant_config.json, ModelOpt's own form of the same declaration."""
    return {
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quantization": {
            "quant_algo": "MIXED_PRECISION",
            "kv_cache_quant_algo": "FP8",
            "group_size": GROUP_SIZE,
            "exclude_modules": ignored_modules(dims),
            "quantized_layers": {
                name: _DESCRIPTION[kind] for name, kind in quantized_modules(dims).items()
            },
        },
    }
