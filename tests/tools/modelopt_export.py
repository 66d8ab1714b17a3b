"""What ModelOpt itself exports of a tiny NemotronH, as it comes: recorded for machines without it.

    python -m tests.tools.modelopt_export tests/export/modelopt_export

NVIDIA's recipe for Lightning, calibrated, through ModelOpt's public API and nothing of edgekit but
`modelopt_cpu`, which stands in for NVFP4's simulation where there is no GPU. Layer names keep the
NUL that ModelOpt 0.47 leaves in them, and the folder has no tokenizer.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.tools.random_checkpoint import write_random_checkpoint

RECIPE = "models/nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16/ptq/w4a16_nvfp4_4o6"
VOCABULARY = 512


def write_source(folder: Path) -> Path:
    """The checkpoint that is quantized: every kind of layer that Lightning has, in bfloat16."""
    return write_random_checkpoint(
        folder,
        pattern="ME*E",
        vocab_size=VOCABULARY,
        hidden_size=64,
        n_routed_experts=4,
        num_experts_per_tok=2,
        dtype="bfloat16",
    )


def export(folder: Path) -> Path:
    """Quantizes, calibrates and exports into the new `folder`."""
    import modelopt.torch.quantization as mtq
    import torch
    import transformers
    from modelopt.recipe import load_recipe
    from modelopt.torch.export import export_hf_checkpoint

    from edgekit.export.quantize.modelopt_cpu import install

    install()
    with tempfile.TemporaryDirectory() as source:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(write_source(Path(source))), dtype="auto"
        )
    model.set_experts_implementation("eager")
    model.config.architectures = ["NemotronHForCausalLM"]
    tokens = torch.arange(4 * 64).reshape(4, 64) * 7 % VOCABULARY

    def calibrate(model: torch.nn.Module) -> None:
        with torch.inference_mode():
            model(input_ids=tokens, use_cache=False)

    mtq.quantize(model.eval(), load_recipe(RECIPE).quantize.model_dump(), calibrate)
    export_hf_checkpoint(model, export_dir=folder)
    return folder


if __name__ == "__main__":
    export(Path(sys.argv[1]))
