"""Random models that between them cover every layer kind and every setting of the graph writer."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from edgekit.bundle import Bundle
from edgekit.export.build import BuildRequest, build_bundle
from tests.tools.hf_reference import HfReference
from tests.tools.random_checkpoint import write_random_checkpoint

F32 = npt.NDArray[np.float32]

VOCABULARY = 256
TOLERANCE = 1e-4
"""Largest difference of a logit. Logits have standard deviation 3 and reach about 15; differences
of 1e-5 are usual. No router comes nearer to a tie than 6e-6, far above the error of its scores, so
another CPU's order of summation does not choose other experts."""

CASES: dict[str, dict[str, Any]] = {
    "every-kind": {"pattern": "MEM*E-"},
    "one-group": {
        "pattern": "M*E",
        "n_groups": 1,
        "mamba_num_heads": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    },
    "four-groups": {
        "pattern": "M-M*",
        "n_groups": 4,
        "mamba_num_heads": 8,
        "mamba_head_dim": 32,
        "ssm_state_size": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    },
    "expert-groups": {
        "pattern": "EM*E",
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_group": 4,
        "topk_group": 2,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
    },
    "one-expert-group-of-two": {
        "pattern": "ME*E",
        "num_experts_per_tok": 3,
        "n_group": 2,
        "topk_group": 1,
        "routed_scaling_factor": 0.5,
    },
    "one-expert": {"pattern": "E*", "num_experts_per_tok": 1, "norm_topk_prob": False},
    "all-experts": {"pattern": "ME", "num_experts_per_tok": 8},
    "attention-first": {
        "pattern": "*M-ME",
        "use_conv_bias": False,
        "conv_kernel": 2,
        "key_style": "layers_block_type",
    },
    "sharded-bf16": {
        "pattern": "MEM*E-",
        "dtype": "bfloat16",
        "shards": 3,
        "key_style": "layers_block_type",
    },
    "only-mamba": {"pattern": "MM", "n_groups": 1},
    "no-mamba": {"pattern": "*E-*"},
    "no-state": {"pattern": "-E"},
    "wide": {
        "pattern": "M*ME",
        "hidden_size": 160,
        "mamba_num_heads": 6,
        "n_groups": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "moe_intermediate_size": 40,
        "moe_shared_expert_intermediate_size": 72,
        "n_routed_experts": 12,
        "num_experts_per_tok": 5,
    },
    "no-shared-expert": {"pattern": "ME*"},
}


@dataclass(slots=True)
class Model:
    """A random model: its checkpoint, its bundles and what transformers makes of it.

    Attributes:
        folder: what edgekit reads. reference_folder: the same function, for transformers.
    """

    name: str
    folder: Path
    reference_folder: Path
    ids: list[int]
    _bundles: dict[tuple[Any, ...], Bundle] = field(default_factory=dict)
    _logits: dict[int, F32] = field(default_factory=dict)
    _reference: HfReference | None = None

    def bundle(
        self, *, context: int = 1024, prefill_chunk: int = 128, taps: tuple[int, ...] = ()
    ) -> Bundle:
        key = (context, prefill_chunk, taps)
        if key not in self._bundles:
            output = self.folder.parent / f"bundle-{len(self._bundles)}"
            request = BuildRequest(
                checkpoint=self.folder,
                output=output,
                profile="cpu",
                recipe="none",
                context=context,
                prefill_chunk=prefill_chunk,
                taps=taps,
            )
            self._bundles[key] = Bundle.open(build_bundle(request))
        return self._bundles[key]

    @property
    def reference(self) -> HfReference:
        if self._reference is None:
            self._reference = HfReference(self.reference_folder)
        return self._reference

    def logits(self, n: int) -> F32:
        """transformers' logits [n, V] of the first n tokens of `ids`."""
        if n not in self._logits:
            self._logits[n] = self.reference.logits(self.ids[:n])
        return self._logits[n]


@functools.cache
def random_model(name: str, root: Path) -> Model:
    """The model of one case, written once under `root`."""
    folder = write_random_checkpoint(root / name / "checkpoint", **CASES[name])
    reference = _without_shared_expert(folder) if name == "no-shared-expert" else folder
    ids = np.random.default_rng(7).integers(0, VOCABULARY, 1000).tolist()
    return Model(name, folder, reference, ids)


def _without_shared_expert(folder: Path) -> Path:
    """Takes the shared expert out. transformers always has one, so in its copy it returns 0."""
    tensors = load_file(folder / "model.safetensors")
    shared = [name for name in tensors if ".shared_experts." in name]
    reference = folder.with_name("reference")
    reference.mkdir()
    (reference / "config.json").write_bytes((folder / "config.json").read_bytes())
    zeros = {name: np.zeros_like(tensors[name]) for name in shared}
    save_file(tensors | zeros, reference / "model.safetensors", metadata={"format": "pt"})
    save_file(
        {name: array for name, array in tensors.items() if name not in shared},
        folder / "model.safetensors",
    )
    config = json.loads((folder / "config.json").read_text()) | {"n_shared_experts": 0}
    (folder / "config.json").write_text(json.dumps(config))
    return reference
