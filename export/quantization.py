"""Which weight format each module of a checkpoint is stored in.

Two sources must agree: the tensors (a packed uint8 weight with float8 block scales is nvfp4, with
float32 or float16 group scales int4; a float8 weight is fp8) and, when there is one, the
declaration in config.json's `quantization_config` or in hf_quant_config.json. The tensors decide;
a declaration that contradicts them is an error, because one of the two is then from another
checkpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import CheckpointError
from edgekit.ops.formats import DENSE, FLOAT8_E4M3, INT4_SCALES, WeightFormat
from edgekit.safetensors import TensorEntry

_FORMAT_BY_ALGORITHM: dict[str, WeightFormat] = {
    "FP8": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
}
_EXPERT = re.compile(r"(?<=\.experts)\.\d+\.\w+$")
INT4_ALGORITHM = "W4A16_INT4"
"""How edgekit declares its own int4 layout. ModelOpt's W4A16_AWQ packs along N: another layout."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a checkpoint says of its own quantization.

    Attributes:
        default: the format of linear modules not named otherwise.
        modules: formats by module name (mixed precision).
        exclude: names or wildcards of modules left dense.
        kv_cache: the format the KV cache was calibrated for, if any.
    """

    default: WeightFormat = "dense"
    modules: Mapping[str, WeightFormat] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    kv_cache: str | None = None

    def format_of(self, module: str) -> WeightFormat:
        """The declared format of one linear module.

        ModelOpt's export names the experts of a layer as one, transformers' fused module, though
        it writes a tensor each; published folders name every expert.
        """
        fused = _EXPERT.sub("", module)
        for name in (module, fused):
            if name in self.modules:
                return self.modules[name]
        if any(fnmatchcase(n, pattern) for n in (module, fused) for pattern in self.exclude):
            return "dense"
        return self.default


def read_declaration(folder: Path) -> Declaration | None:
    """The quantization a checkpoint folder declares, None when it declares none.

    Raises:
        CheckpointError: it was made by a tool or with an algorithm edgekit does not read.
    """
    config = json.loads((folder / "config.json").read_text()).get("quantization_config")
    path = folder / "hf_quant_config.json"
    source = "quantization_config in config.json"
    if config is None and path.exists():
        source = path.name
        try:
            config = json.loads(path.read_text())["quantization"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(
                f"{path} is corrupt",
                cause=f"{type(error).__name__}: {error}",
                hint="download this file again",
            ) from None
    if config is None:
        return None
    try:
        return _declaration(config)
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{source} is corrupt", cause=str(error), hint="download this file again"
        ) from None


def _declaration(config: dict[str, Any]) -> Declaration:
    method = config.get("quant_method", "modelopt")
    if method != "modelopt":
        raise CheckpointError(
            f"quantization method {method!r} is not supported",
            cause="edgekit reads checkpoints quantized by NVIDIA ModelOpt",
            hint="use the BF16 checkpoint and an edgekit recipe instead",
        )
    algorithm = config.get("quant_algo")
    exclude = config.get("ignore") or config.get("exclude_modules") or ()
    kv_cache = config.get("kv_cache_quant_algo") or _kv_scheme(config.get("kv_cache_scheme"))
    excluded = tuple(_clean(name) for name in exclude)
    if algorithm == "MIXED_PRECISION":
        layers = config.get("quantized_layers", {})
        modules = {
            _clean(name): _format(layer.get("quant_algo"), name) for name, layer in layers.items()
        }
        return Declaration(modules=modules, exclude=excluded, kv_cache=kv_cache)
    default = "dense" if algorithm is None else _format(algorithm, "the checkpoint")
    return Declaration(default=default, exclude=excluded, kv_cache=kv_cache)


def stored_format(tensors: Mapping[str, TensorEntry], module: str) -> WeightFormat:
    """The format of one module by its tensors.

    Raises:
        CheckpointError: the weight or one of its scales is missing, or no format has such parts.
    """
    weight = tensors.get(f"{module}.weight")
    if weight is None:
        raise CheckpointError(
            f"tensor '{module}.weight' is missing",
            cause="config.json describes a layer that the weights do not have",
            hint="download the checkpoint again, all shards",
        )
    found: WeightFormat
    scales: tuple[str, ...]
    if weight.dtype in DENSE:
        return "dense"
    if weight.dtype == FLOAT8_E4M3:
        found, scales = "fp8", ("weight_scale",)
    elif weight.dtype == np.uint8 and _has_float_scales(tensors, module):
        found, scales = "int4", ("weight_scale",)
    elif weight.dtype == np.uint8:
        found, scales = "nvfp4", ("weight_scale", "weight_scale_2")
    else:
        raise CheckpointError(
            f"tensor '{module}.weight' holds {weight.dtype}, which is no weight format",
            hint="use a checkpoint in bfloat16 or one that NVIDIA ModelOpt quantized",
        )
    for scale in scales:
        if f"{module}.{scale}" not in tensors:
            raise CheckpointError(
                f"tensor '{module}.{scale}' is missing",
                cause=f"'{module}.weight' is {weight.dtype}, which means nothing without it",
                hint="download the checkpoint again, all shards",
            )
    return found


def _has_float_scales(tensors: Mapping[str, TensorEntry], module: str) -> bool:
    scale = tensors.get(f"{module}.weight_scale")
    second = f"{module}.weight_scale_2" in tensors
    return scale is not None and scale.dtype in INT4_SCALES and len(scale.shape) == 2 and not second


def resolve(
    declaration: Declaration | None, tensors: Mapping[str, TensorEntry], module: str
) -> WeightFormat:
    """The format of one module, tensors and declaration agreeing."""
    found = stored_format(tensors, module)
    declared = declaration.format_of(module) if declaration is not None else "dense"
    if declared != found:
        raise CheckpointError(
            f"{module} is stored as {found} but declared as {declared}",
            cause="config.json (or hf_quant_config.json) and the weights do not belong together",
            hint="download config.json and the *.safetensors files from the same revision",
        )
    return found


def _format(algorithm: Any, name: str) -> WeightFormat:
    if algorithm == INT4_ALGORITHM:
        return "int4"
    if not isinstance(algorithm, str) or algorithm not in _FORMAT_BY_ALGORITHM:
        raise CheckpointError(
            f"quantization algorithm {algorithm!r} of {name} is not supported",
            cause=f"edgekit reads {', '.join(_FORMAT_BY_ALGORITHM)}",
            hint="use the BF16 checkpoint and an edgekit recipe instead",
        )
    return _FORMAT_BY_ALGORITHM[algorithm]


def _clean(name: str) -> str:
    """ModelOpt 0.47 can append a NUL and a sentinel to layer names of NemotronH."""
    return name.split("\0", 1)[0].rstrip(".")


def _kv_scheme(scheme: Any) -> str | None:
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float":
        return "FP8"
    return None
