"""Write a GGUF of a NemotronH folder, F32 or Q4_0, so that llama.cpp can run the same weights.

Key names and tensor transforms are llama.cpp's for the architectures `nemotron_h_moe` and
`nemotron_h` (conversion/nemotron.py and src/models/nemotron-h.cpp of ggml-org/llama.cpp): a layer
is recurrent when its feed-forward length and KV head count are both 0, attention when only the
feed-forward length is. The `mtp.*` module is left out. Q4_0 is for every matrix that multiplies and
for the embedding; routers, convolutions and vectors stay F32, as in llama.cpp's own conversion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import gguf
import ml_dtypes  # noqa: F401 - gives NumPy the name bfloat16, which safetensors asks for
import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from tests.tools.gguf_vocab import add_vocabulary

Array = npt.NDArray[Any]

_KINDS = {
    "mamba": "M",
    "linear_attention": "M",
    "moe": "E",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
}
_TOP = {
    "backbone.embeddings.weight": "token_embd.weight",
    "backbone.norm_f.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "norm.weight": "attn_norm.weight",
    "mixer.in_proj.weight": "ssm_in.weight",
    "mixer.conv1d.weight": "ssm_conv1d.weight",
    "mixer.conv1d.bias": "ssm_conv1d.bias",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.dt_bias": "ssm_dt.bias",
    "mixer.norm.weight": "ssm_norm.weight",
    "mixer.out_proj.weight": "ssm_out.weight",
    "mixer.q_proj.weight": "attn_q.weight",
    "mixer.k_proj.weight": "attn_k.weight",
    "mixer.v_proj.weight": "attn_v.weight",
    "mixer.o_proj.weight": "attn_output.weight",
    "mixer.gate.weight": "ffn_gate_inp.weight",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mixer.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "mixer.up_proj.weight": "ffn_up.weight",
    "mixer.down_proj.weight": "ffn_down.weight",
}

_FILE_TYPES = {"F32": gguf.LlamaFileType.ALL_F32, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}
_MATRICES = (
    *("token_embd.weight", "output.weight", "ssm_in.weight", "ssm_out.weight"),
    *("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"),
    *("ffn_up_shexp.weight", "ffn_down_shexp.weight", "ffn_up_exps.weight"),
    *("ffn_down_exps.weight", "ffn_up.weight", "ffn_down.weight"),
)


def write_gguf(
    checkpoint_folder: str | Path, out_path: str | Path, weights: Literal["F32", "Q4_0"] = "F32"
) -> Path:
    """Write the float checkpoint in `checkpoint_folder` to `out_path`, matrices as `weights`."""
    folder, out = Path(checkpoint_folder), Path(out_path)
    config = json.loads((folder / "config.json").read_text())
    pattern = layer_pattern(config)
    if "E" in pattern and "-" in pattern:
        raise ValueError("llama.cpp has no architecture with both expert and dense layers")
    arch = "nemotron_h_moe" if "E" in pattern else "nemotron_h"
    writer = gguf.GGUFWriter(out, arch)
    _add_metadata(writer, config, pattern)
    writer.add_file_type(_FILE_TYPES[weights])
    add_vocabulary(writer, folder, config)
    experts: dict[str, dict[int, Array]] = {}
    for name, values in _read_tensors(folder):
        if name.startswith("mtp."):
            continue
        if ".mixer.experts." in name:
            head, _, tail = name.partition("experts.")
            number, _, projection = tail.partition(".")
            layer = head.split(".")[2]
            kind = "up" if projection.startswith("up") else "down"
            experts.setdefault(f"blk.{layer}.ffn_{kind}_exps.weight", {})[int(number)] = values
        else:
            _add_tensor(writer, _rename(name), _transform(name, values, config), weights)
    for name, by_number in experts.items():
        stacked = np.stack([by_number[number] for number in range(config["n_routed_experts"])])
        _add_tensor(writer, name, stacked, weights)  # [experts, out, in]
        by_number.clear()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: Array, weights: str) -> None:
    if weights == "F32" or not name.endswith(_MATRICES):
        writer.add_tensor(name, values)
        return
    kind = gguf.GGMLQuantizationType[weights]
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def layer_pattern(config: dict[str, Any]) -> str:
    """The layer kinds as a string over `M E * -`, from either config key."""
    if "hybrid_override_pattern" in config:
        return str(config["hybrid_override_pattern"])
    return "".join(_KINDS[name] for name in config["layers_block_type"])


def _add_metadata(writer: gguf.GGUFWriter, config: dict[str, Any], pattern: str) -> None:
    moe = "E" in pattern
    feed_forward = config["moe_intermediate_size"] if moe else config["intermediate_size"]
    writer.add_name("test checkpoint")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(len(pattern))
    writer.add_feed_forward_length([feed_forward if kind in "E-" else 0 for kind in pattern])
    writer.add_head_count(config["num_attention_heads"])
    kv_heads = config["num_key_value_heads"]
    writer.add_head_count_kv([kv_heads if kind == "*" else 0 for kind in pattern])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_time_step_rank(config["mamba_num_heads"])
    if moe:
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])


def _read_tensors(folder: Path) -> Iterator[tuple[str, Array]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                values = file.get_tensor(name)
                if values.dtype.itemsize < 2:
                    raise ValueError(f"{name}: {values.dtype} is quantized; only floats convert")
                yield name, np.ascontiguousarray(values, dtype=np.float32)


def _rename(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_LAYER[rest]}"


def _transform(name: str, values: Array, config: dict[str, Any]) -> Array:
    if name.endswith("mixer.A_log"):
        values = -np.exp(values).reshape(-1, 1)
    elif name.endswith("mixer.D"):
        values = values.reshape(-1, 1)
    elif name.endswith("mixer.norm.weight"):
        values = values.reshape(config["n_groups"], -1)
    elif name.endswith("mixer.conv1d.weight"):
        values = values.squeeze(1)  # [channels, kernel]
    return values
