"""mlx-dspark's draft model, an implementation nobody here wrote.

Its package imports mlx-lm and downloads models; the two modules with the network need neither.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest


def load(folder: Path) -> Any:
    """The `DSparkDrafter` of a folder in the published layout, weights loaded strictly."""
    mx = pytest.importorskip("mlx.core")
    nn = pytest.importorskip("mlx.nn")
    found = importlib.util.find_spec("mlx_dspark")
    if found is None:
        pytest.skip("mlx-dspark is not installed")
    package = types.ModuleType("mlx_dspark")
    package.__path__ = list(found.submodule_search_locations or ())

    def initialize_rope(
        dims: int, base: float, traditional: bool, scaling_config: dict[str, Any]
    ) -> Any:
        assert scaling_config["rope_type"] == "default"
        return nn.RoPE(dims, traditional=traditional, base=base)

    vlm = types.ModuleType("mlx_vlm.models.rope_utils")
    vlm.initialize_rope = initialize_rope  # type: ignore[attr-defined]
    stubs = {"mlx_dspark": package, "mlx_vlm": types.ModuleType("mlx_vlm")}
    stubs |= {"mlx_vlm.models": types.ModuleType("mlx_vlm.models"), vlm.__name__: vlm}
    before = {name: sys.modules.get(name) for name in stubs}
    sys.modules.update(stubs)
    try:
        config = importlib.import_module("mlx_dspark.config").DSparkConfig
        model = importlib.import_module("mlx_dspark.model").DSparkDrafter(
            config.from_json(folder / "config.json")
        )
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
    weights = mx.load(str(folder / "model.safetensors"))
    model.load_weights(list(weights.items()), strict=True)
    return model
