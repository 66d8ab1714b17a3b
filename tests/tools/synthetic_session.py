"""A Lightning-shaped `PluginSession` whose packed weights are made on its device: no checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from edgekit.bundle import Bundle
from edgekit.export.build import WEIGHTS, BuildRequest, lower_graphs, save_graphs
from edgekit.export.bundle_writer import BundleWriter
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.graph.nemotron_h import build_commit, build_step
from edgekit.export.graph.tensors import Weight
from edgekit.manifest import FileEntry, Manifest
from edgekit.model import spec_from_config
from edgekit.runtime.executors.program import View
from edgekit.safetensors import DTYPES, TensorEntry
from tests.tools.lightning_quantization import format_of, lightning_entries
from tests.tools.nemotron_layout import Dims, config_dict

ALIGNMENT = 256


def synthetic_bundle(folder: Path, dims: Dims, context: int) -> tuple[Bundle, dict[str, View]]:
    """A bundle that lacks its weights file, and where each weight belongs in it.

    The views' memory is None.
    """
    checkpoint = _headers(dims)
    request = BuildRequest(folder, folder, "gpu", "none", context, 2048, lowering="plugin")
    models = lower_graphs(
        build_step(checkpoint), build_commit(checkpoint), checkpoint.spec, "plugin", context
    )
    places, size = _lay_out(models)
    graphs = save_graphs(BundleWriter(folder), models, request)
    manifest = Manifest(
        name="synthetic",
        source="",
        recipe="none",
        profile="gpu",
        lowering="plugin",
        executor="torch-cuda",
        context=context,
        prefill_chunk=request.prefill_chunk,
        weights_format="",
        created="",
        versions={},
        target=graphs,
        files={WEIGHTS: FileEntry("", size)},
    )
    return Bundle(folder, manifest, checkpoint.spec), places


class Writer(Protocol):
    """Writes values into memory of a device."""

    def normal(self, view: View, mean: float, deviation: float) -> None:
        """Normal float32 or bfloat16 values."""

    def random_bytes(self, view: View) -> None: ...


def fill(places: Mapping[str, View], memory: Any, writer: Writer) -> None:
    """Fills weights so that activations stay of order 1 and tokens choose different experts."""
    for name, place in places.items():
        view = replace(place, memory=memory)
        if name.endswith(".codes"):
            if _loads(view) == 4:  # bfloat16
                values = replace(view, shape=(view.nbytes // 2,), dtype="bfloat16")
                writer.normal(values, 0.0, _columns(view) ** -0.5)
            else:
                writer.random_bytes(view)
        elif name.endswith(".scales"):  # e4m3 ones, four in a float32
            words = replace(view, shape=(view.nbytes // 4,), dtype="float32")
            writer.normal(words, _FOUR_ONES, 0.0)
        elif name.endswith(".scale"):
            codes = places[f"{name.removesuffix('.scale')}.codes"]
            size = {4: 1.0, 2: _FP8_SIZE, 1: _NVFP4_SIZE}[_loads(codes)]
            writer.normal(view, _columns(codes) ** -0.5 / size if size > 1 else 1.0, 0.0)
        elif ".gate.weight" in name:
            writer.normal(view, 0.0, view.shape[1] ** -0.5)
        elif "conv1d" in name or "bias" in name:
            writer.normal(view, 0.0, 0.3)
        elif "embeddings" in name:
            writer.normal(view, 0.0, 1.0)
        else:
            writer.normal(view, 1.0, 0.1)


_FP8_SIZE, _NVFP4_SIZE = 130.0, 2.9
"""Root mean square of codes whose bits are random."""

_FOUR_ONES = float(np.uint32(0x38383838).view(np.float32))


def _loads(codes: View) -> int:
    """16-byte words a lane and tile: 4 for bfloat16, 2 for fp8, 1 for nvfp4."""
    return codes.shape[-3]


def _columns(codes: View) -> int:
    return codes.shape[-4] * 64


def _headers(dims: Dims) -> Checkpoint:
    """A checkpoint without files: enough to write graphs from."""
    config = config_dict(dims, key_style="layers_block_type", torch_dtype="bfloat16")
    nowhere = Path("nowhere")
    tensors, formats = {}, {}
    for entry, part in lightning_entries(dims):
        dtype = DTYPES[entry.dtype]
        tensors[entry.name] = TensorEntry(entry.name, dtype, entry.shape, nowhere, 0, entry.nbytes)
        if part.role == "linear":
            module = part.name.removesuffix(".weight")
            formats[module] = format_of(module)
    return Checkpoint(nowhere, spec_from_config(config), tensors, formats, None)


def _lay_out(models: dict[str, ir.Model]) -> tuple[dict[str, View], int]:
    """Gives every weight of the graphs a place in the weights file."""
    places: dict[str, View] = {}
    size = 0
    for model in models.values():
        for name, value in model.graph.initializers.items():
            weight = value.const_value
            assert isinstance(weight, Weight)
            if name not in places:
                places[name] = View(None, size, weight.dims, str(weight.numpy_dtype))
                size += weight.nbytes + -weight.nbytes % ALIGNMENT
            value.const_value = ir.ExternalTensor(
                WEIGHTS,
                places[name].offset,
                weight.nbytes,
                dtype=weight.dtype,
                shape=weight.shape,
                name=name,
                base_dir="",
            )
    return places, size
