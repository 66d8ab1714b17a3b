"""A Hugging Face checkpoint folder: dimensions, tensor locations and weight formats, checked.

Opening reads headers only. Everything that can be wrong without looking at weights (a missing
tensor, a wrong shape, a contradictory declaration) is found here, before a long export starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.errors import CheckpointError
from edgekit.export.quantization import Declaration, read_declaration, resolve
from edgekit.model import ModelSpec, load_spec
from edgekit.ops.formats import (
    BFLOAT16,
    DENSE,
    FLOAT8_E4M3,
    INT4_GROUPS,
    INT4_SCALES,
    NVFP4_BLOCK,
    PARTS,
    WeightFormat,
    int4_group,
)
from edgekit.safetensors import TensorEntry, read_folder


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        formats: weight format by linear module, for example ``backbone.layers.0.mixer.in_proj``.
    """

    folder: Path
    spec: ModelSpec
    tensors: dict[str, TensorEntry]
    formats: dict[str, WeightFormat]
    declaration: Declaration | None

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Opens and checks a checkpoint folder; see the module for what is checked.

        Raises:
            CheckpointError: with the first thing that is wrong.
        """
        spec = load_spec(folder)
        tensors = read_folder(folder)
        declaration = read_declaration(folder)
        formats = {}
        for module, shape in linear_modules(spec):
            formats[module] = resolve(declaration, tensors, module)
            check_linear(tensors, module, shape, formats[module])
        for name, dims in plain_tensors(spec):
            check_tensor(tensors, name, dims, DENSE)
        return cls(folder, spec, tensors, formats, declaration)

    def entry(self, name: str) -> TensorEntry:
        """Where one tensor is; present because `open` checked it."""
        return self.tensors[name]

    def parts(self, module: str) -> tuple[TensorEntry, ...]:
        """The tensors of one linear module, in the order its format lists them."""
        return tuple(self.tensors[f"{module}.{part}"] for part in PARTS[self.formats[module]])

    def read(self, name: str) -> npt.NDArray[np.generic]:
        """One whole tensor in its stored dtype, its values checked."""
        array = self.tensors[name].read()
        check_finite(name, array)
        return array

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors the model uses."""
        names = [name for name, _ in plain_tensors(self.spec)]
        names += [entry.name for module in self.formats for entry in self.parts(module)]
        return sum(self.tensors[name].nbytes for name in names)


def check_finite(name: str, array: npt.NDArray[np.generic]) -> None:
    """Refuses NaN and infinity: one of them turns every logit into NaN.

    Raises:
        CheckpointError: a value is not finite.
    """
    if not _all_finite(array):
        raise CheckpointError(
            f"tensor {name!r} holds NaN or infinity",
            cause="a weight and a quantization scale must be finite",
            hint="the checkpoint is damaged or was quantized without calibration: get it again",
        )


def _all_finite(array: npt.NDArray[np.generic]) -> bool:
    """By the bits for formats that NumPy has no fast test for: all ones in the exponent."""
    if array.dtype == BFLOAT16:
        return bool((array.view(np.uint16) & 0x7FFF).max(initial=0) < 0x7F80)
    if array.dtype == FLOAT8_E4M3:  # no infinity; NaN is all ones
        return bool((array.view(np.uint8) & 0x7F).max(initial=0) < 0x7F)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def linear_modules(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every matrix that may be quantized, with its shape [N, K], in execution order."""
    H = spec.hidden_size
    for i, kind in enumerate(spec.layers):
        mixer = f"backbone.layers.{i}.mixer"
        if kind == "M":
            yield f"{mixer}.in_proj", (spec.in_proj_dim, H)
            yield f"{mixer}.out_proj", (H, spec.d_inner)
        elif kind == "*":
            q = spec.num_attention_heads * spec.head_dim
            kv = spec.num_key_value_heads * spec.head_dim
            yield f"{mixer}.q_proj", (q, H)
            yield f"{mixer}.k_proj", (kv, H)
            yield f"{mixer}.v_proj", (kv, H)
            yield f"{mixer}.o_proj", (H, q)
        elif kind == "-":
            yield f"{mixer}.up_proj", (spec.intermediate_size, H)
            yield f"{mixer}.down_proj", (H, spec.intermediate_size)
        else:
            for e in range(spec.n_routed_experts):
                yield f"{mixer}.experts.{e}.up_proj", (spec.moe_intermediate_size, H)
                yield f"{mixer}.experts.{e}.down_proj", (H, spec.moe_intermediate_size)
            if spec.n_shared_experts:
                width = spec.moe_shared_expert_intermediate_size
                yield f"{mixer}.shared_experts.up_proj", (width, H)
                yield f"{mixer}.shared_experts.down_proj", (H, width)
    yield "lm_head", (spec.vocab_size, H)


def plain_tensors(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that is never quantized, with its shape."""
    yield "backbone.embeddings.weight", (spec.vocab_size, spec.hidden_size)
    for i, kind in enumerate(spec.layers):
        layer = f"backbone.layers.{i}"
        yield f"{layer}.norm.weight", (spec.hidden_size,)
        if kind == "M":
            yield f"{layer}.mixer.conv1d.weight", (spec.conv_dim, 1, spec.conv_kernel)
            if spec.use_conv_bias:
                yield f"{layer}.mixer.conv1d.bias", (spec.conv_dim,)
            for name in ("A_log", "D", "dt_bias"):
                yield f"{layer}.mixer.{name}", (spec.mamba_num_heads,)
            yield f"{layer}.mixer.norm.weight", (spec.d_inner,)
        elif kind == "E":
            yield f"{layer}.mixer.gate.weight", (spec.n_routed_experts, spec.hidden_size)
            yield f"{layer}.mixer.gate.e_score_correction_bias", (spec.n_routed_experts,)
    yield "backbone.norm_f.weight", (spec.hidden_size,)


def check_linear(
    tensors: dict[str, TensorEntry], module: str, shape: tuple[int, int], form: WeightFormat
) -> None:
    N, K = shape
    if form == "nvfp4":
        if K % NVFP4_BLOCK:
            raise CheckpointError(
                f"{module} has {K} columns: nvfp4 needs a multiple of {NVFP4_BLOCK}",
                hint="use the BF16 checkpoint",
            )
        check_tensor(tensors, f"{module}.weight", (N, K // 2), {np.dtype(np.uint8)})
        check_tensor(tensors, f"{module}.weight_scale", (N, K // NVFP4_BLOCK), {FLOAT8_E4M3})
        _check_scalar(tensors, f"{module}.weight_scale_2")
    elif form == "int4":
        scale = tensors[f"{module}.weight_scale"]
        if int4_group(K, scale.shape[-1]) is None:
            raise CheckpointError(
                f"{module} has {scale.shape[-1]} scales a row for {K} columns",
                cause=f"int4 groups are {', '.join(map(str, INT4_GROUPS))} columns",
                hint="use the BF16 checkpoint and an edgekit recipe instead",
            )
        check_tensor(tensors, f"{module}.weight", (N, K // 2), {np.dtype(np.uint8)})
        check_tensor(tensors, scale.name, (N, scale.shape[-1]), INT4_SCALES)
    elif form == "fp8":
        check_tensor(tensors, f"{module}.weight", shape, {FLOAT8_E4M3})
        _check_scalar(tensors, f"{module}.weight_scale")
    else:
        check_tensor(tensors, f"{module}.weight", shape, DENSE)


def check_tensor(
    tensors: dict[str, TensorEntry],
    name: str,
    shape: tuple[int, ...],
    dtypes: Set[np.dtype[Any]],
) -> None:
    entry = tensors.get(name)
    if entry is None:
        raise CheckpointError(
            f"tensor {name!r} is missing",
            cause="config.json describes a layer that the weights do not have",
            hint="download the checkpoint again, all shards",
        )
    if entry.shape != shape:
        raise CheckpointError(
            f"tensor {name!r} has shape {list(entry.shape)}, not {list(shape)}",
            cause="config.json and the weights do not belong together",
            hint="download config.json and the *.safetensors files from the same revision",
        )
    _check_dtype(entry, dtypes)


def _check_scalar(tensors: dict[str, TensorEntry], name: str) -> None:
    entry = tensors[name]
    if entry.shape not in ((), (1,)):
        raise CheckpointError(
            f"tensor {name!r} has shape {list(entry.shape)}, not a single scale",
            cause="per-channel and per-block scales of this kind are not supported",
            hint="use the BF16 checkpoint, or one quantized with a scale for each tensor",
        )
    _check_dtype(entry, {np.dtype(np.float32)})


def _check_dtype(entry: TensorEntry, dtypes: Set[np.dtype[Any]]) -> None:
    if entry.dtype not in dtypes:
        expected = " or ".join(sorted(map(str, dtypes)))
        raise CheckpointError(
            f"tensor {entry.name!r} holds {entry.dtype}, not {expected}",
            hint="use a checkpoint in bfloat16 or one that NVIDIA ModelOpt quantized",
        )
