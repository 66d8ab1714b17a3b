"""What a DSpark or DFlash draft is, read from its config.json.

Both are a few Qwen3 layers over features of the target. The config says some facts two or three
times (at the top, in `dflash_config`, with `dspark_`); they must agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from edgekit.errors import CheckpointError
from edgekit.rope import Rope, read_rope

DraftKind = Literal["dspark", "dflash"]
HeadKind = Literal["vanilla", "gated", "rnn"]

CONFIG = "draft/config.json"
"""The config of a bundle's DSpark or DFlash draft."""

_ARCHITECTURES: dict[str, DraftKind] = {
    "Qwen3DSparkModel": "dspark",
    "DSparkDraftModel": "dspark",
    "DFlashDraftModel": "dflash",
}
_DEFAULT_BLOCK = 8  # DFlash configs leave it out: an anchor and seven drafts


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Which drafters a bundle gets.

    Attributes:
        folder: of a DSpark or DFlash draft. mtp: the head in the target's checkpoint.
    """

    folder: Path | None = None
    mtp: bool = False


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """Dimensions and layout of one draft.

    Attributes:
        target_layer_ids: target layers whose residual stream it reads, in this order.
        block_size: rows of a full block.
        causal: whether a block row sees only rows before it; then a shorter block is exact too.
        sliding_window: keys that a row sees, itself among them; None is all.
        sinks: whether each head has a sink score.
        sample_from_anchor: row j predicts the token behind its own; else the token at its own
            place, and the anchor's row predicts nothing.
        markov_rank: of the head that corrects each row by the token before it; 0 is none.
    """

    kind: DraftKind
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Rope
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    block_size: int
    causal: bool
    sliding_window: int | None
    sinks: bool
    sample_from_anchor: bool
    markov_rank: int
    markov_head_type: HeadKind

    @property
    def max_tokens(self) -> int:
        """Most tokens one block drafts."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1

    def rows(self, k: int) -> tuple[int, range]:
        """Rows of a block that drafts k tokens, and which of them predict those."""
        first = 0 if self.sample_from_anchor else 1
        count = first + k if self.causal else self.block_size
        return count, range(first, first + k)

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes one token costs in the draft's caches."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * element_bytes


def load_draft_spec(path: Path) -> DraftSpec:
    """Reads a draft's config.json.

    Raises:
        CheckpointError: it is no draft that edgekit runs, or contradicts itself.
    """
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read", cause=str(error), hint="pass the folder of the draft"
        ) from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return draft_spec_from_config(config)


def draft_kind(config: dict[str, Any]) -> DraftKind:
    """Which draft a config.json describes."""
    architectures = config.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    if name not in _ARCHITECTURES:
        raise CheckpointError(
            f"architecture {name!r} is no draft that edgekit knows",
            hint=f"architectures in config.json is one of {', '.join(_ARCHITECTURES)}",
        )
    return _ARCHITECTURES[cast(str, name)]


def draft_spec_from_config(config: dict[str, Any]) -> DraftSpec:
    """The same from a parsed config.json."""
    kind = draft_kind(config)
    inner = config.get("dflash_config") or {}
    facts = _Facts(config, inner if isinstance(inner, dict) else {})
    layers, heads = facts.size("num_hidden_layers"), facts.size("num_attention_heads")
    head_dim = facts.size("head_dim")
    window = _window(facts, config, layers)
    rank = facts.size("markov_rank", "dspark_markov_rank", default=0) if kind == "dspark" else 0
    head = facts.one("markov_head_type", default="vanilla")
    if head not in ("vanilla", "gated", "rnn"):
        raise CheckpointError(f"markov_head_type is {head!r}", cause="known: vanilla, gated, rnn")
    fixup = facts.one("dspark_fixup_head_type", default="markov")
    if fixup != "markov":
        raise CheckpointError(f"dspark_fixup_head_type is {fixup!r}", cause="known: markov")
    spec = DraftSpec(
        kind=kind,
        vocab_size=facts.size("vocab_size"),
        hidden_size=facts.size("hidden_size"),
        intermediate_size=facts.size("intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=facts.size("num_key_value_heads", default=heads),
        head_dim=head_dim,
        rms_norm_eps=float(facts.one("rms_norm_eps", default=1e-6)),
        rope=read_rope(config, head_dim),
        target_layer_ids=_layer_ids(facts),
        mask_token_id=facts.size("mask_token_id", "pard_token", "dspark_noise_token_id"),
        block_size=facts.size("block_size", "dspark_block_size", default=_DEFAULT_BLOCK),
        causal=bool(facts.one("causal", "dflash_query_causal", default=False)),
        sliding_window=window,
        sinks=bool(facts.one("attention_sink_bias", default=False)),
        sample_from_anchor=_from_anchor(facts, kind),
        markov_rank=rank,
        markov_head_type=cast(HeadKind, head),
    )
    _refuse(spec, config)
    return spec


@dataclass(frozen=True, slots=True)
class _Facts:
    """Looks a fact up wherever the config may say it; all who say it must agree."""

    config: dict[str, Any]
    inner: dict[str, Any]

    def one(self, *names: str, default: Any = None) -> Any:
        found = {
            f"{where}{name}": values[name]
            for where, values in (("", self.config), ("dflash_config.", self.inner))
            for name in names
            if values.get(name) is not None
        }
        said = list(found.values())
        if any(value != said[0] for value in said):
            text = ", ".join(f"{name} = {value!r}" for name, value in found.items())
            raise CheckpointError(
                "the draft's config.json contradicts itself",
                cause=text,
                hint="download it again; if it is published so, it needs correcting there",
            )
        if not said and default is None:
            raise CheckpointError(f"the draft's config.json has no {names[0]!r}")
        return said[0] if said else default

    def size(self, *names: str, default: int | None = None) -> int:
        value = self.one(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CheckpointError(f"the draft's config.json: {names[0]} is {value!r}, not a size")
        return value


def _layer_ids(facts: _Facts) -> tuple[int, ...]:
    ids = facts.one("target_layer_ids")
    if not isinstance(ids, list) or not ids or not all(type(i) is int and i >= 0 for i in ids):
        raise CheckpointError(f"target_layer_ids is {ids!r}, not a list of layers")
    after = facts.config.get("eagle_aux_hidden_state_layer_ids")
    if after is not None and after != [i + 1 for i in ids]:
        raise CheckpointError(
            "the draft's config.json contradicts itself",
            cause=f"target_layer_ids {ids}, eagle_aux_hidden_state_layer_ids {after}: "
            "the second must be the first plus one",
        )
    return tuple(ids)


def _window(facts: _Facts, config: dict[str, Any], layers: int) -> int | None:
    kinds = config.get("layer_types") or []
    sliding = kinds == ["sliding_attention"] * layers
    if kinds and not sliding and kinds != ["full_attention"] * layers:
        raise CheckpointError(
            "the draft mixes full and sliding attention", cause="edgekit runs layers of one kind"
        )
    if facts.inner.get("use_swa") not in (None, sliding) and kinds:
        raise CheckpointError(
            "the draft's config.json contradicts itself",
            cause=f"layer_types {kinds[0]}, dflash_config.use_swa {facts.inner['use_swa']}",
        )
    if not sliding and not facts.inner.get("use_swa"):
        return None
    return facts.size("sliding_window", "swa_window_size")


def _from_anchor(facts: _Facts, kind: DraftKind) -> bool:
    value = bool(facts.one("sample_from_anchor", default=kind == "dspark"))
    bonus = facts.config.get("dspark_bonus_anchor")
    if bonus is not None and bool(bonus) == value:
        raise CheckpointError(
            "the draft's config.json contradicts itself",
            cause=f"sample_from_anchor {value}, dspark_bonus_anchor {bonus}",
        )
    return value


def _refuse(spec: DraftSpec, config: dict[str, Any]) -> None:
    """What edgekit would run wrongly."""
    draft_vocab = config.get("draft_vocab_size")
    problem = None
    if draft_vocab not in (None, spec.vocab_size):
        problem = f"a vocabulary of its own ({draft_vocab} of {spec.vocab_size} tokens)"
    elif config.get("attention_bias"):
        problem = "attention_bias"
    elif config.get("hidden_act", "silu") != "silu":
        problem = f"hidden_act {config['hidden_act']!r}"
    elif not spec.causal and (spec.sliding_window or spec.sinks):
        problem = "a bidirectional block with a sliding window or sinks"
    elif spec.block_size < 2 or spec.head_dim % 2:
        problem = f"block_size {spec.block_size}, head_dim {spec.head_dim}"
    if problem is not None:
        raise CheckpointError(f"the draft has {problem}", cause="edgekit does not run that")
