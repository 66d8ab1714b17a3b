"""How many parameters a model has and how many bytes they take, from its dimensions alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.errors import CheckpointError
from edgekit.model import ModelSpec
from edgekit.safetensors import INDEX, read_folder, read_index

Component = Literal["embedding", "lm_head", "mamba", "attention", "routed", "shared", "mlp"]
"""Groups of matrices that are quantized alike."""

BYTES_PER_WEIGHT: dict[str, float] = {
    "fp32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,  # four bits and one float8 scale for sixteen
    "int4": 0.5625,  # four bits and one bfloat16 scale for thirty-two
}


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts of all layers together.

    Attributes:
        matrices: by component, what formats apply to.
        vectors: norms, convolutions, routers, A, D and biases: never quantized.
        buffers: the routers' correction biases, which model cards do not count.
    """

    matrices: Mapping[Component, int]
    vectors: int
    buffers: int

    @property
    def total(self) -> int:
        """The count a model card states."""
        return sum(self.matrices.values()) + self.vectors

    def nbytes(self, formats: Mapping[Component, str], default: str = "bf16") -> int:
        """Bytes of the weights with each component in its format, vectors in bfloat16."""
        size = float(2 * self.vectors + 4 * self.buffers)
        for component, count in self.matrices.items():
            size += count * BYTES_PER_WEIGHT[formats.get(component, default)]
        return round(size)


def count_parameters(spec: ModelSpec) -> Parameters:
    """Counts the parameters of a model without its draft or MTP module."""
    H = spec.hidden_size
    M, E, A, D = (len(spec.layers_of(kind)) for kind in ("M", "E", "*", "-"))
    conv = spec.conv_dim * (spec.conv_kernel + int(spec.use_conv_bias))
    shared = spec.moe_shared_expert_intermediate_size if spec.n_shared_experts else 0
    matrices: dict[Component, int] = {
        "embedding": spec.vocab_size * H,
        "lm_head": spec.vocab_size * H,
        "mamba": M * H * (spec.in_proj_dim + spec.d_inner),
        "attention": A
        * 2
        * H
        * spec.head_dim
        * (spec.num_attention_heads + spec.num_key_value_heads),
        "routed": E * spec.n_routed_experts * 2 * spec.moe_intermediate_size * H,
        "shared": E * 2 * shared * H,
        "mlp": D * 2 * spec.intermediate_size * H,
    }
    vectors = (
        (spec.num_hidden_layers + 1) * H
        + M * (conv + 3 * spec.mamba_num_heads + spec.d_inner)
        + E * spec.n_routed_experts * H
    )
    return Parameters(matrices, vectors, E * spec.n_routed_experts)


def stored_bytes(folder: Path) -> int | None:
    """Bytes of a checkpoint's tensors by its safetensors headers, None when it has no weights.

    Tensors of the multi-token-prediction module are left out: nothing loads them.

    Raises:
        CheckpointError: a header is damaged.
    """
    index = folder / INDEX
    if not index.is_file() and not (folder / "model.safetensors").is_file():
        return None
    if index.is_file() and not all((folder / shard).is_file() for shard in read_index(index)):
        return _announced(index)
    tensors = read_folder(folder)
    return sum(entry.nbytes for name, entry in tensors.items() if not name.startswith("mtp."))


def _announced(index: Path) -> int:
    """Before the download the index alone knows the size, the MTP module included."""
    try:
        return int(json.loads(index.read_text())["metadata"]["total_size"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{index.name} does not say how large the weights are",
            cause=f"{type(error).__name__}: {error}",
            hint="download the whole checkpoint",
        ) from None
