"""A Lightning-shaped `PluginSession` whose packed weights are made on its device: no checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from edgekit.bundle import Bundle
from edgekit.draft import draft_spec_from_config
from edgekit.export.build import WEIGHTS, BuildRequest, lower_graphs, save_graphs
from edgekit.export.bundle_writer import BundleWriter
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.draft_checkpoint import DraftCheckpoint, draft_modules, draft_tensors
from edgekit.export.drafts import DraftSource, lower_drafts, save_drafts, taps
from edgekit.export.graph.drafts import build_draft
from edgekit.export.graph.nemotron_h import build_commit, build_step
from edgekit.export.graph.tensors import Weight
from edgekit.export.weights import weight_sizes
from edgekit.manifest import FileEntry, Manifest
from edgekit.model import spec_from_config
from edgekit.runtime.executors.program import View
from edgekit.safetensors import DTYPES, TensorEntry
from tests.tools.lightning_quantization import format_of, lightning_entries
from tests.tools.nemotron_layout import Dims, config_dict

ALIGNMENT = 256


def synthetic_bundle(
    folder: Path, dims: Dims, context: int, draft: dict[str, Any] | None = None
) -> tuple[Bundle, dict[str, View]]:
    """A bundle that lacks its weights file, and where each weight belongs in it.

    The views' memory is None.

    Args:
        draft: config of a DSpark draft to give it, quantized as the published one.
    """
    checkpoint = _headers(dims)
    sources = [] if draft is None else [_draft_source(folder, draft, checkpoint)]
    tapped = taps(sources)
    request = BuildRequest(
        folder, folder, "gpu", "none", context, 2048, lowering="plugin", taps=tapped
    )
    models = lower_graphs(
        build_step(checkpoint, tapped),
        build_commit(checkpoint),
        checkpoint.spec,
        "plugin",
        context,
        taps=tapped,
    )
    lowered = lower_drafts(sources, checkpoint.spec, "plugin", context)
    drafted = (model for graphs in lowered.values() for model in graphs.values())
    weight_bytes, expert_bytes = weight_sizes(models)
    places, size = _lay_out([*models.values(), *drafted])
    writer = BundleWriter(folder)
    graphs = save_graphs(writer, models, request)
    drafters = save_drafts(writer, sources, lowered, context)
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
        weight_bytes=weight_bytes,
        expert_bytes=expert_bytes,
        target=graphs,
        drafts=drafters,
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
        elif "embeddings" in name or "markov_w1" in name:
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


def _draft_source(folder: Path, config: dict[str, Any], target: Checkpoint) -> DraftSource:
    """A draft without files: NVFP4 but for its attention, as NVIDIA publishes it."""
    spec = draft_spec_from_config(config)
    where = folder / "synthetic-draft"
    where.mkdir()
    (where / "config.json").write_text(json.dumps(config))
    tensors, formats = {}, {}

    def add(name: str, dtype: str, shape: tuple[int, ...]) -> None:
        nbytes = math.prod(shape) * DTYPES[dtype].itemsize
        tensors[name] = TensorEntry(name, DTYPES[dtype], shape, Path("nowhere"), 0, nbytes)

    for module, (N, K) in draft_modules(spec):
        formats[module] = "dense" if "self_attn" in module else "nvfp4"
        if formats[module] == "dense":
            add(f"{module}.weight", "BF16", (N, K))
            continue
        add(f"{module}.weight", "U8", (N, K // 2))
        add(f"{module}.weight_scale", "F8_E4M3", (N, K // 16))
        add(f"{module}.weight_scale_2", "F32", (1,))
    for name, shape in draft_tensors(spec):
        add(name, "BF16", shape)
    draft = DraftCheckpoint(
        where,
        spec,
        target,
        tensors,
        formats,
        target.entry("backbone.embeddings.weight"),
        target.parts("lm_head"),
        target.formats["lm_head"],
        confidence=False,
    )
    return DraftSource("dspark", build_draft(draft), spec.target_layer_ids, spec, where)


def _lay_out(models: Sequence[ir.Model]) -> tuple[dict[str, View], int]:
    """Gives every weight of the graphs a place in the weights file."""
    places: dict[str, View] = {}
    size = 0
    for model in models:
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
