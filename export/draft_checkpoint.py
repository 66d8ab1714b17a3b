"""Opened drafts: a DSpark or DFlash folder, and the MTP head inside a target's checkpoint.

As for the target, opening reads headers only and finds everything that can be wrong without the
weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.draft import DraftSpec, load_draft_spec
from edgekit.errors import CheckpointError
from edgekit.export.checkpoint import Checkpoint, check_linear, check_tensor
from edgekit.export.quantization import read_declaration, resolve, stored_format
from edgekit.model import ModelSpec
from edgekit.ops.formats import DENSE, PARTS, WeightFormat
from edgekit.safetensors import TensorEntry, read_folder

FOLDER = "draft"
"""Where a checkpoint keeps the draft that it comes with."""

MTP = "mtp.layers"

_HEADS = ("markov_w1", "markov_w2", "gate_proj", "joint_proj")
_DEEPER = {f"{name}.": f"markov_head.{name}." for name in _HEADS} | {
    "confidence_proj.": "confidence_head.proj."
}
"""ModelOpt writes the heads' tensors without their module; the published names have it."""


@dataclass(frozen=True, slots=True)
class DraftCheckpoint:
    """An opened DSpark or DFlash draft of one target.

    Attributes:
        tensors: by published name.
        formats: by linear module, those of `target` for its lm_head.
        embedding, lm_head: the draft's own, or the target's.
        confidence: whether it has a confidence head.
    """

    folder: Path
    spec: DraftSpec
    target: Checkpoint
    tensors: dict[str, TensorEntry]
    formats: dict[str, WeightFormat]
    embedding: TensorEntry
    lm_head: tuple[TensorEntry, ...]
    lm_head_format: WeightFormat
    confidence: bool

    @classmethod
    def open(cls, folder: Path, target: Checkpoint) -> DraftCheckpoint:
        """Opens and checks a draft's folder.

        Raises:
            CheckpointError: with the first thing that is wrong, in the draft or between the two.
        """
        spec = load_draft_spec(folder / "config.json")
        _check_pair(spec, target.spec)
        tensors = {_published(name): entry for name, entry in read_folder(folder).items()}
        declaration = read_declaration(folder)
        formats: dict[str, WeightFormat] = {}
        for module, shape in draft_modules(spec):
            formats[module] = resolve(declaration, tensors, module)
            check_linear(tensors, module, shape, formats[module])
        for name, dims in draft_tensors(spec):
            check_tensor(tensors, name, dims, DENSE)
        confidence = "confidence_head.proj.weight" in tensors
        if confidence:
            width = spec.hidden_size + spec.markov_rank
            check_tensor(tensors, "confidence_head.proj.weight", (1, width), DENSE)
            check_tensor(tensors, "confidence_head.proj.bias", (1,), DENSE)
        table = (spec.vocab_size, spec.hidden_size)
        embedding = target.entry("backbone.embeddings.weight")
        if "embed_tokens.weight" in tensors:
            check_tensor(tensors, "embed_tokens.weight", table, DENSE)
            own = tensors["embed_tokens.weight"]
            embedding = embedding if _same_bytes(own, embedding) else own
        head, head_format = target.parts("lm_head"), target.formats["lm_head"]
        if "lm_head.weight" in tensors:
            own_format = resolve(declaration, tensors, "lm_head")
            check_linear(tensors, "lm_head", table, own_format)
            own_head = tuple(tensors[f"lm_head.{part}"] for part in PARTS[own_format])
            if own_format != head_format or not all(map(_same_bytes, own_head, head)):
                head, head_format = own_head, own_format
        return cls(folder, spec, target, tensors, formats, embedding, head, head_format, confidence)

    def parts(self, module: str) -> tuple[TensorEntry, ...]:
        """The tensors of one linear module, in the order its format lists them."""
        return tuple(self.tensors[f"{module}.{part}"] for part in PARTS[self.formats[module]])


def draft_modules(spec: DraftSpec) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every matrix that may be quantized, with its shape [N, K]."""
    H = spec.hidden_size
    q = spec.num_attention_heads * spec.head_dim
    kv = spec.num_key_value_heads * spec.head_dim
    yield "fc", (H, len(spec.target_layer_ids) * H)
    for i in range(spec.num_hidden_layers):
        attention, mlp = f"layers.{i}.self_attn", f"layers.{i}.mlp"
        yield f"{attention}.q_proj", (q, H)
        yield f"{attention}.k_proj", (kv, H)
        yield f"{attention}.v_proj", (kv, H)
        yield f"{attention}.o_proj", (H, q)
        yield f"{mlp}.gate_proj", (spec.intermediate_size, H)
        yield f"{mlp}.up_proj", (spec.intermediate_size, H)
        yield f"{mlp}.down_proj", (H, spec.intermediate_size)
    rank = spec.markov_rank
    if rank:
        yield "markov_head.markov_w2", (spec.vocab_size, rank)
        if spec.markov_head_type == "gated":
            yield "markov_head.gate_proj", (rank, H + rank)
        elif spec.markov_head_type == "rnn":
            yield "markov_head.joint_proj", (3 * rank, 2 * rank + H)


def draft_tensors(spec: DraftSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor that is never quantized, with its shape."""
    H = (spec.hidden_size,)
    yield "hidden_norm.weight", H
    for i in range(spec.num_hidden_layers):
        layer = f"layers.{i}"
        yield f"{layer}.input_layernorm.weight", H
        yield f"{layer}.post_attention_layernorm.weight", H
        yield f"{layer}.self_attn.q_norm.weight", (spec.head_dim,)
        yield f"{layer}.self_attn.k_norm.weight", (spec.head_dim,)
        if spec.sinks:
            yield f"{layer}.self_attn.attention_sink_bias", (spec.num_attention_heads,)
    yield "norm.weight", H
    rank = spec.markov_rank
    if rank:
        yield "markov_head.markov_w1.weight", (spec.vocab_size, rank)
        if spec.markov_head_type == "gated":
            yield "markov_head.gate_proj.bias", (rank,)
        elif spec.markov_head_type == "rnn":
            yield "markov_head.joint_proj.bias", (3 * rank,)


def open_mtp(checkpoint: Checkpoint) -> Checkpoint | None:
    """The target's checkpoint with the formats of its MTP head, None if it has none.

    Raises:
        CheckpointError: the head is of another kind than one attention and one MoE layer, or a
            tensor is missing or has a wrong shape.
    """
    if not any(name.startswith("mtp.") for name in checkpoint.tensors):
        return None
    config = json.loads((checkpoint.folder / "config.json").read_text())
    pattern = config.get("mtp_hybrid_override_pattern", "*E")
    if pattern != "*E" or not checkpoint.spec.layers_of("*"):
        raise CheckpointError(
            f"the MTP head has layers {pattern!r}",
            cause="edgekit runs heads of one attention and one MoE layer",
            hint="build with --draft none",
        )
    formats: dict[str, WeightFormat] = {"lm_head": checkpoint.formats["lm_head"]}
    for module, shape in mtp_modules(checkpoint.spec):
        formats[module] = stored_format(checkpoint.tensors, module)
        check_linear(checkpoint.tensors, module, shape, formats[module])
    for name, dims in mtp_tensors(checkpoint.spec):
        check_tensor(checkpoint.tensors, name, dims, DENSE)
    return replace(checkpoint, formats=formats)


def mtp_modules(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every matrix of an MTP head, with its shape [N, K]."""
    H = spec.hidden_size
    q, kv = (n * spec.head_dim for n in (spec.num_attention_heads, spec.num_key_value_heads))
    yield f"{MTP}.0.eh_proj", (H, 2 * H)
    for name, shape in (("q", (q, H)), ("k", (kv, H)), ("v", (kv, H)), ("o", (H, q))):
        yield f"{MTP}.0.mixer.{name}_proj", shape
    for e in range(spec.n_routed_experts):
        yield f"{MTP}.1.mixer.experts.{e}.up_proj", (spec.moe_intermediate_size, H)
        yield f"{MTP}.1.mixer.experts.{e}.down_proj", (H, spec.moe_intermediate_size)
    if spec.n_shared_experts:
        width = spec.moe_shared_expert_intermediate_size
        yield f"{MTP}.1.mixer.shared_experts.up_proj", (width, H)
        yield f"{MTP}.1.mixer.shared_experts.down_proj", (H, width)


def mtp_tensors(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every other tensor of an MTP head, with its shape."""
    for name in ("0.enorm", "0.hnorm", "0.norm", "1.norm", "1.final_layernorm"):
        yield f"{MTP}.{name}.weight", (spec.hidden_size,)
    gate = f"{MTP}.1.mixer.gate"
    yield f"{gate}.weight", (spec.n_routed_experts, spec.hidden_size)
    yield f"{gate}.e_score_correction_bias", (spec.n_routed_experts,)


def _published(name: str) -> str:
    for flat, deep in _DEEPER.items():
        if name.startswith(flat):
            return deep + name.removeprefix(flat)
    return name


def _check_pair(draft: DraftSpec, target: ModelSpec) -> None:
    for name in ("hidden_size", "vocab_size"):
        mine, theirs = getattr(draft, name), getattr(target, name)
        if mine != theirs:
            raise CheckpointError(
                f"the draft has {name} {mine}, the model {theirs}",
                cause="a draft reads its target's features and speaks its tokens",
                hint="use the draft that was made for this model",
            )
    if max(draft.target_layer_ids) >= target.num_hidden_layers:
        raise CheckpointError(
            f"the draft reads layer {max(draft.target_layer_ids)} of a model with "
            f"{target.num_hidden_layers} layers",
            hint="use the draft that was made for this model",
        )


def _same_bytes(one: TensorEntry, other: TensorEntry) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return all(a == b for a, b in zip(one.chunks(), other.chunks(), strict=True))
