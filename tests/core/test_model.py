"""config.json: the published models' dimensions, the names they go by, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import CheckpointError
from edgekit.model import ModelSpec, load_spec, spec_from_config, token_ids
from tests.tools.lightning_quantization import LIGHTNING
from tests.tools.nemotron_layout import BLOCK_NAMES, Dims, config_dict

PATTERN = "MEM*E-"


def config(**changes: Any) -> dict[str, Any]:
    """A valid config.json; a change to ... removes a key."""
    base = config_dict(Dims(), key_style="hybrid_override_pattern", torch_dtype="bfloat16")
    return {key: value for key, value in (base | changes).items() if value is not ...}


def refused(**changes: Any) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        spec_from_config(config(**changes))
    return caught.value


# -- what is read


@pytest.mark.parametrize("key_style", ["hybrid_override_pattern", "layers_block_type"])
def test_the_dimensions_of_lightning(key_style: Any) -> None:
    spec = spec_from_config(config_dict(LIGHTNING, key_style=key_style, torch_dtype="bfloat16"))
    assert spec.num_hidden_layers == 52
    assert {kind: len(spec.layers_of(kind)) for kind in "ME*-"} == {  # type: ignore[arg-type]
        "M": 23,
        "E": 23,
        "*": 6,
        "-": 0,
    }
    assert spec.layers_of("*") == (5, 12, 19, 26, 33, 42)
    assert spec.pattern == LIGHTNING.pattern
    assert (spec.d_inner, spec.conv_dim, spec.in_proj_dim) == (4096, 6144, 10304)
    assert spec.kv_bytes_per_token(2) == 6144
    assert spec.kv_bytes_per_token(1) == 3072
    assert spec.state_bytes(conv_element_bytes=0) == 48_234_496
    assert spec.state_bytes(4, 2) - spec.state_bytes(4, 0) == 847_872
    assert spec.eos_token_ids == (2,)
    assert spec.time_step_limit == (0.0, math.inf)


def test_both_ways_to_name_layers_are_one() -> None:
    blocks = config_dict(Dims(), key_style="layers_block_type", torch_dtype="float32")
    assert spec_from_config(blocks) == spec_from_config(config())
    both = config(layers_block_type=[BLOCK_NAMES[kind] for kind in PATTERN])
    assert spec_from_config(both) == spec_from_config(config())


def test_the_names_transformers_gives_layers() -> None:
    names = ["linear_attention", "full_attention", "moe", "mlp", "mamba", "attention"]
    changed = config(
        hybrid_override_pattern=..., layers_block_type=names, num_hidden_layers=len(names)
    )
    assert spec_from_config(changed).pattern == "M*E-M*"


@pytest.mark.parametrize(
    ("key", "older"),
    [
        ("n_groups", "mamba_n_groups"),
        ("conv_kernel", "mamba_d_conv"),
        ("use_conv_bias", "mamba_conv_bias"),
        ("layer_norm_epsilon", "norm_eps"),
        ("head_dim", "attention_head_dim"),
    ],
)
def test_older_names(key: str, older: str) -> None:
    value = {"use_conv_bias": False, "layer_norm_epsilon": 0.25, "n_groups": 1}.get(key, 2)
    renamed = spec_from_config(config(**{key: ..., "norm_eps": ..., older: value}))
    assert getattr(renamed, key) == value
    assert getattr(spec_from_config(config()), key) != value


@pytest.mark.parametrize(
    "limit", [None, [0.0, math.inf], [0.0, "Infinity"], [0, {"__float__": "Infinity"}]]
)
def test_infinity_is_written_in_several_ways(limit: Any) -> None:
    assert spec_from_config(config(time_step_limit=limit)).time_step_limit == (0.0, math.inf)


def test_layers_that_are_not_there_need_no_dimensions() -> None:
    names = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
    attention = ("num_attention_heads", "num_key_value_heads")
    without = dict.fromkeys((*names, *attention), ...)
    spec = spec_from_config(config(hybrid_override_pattern="M-", num_hidden_layers=2, **without))
    assert (spec.n_routed_experts, spec.num_attention_heads) == (0, 0)
    assert spec.kv_bytes_per_token(2) == 0


@pytest.mark.parametrize(("value", "ids"), [(None, ()), (2, (2,)), ([2, 11], (2, 11)), ([], ())])
def test_token_ids(value: object, ids: tuple[int, ...]) -> None:
    assert token_ids(value) == ids


def test_several_stop_tokens() -> None:
    spec = spec_from_config(config(eos_token_id=[2, 11], bos_token_id=None))
    assert (spec.eos_token_ids, spec.bos_token_id) == ((2, 11), None)


# -- what is refused


def test_no_config_json(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json in") as caught:
        load_spec(tmp_path)
    assert str(tmp_path) in caught.value.message
    assert caught.value.hint == "pass the folder that holds config.json"


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"a": 1,}', b"\xff\xfe{", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_config_json_is_not_json(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON") as caught:
        load_spec(tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["[]", "3", '"nemotron_h"', "null"])
def test_config_json_is_no_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match="does not hold a JSON object"):
        load_spec(tmp_path)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "llama"),
        ({"model_type": ..., "architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"model_type": ..., "architectures": "GPT2LMHeadModel"}, "GPT2LMHeadModel"),
        ({"model_type": ..., "architectures": ...}, "unnamed"),
    ],
)
def test_unknown_architecture(changes: dict[str, Any], name: str) -> None:
    error = refused(**changes)
    assert error.message == f"architecture {name!r} is not supported"
    assert "Nemotron 3" in error.hint


def test_either_name_of_the_architecture_will_do() -> None:
    spec = spec_from_config(config())
    assert spec_from_config(config(model_type=...)) == spec
    assert spec_from_config(config(architectures=...)) == spec


@pytest.mark.parametrize("pattern", ["MEX", "", "mem", 5, ["M"], {"M": 1}])
def test_unknown_layer_kinds_in_a_pattern(pattern: Any) -> None:
    error = refused(hybrid_override_pattern=pattern)
    assert f"hybrid_override_pattern {pattern!r} holds unknown layer kinds" in error.message
    assert "M Mamba-2, E experts, * attention, - dense MLP" in error.cause


@pytest.mark.parametrize(
    ("blocks", "named"),
    [(["mamba", "conv", "rwkv"], "conv, rwkv"), ([], "empty"), ("mamba", "empty"), ([1], "1")],
)
def test_unknown_layer_kinds_in_a_list(blocks: Any, named: str) -> None:
    error = refused(hybrid_override_pattern=..., layers_block_type=blocks)
    assert "layers_block_type holds unknown layer kinds" in error.message
    assert named in error.message
    assert "mamba" in error.cause


def test_pattern_and_list_disagree() -> None:
    error = refused(layers_block_type=["mamba"] * 6)
    assert "hybrid_override_pattern and layers_block_type disagree" in error.message
    assert error.hint


def test_neither_pattern_nor_list() -> None:
    error = refused(hybrid_override_pattern=...)
    assert "neither hybrid_override_pattern nor layers_block_type" in error.message
    assert error.hint


@pytest.mark.parametrize("count", [5, 7, "6"])
def test_num_hidden_layers_disagrees(count: Any) -> None:
    error = refused(num_hidden_layers=count)
    assert error.message == f"config.json says num_hidden_layers {count}, but its pattern has 6"
    assert error.hint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": ...}, "no 'vocab_size'"),
        ({"mamba_num_heads": ...}, "no 'mamba_num_heads'"),
        ({"n_routed_experts": ...}, "no 'n_routed_experts'"),
        ({"hidden_size": "64"}, "hidden_size is '64', not a size"),
        ({"hidden_size": -64}, "hidden_size is -64"),
        ({"hidden_size": 64.0}, "hidden_size is 64.0"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 0}, "must be positive"),
        ({"layer_norm_epsilon": "small"}, "layer_norm_epsilon is 'small', not a number"),
        ({"layer_norm_epsilon": math.nan}, "layer_norm_epsilon is nan"),
        ({"routed_scaling_factor": 10**400}, "not a number"),
        ({"ssm_state_size": 0}, "Mamba dimensions must be positive"),
        ({"n_groups": 3}, "4 Mamba heads do not divide into 3 groups"),
        ({"conv_kernel": 1}, "conv_kernel 1 leaves no convolution state"),
        ({"time_step_limit": [0.001, math.inf]}, "clamps the step"),
        ({"time_step_limit": [0.0, 0.1]}, "clamps the step"),
        ({"time_step_limit": [0.0]}, "not a pair"),
        ({"time_step_limit": ["low", "high"]}, "holds 'low'"),
        ({"head_dim": 0}, "attention dimensions must be positive"),
        ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads"),
        ({"num_experts_per_tok": 0}, "0 of 8 experts per token"),
        ({"num_experts_per_tok": 9}, "9 of 8 experts per token"),
        ({"n_group": 3}, "8 experts do not divide into 3 groups"),
        ({"n_group": 2, "topk_group": 3}, "topk_group 3 of n_group 2"),
        ({"n_group": 8, "topk_group": 8}, "two best experts"),
        ({"n_group": 4, "topk_group": 1, "num_experts_per_tok": 3}, "from 2 reachable ones"),
        ({"n_shared_experts": 2}, "n_shared_experts 2: at most one"),
        ({"moe_latent_size": 64}, "moe_latent_size is set"),
        ({"use_bias": True}, "use_bias is true"),
        ({"attention_bias": True}, "attention_bias is true"),
        ({"mlp_hidden_act": "silu"}, "mlp_hidden_act is 'silu'"),
        ({"mamba_hidden_act": "gelu"}, "mamba_hidden_act is 'gelu'"),
        ({"eos_token_id": "</s>"}, "token ids '</s>'"),
        ({"eos_token_id": [1, "x"]}, "are not integers"),
        ({"pad_token_id": "<pad>"}, "pad_token_id is '<pad>'"),
    ],
)
def test_dimensions_that_make_no_model(changes: dict[str, Any], message: str) -> None:
    assert message in refused(**changes).message


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.integers(-4, 300)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["M", "E*", "Infinity", "mamba", "relu2"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(sorted(config())), VALUES, min_size=1, max_size=4))
def test_no_configuration_is_anything_but_read_or_refused(changes: dict[str, Any]) -> None:
    text = json.dumps(config(**changes))
    try:
        spec = spec_from_config(json.loads(text))
    except CheckpointError:
        return
    assert isinstance(spec, ModelSpec)
    assert spec.num_hidden_layers == len(spec.pattern) > 0
