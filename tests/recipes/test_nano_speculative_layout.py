"""Drafts as files: published tensor names, shapes and config keys; sizes; reading back."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors import safe_open  # noqa: E402

from edgekit.recipes.nano.checkpoint import save_checkpoint  # noqa: E402
from edgekit.recipes.nano.model import NanoConfig, NemotronH  # noqa: E402
from edgekit.recipes.nano.speculative.config import (  # noqa: E402
    DraftConfig,
    config_json,
    parse_config,
)
from edgekit.recipes.nano.speculative.dspark import DSpark  # noqa: E402
from edgekit.recipes.nano.speculative.files import (  # noqa: E402
    add_mtp,
    load_draft,
    load_mtp,
    mtp_tensors,
    save_draft,
    save_mtp,
)
from edgekit.recipes.nano.speculative.mtp import Mtp  # noqa: E402
from edgekit.recipes.nano.speculative.target import tap_layers  # noqa: E402

torch.set_num_threads(1)


def tiny_target(seed: int = 0, vocab: int = 64) -> NemotronH:
    """A random target of 30 k parameters."""
    torch.manual_seed(seed)
    config = NanoConfig(
        hybrid_override_pattern="M*EM", hidden_size=32, vocab_size=vocab,
        mamba_num_heads=2, mamba_head_dim=16, ssm_state_size=16, n_groups=1, chunk_size=16,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24,
    )  # fmt: skip
    return NemotronH(config).eval().requires_grad_(False)


def tiny_draft(target: NemotronH, seed: int = 1, **changes: object) -> DSpark:
    """A random draft with every part that matters away from its starting value."""
    torch.manual_seed(seed)
    config = DraftConfig.for_target(
        target.config, 3, head_dim=8, intermediate_size=48, sliding_window=9, markov_rank=8
    )
    draft = DSpark(replace(config, **changes), target)
    with torch.no_grad():
        for name, p in draft.named_parameters():
            if "sink" in name or "markov_w2" in name or "norm" in name:
                p.add_(0.5 * torch.randn_like(p))
    return draft.eval()


DRAFT_SHAPES = {  # the published list for two layers, without the embedding copy
    "fc.weight": (32, 96),
    "hidden_norm.weight": (32,),
    "norm.weight": (32,),
    "markov_head.markov_w1.weight": (64, 8),
    "markov_head.markov_w2.weight": (64, 8),
    **{
        f"layers.{i}.{name}": shape
        for i in range(2)
        for name, shape in {
            "input_layernorm.weight": (32,),
            "post_attention_layernorm.weight": (32,),
            "self_attn.q_proj.weight": (32, 32),
            "self_attn.k_proj.weight": (8, 32),
            "self_attn.v_proj.weight": (8, 32),
            "self_attn.o_proj.weight": (32, 32),
            "self_attn.q_norm.weight": (8,),
            "self_attn.k_norm.weight": (8,),
            "self_attn.attention_sink_bias": (4,),
            "mlp.gate_proj.weight": (48, 32),
            "mlp.up_proj.weight": (48, 32),
            "mlp.down_proj.weight": (32, 48),
        }.items()
    },
}
MTP_SHAPES = {
    "mtp.layers.0.enorm.weight": (32,),
    "mtp.layers.0.hnorm.weight": (32,),
    "mtp.layers.0.norm.weight": (32,),
    "mtp.layers.0.eh_proj.weight": (32, 64),
    "mtp.layers.0.mixer.q_proj.weight": (32, 32),
    "mtp.layers.0.mixer.k_proj.weight": (16, 32),
    "mtp.layers.0.mixer.v_proj.weight": (16, 32),
    "mtp.layers.0.mixer.o_proj.weight": (32, 32),
    "mtp.layers.1.norm.weight": (32,),
    "mtp.layers.1.final_layernorm.weight": (32,),
    "mtp.layers.1.mixer.gate.weight": (4, 32),
    "mtp.layers.1.mixer.gate.e_score_correction_bias": (4,),
    "mtp.layers.1.mixer.shared_experts.up_proj.weight": (24, 32),
    "mtp.layers.1.mixer.shared_experts.down_proj.weight": (32, 24),
    **{f"mtp.layers.1.mixer.experts.{i}.up_proj.weight": (16, 32) for i in range(4)},
    **{f"mtp.layers.1.mixer.experts.{i}.down_proj.weight": (32, 16) for i in range(4)},
}


def stored(file):
    with safe_open(file, framework="pt") as f:
        tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    return {n: tuple(t.shape) for n, t in tensors.items()}, {n: t.dtype for n, t in tensors.items()}


def test_draft_file_has_the_published_tensors(tmp_path):
    target = tiny_target()
    draft = tiny_draft(target)
    save_draft(draft, tmp_path)
    shapes, dtypes = stored(tmp_path / "model.safetensors")
    assert shapes == DRAFT_SHAPES
    assert set(dtypes.values()) == {torch.bfloat16}
    again = load_draft(tmp_path, target)
    assert again.config == draft.config
    for name, value in again.state_dict().items():
        assert torch.equal(value, draft.state_dict()[name].bfloat16().float()), name


def test_draft_file_may_carry_the_targets_embedding(tmp_path):
    target = tiny_target()
    save_draft(tiny_draft(target), tmp_path, own_embedding=True)
    shapes, _ = stored(tmp_path / "model.safetensors")
    assert shapes == DRAFT_SHAPES | {"embed_tokens.weight": (64, 32)}
    assert json.loads((tmp_path / "config.json").read_text())["has_embed_tokens"] is True
    load_draft(tmp_path, target)
    with pytest.raises(ValueError, match="not the target's"):
        load_draft(tmp_path, tiny_target(seed=5))


def test_config_states_the_layout_as_nvidia_does():
    raw = config_json(tiny_draft(tiny_target()).config)
    assert raw["architectures"] == ["Qwen3DSparkModel"]
    assert raw["sample_from_anchor"] is False
    assert raw["dflash_config"]["sample_from_anchor"] is False
    assert raw["dflash_config"]["causal"] is raw["dflash_query_causal"] is True
    assert raw["layer_types"] == ["sliding_attention"] * 2
    assert raw["eagle_aux_hidden_state_layer_ids"] == [i + 1 for i in raw["target_layer_ids"]]
    assert raw["has_lm_head"] is False
    assert "quantization_config" not in raw


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sliding_window", 12),
        ("dflash_config.causal", False),
        ("dflash_config.target_layer_ids", [0, 1, 2]),
        ("eagle_aux_hidden_state_layer_ids", [1, 2, 3]),
        ("dspark_markov_rank", 16),
        ("pard_token", 3),
        ("sample_from_anchor", True),
        ("markov_head_type", "gated"),
        ("enable_confidence_head", True),
        ("has_lm_head", True),
    ],
)
def test_config_refuses_contradictions_and_unknown_layouts(path, value):
    raw = config_json(tiny_draft(tiny_target()).config)
    *parents, key = path.split(".")
    place = raw[parents[0]] if parents else raw
    place[key] = value
    with pytest.raises(ValueError, match=r"contradicts|disagree|supported"):
        parse_config(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {"markov_rank": 0},
        {"markov_rank": 0, "causal": False, "attention_sink_bias": False, "sliding_window": None},
    ],
)
def test_ablations_keep_their_config(changes, tmp_path):
    target = tiny_target()
    draft = tiny_draft(target, **changes)
    save_draft(draft, tmp_path)
    assert load_draft(tmp_path, target).config == draft.config
    shapes, _ = stored(tmp_path / "model.safetensors")
    assert not any("markov" in name for name in shapes)
    assert any("sink" in name for name in shapes) == draft.config.attention_sink_bias


def test_mtp_file_has_the_published_tensors(tmp_path):
    target = tiny_target()
    mtp = Mtp(target)
    save_mtp(mtp, tmp_path / "mtp.safetensors")
    shapes, dtypes = stored(tmp_path / "mtp.safetensors")
    assert shapes == MTP_SHAPES
    assert {n for n, d in dtypes.items() if d == torch.float32} == {
        "mtp.layers.1.mixer.gate.weight",
        "mtp.layers.1.mixer.gate.e_score_correction_bias",
    }
    again = mtp_tensors(load_mtp(tmp_path / "mtp.safetensors", target))
    assert all(torch.equal(again[n], t) for n, t in mtp_tensors(mtp).items())


def test_mtp_joins_the_checkpoint_and_transformers_still_loads_it(tmp_path):
    transformers = pytest.importorskip("transformers")
    target = tiny_target()
    save_checkpoint(target, tmp_path)
    before, _ = stored(tmp_path / "model.safetensors")
    save_mtp(Mtp(target), tmp_path / "mtp.safetensors")
    for _ in range(2):  # a second head replaces the first
        add_mtp(tmp_path / "mtp.safetensors", tmp_path)
    shapes, _ = stored(tmp_path / "model.safetensors")
    assert shapes == before | MTP_SHAPES
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_nextn_predict_layers"] == 1
    assert config["mtp_layers_block_type"] == ["attention", "moe"]
    load_mtp(tmp_path / "model.safetensors", target)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = torch.randint(24, 64, (1, 12))
    with torch.no_grad():
        theirs = model.eval()(tokens).logits
        target.load_state_dict({k: v.bfloat16().float() for k, v in target.state_dict().items()})
        assert (theirs - target(tokens)).abs().max() < 2e-2


def test_taps_spread_to_the_last_layer():
    assert tap_layers(14, 4) == (1, 5, 9, 13)
    assert tap_layers(52, 6) == (1, 11, 21, 31, 41, 51)


def test_drafts_of_the_full_nano_fit_three_megabytes_each():
    config = NanoConfig(hybrid_override_pattern="MEMEM*EMEMEM*E", vocab_size=8192)
    target = NemotronH(config)
    draft = DSpark(DraftConfig.for_target(config), target)
    count = sum(p.numel() for p in draft.parameters())
    assert 2 * count < 3.1e6
    assert sum(t.numel() * t.element_size() for t in mtp_tensors(Mtp(target)).values()) < 3e6
