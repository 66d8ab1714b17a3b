"""What a quantized folder says of itself: config.json and hf_quant_config.json, as ModelOpt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.export.checkpoint import linear_modules
from edgekit.export.quantization import INT4_ALGORITHM
from edgekit.export.quantize.plan import Numerics
from edgekit.model import ModelSpec

_ALGORITHMS = {"nvfp4": "W4A16_NVFP4", "fp8": "FP8", "int4": INT4_ALGORITHM}
PRODUCER = {"name": "edgekit", "version": "1"}


def hf_quant_config(kept: Sequence[str], modules: Mapping[str, Numerics]) -> dict[str, Any]:
    """hf_quant_config.json: one algorithm with exclusions, or MIXED_PRECISION layer by layer.

    Args:
        kept: modules, or patterns, that are not quantized.
    """
    layers = {name: _layer(numerics) for name, numerics in modules.items()}
    quantization: dict[str, Any] = {"quant_algo": None, "kv_cache_quant_algo": None}
    kinds = {tuple(layer.items()) for layer in layers.values()}
    if len(kinds) == 1:
        quantization |= dict(kinds.pop())
    else:
        quantization |= {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    quantization["exclude_modules"] = list(kept)
    return {"producer": PRODUCER, "quantization": quantization}


def quantization_config(kept: Sequence[str], modules: Mapping[str, Numerics]) -> dict[str, Any]:
    """config.json's `quantization_config`: the same, in the words Hugging Face loaders read."""
    quantization = dict(hf_quant_config(kept, modules)["quantization"])
    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for name, numerics in modules.items():
        groups.setdefault(tuple(_weights(numerics).items()), []).append(name)
    quantization["ignore"] = quantization.pop("exclude_modules")
    del quantization["kv_cache_quant_algo"]
    return {
        "quant_method": "modelopt",
        "producer": PRODUCER,
        **quantization,
        "config_groups": {
            f"group_{i}": {"weights": dict(weights), "targets": targets}
            for i, (weights, targets) in enumerate(groups.items())
        },
    }


def _layer(numerics: Numerics) -> dict[str, Any]:
    layer: dict[str, Any] = {"quant_algo": _ALGORITHMS[numerics.format]}
    return layer | ({"group_size": numerics.group} if numerics.group else {})


def _weights(numerics: Numerics) -> dict[str, Any]:
    weights: dict[str, Any] = {
        "dynamic": False,
        "num_bits": 8 if numerics.format == "fp8" else 4,
        "type": "int" if numerics.format == "int4" else "float",
    }
    return weights | ({"group_size": numerics.group} if numerics.group else {})


def kept_modules(spec: ModelSpec, modules: Mapping[str, Numerics]) -> tuple[str, ...]:
    """What stays dense when `modules` of a model are quantized."""
    names = ["backbone.embeddings"]
    names += [name for name, _ in linear_modules(spec) if name not in modules]
    names += [f"backbone.layers.{i}.mixer.conv1d" for i in spec.layers_of("M")]
    names += [f"backbone.layers.{i}.mixer.gate" for i in spec.layers_of("E")]
    return (*names, "mtp*")
