"""Mends the layer names that ModelOpt 0.47 writes for NemotronH under transformers 5.

Names end in `.\\0backbone.pt_name_sentinel`, and the experts of a layer, one fused module there,
are one name, though their tensors are split into an expert each. Published checkpoints name every
expert; so does what comes out of here, and every name is one the tensors have.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from edgekit.errors import CheckpointError

_CLASSES = {"Linear"}  # the target where one algorithm has all layers


def mend(declaration: Any, modules: Set[str]) -> Any:
    """A `quantization_config` or hf_quant_config.json with its layer names mended.

    Args:
        modules: the modules that the tensors belong to.

    Raises:
        CheckpointError: a layer is declared that no tensor belongs to.
    """
    if isinstance(declaration, list):
        return [mend(item, modules) for item in declaration]
    if not isinstance(declaration, dict):
        return declaration
    mended: dict[str, Any] = {}
    for key, value in declaration.items():
        if key == "quantized_layers":
            mended[key] = {n: layer for name, layer in value.items() for n in _names(name, modules)}
        elif key in ("targets", "ignore", "exclude_modules"):
            mended[key] = [n for name in value for n in _names(name, modules)]
        else:
            mended[key] = mend(value, modules)
    return mended


def _names(declared: str, modules: Iterable[str]) -> list[str]:
    name = declared.split("\0", 1)[0].rstrip(".")
    if "*" in name or name in _CLASSES or name in set(modules):
        return [name]
    inside = [m for m in modules if m.startswith(f"{name}.") and m.endswith("_proj")]
    if not inside:
        raise CheckpointError(
            f"ModelOpt declares the layer {name!r}, which no tensor belongs to",
            hint="pip install 'nvidia-modelopt==0.47.0', the version edgekit was tested with",
        )
    return sorted(inside, key=_by_number)


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in name.split(".")]
