"""Runs NVIDIA ModelOpt on one checkpoint, in a process of its own.

    python -m edgekit.export.quantize.modelopt CHECKPOINT RECIPE OUT [--calib FILE]

A process, because an exception inside ModelOpt leaves torch's `F.linear` replaced. Only its public
entries are used: `load_recipe`, `mtq.quantize`, `export_hf_checkpoint`. Standard output carries
one JSON object a line: {"type": "progress" | "report" | "error", ...}.

What ModelOpt 0.47 leaves undone with transformers 5 is done here: NVFP4 without a GPU
(`modelopt_cpu`), layer names with a NUL in both JSON files, `mtp.*`, which transformers drops on
load, and the count of experts that the calibration texts did not reach.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from edgekit.errors import BuildError, CheckpointError, EdgekitError, MissingDependencyError
from edgekit.export.checkpoint import Checkpoint
from edgekit.export.quantize.calibration import read_texts
from edgekit.export.quantize.mend import mend
from edgekit.export.quantize.plan import WeightPlan, plan_weights
from edgekit.export.quantize.rules import read_rules, weight_quantizer
from edgekit.safetensors import INDEX, read_folder

TOKENS = 512
"""Most tokens of one calibration text."""


def quantize(checkpoint: Path, source: str, out: Path, calib: Path | None, events: TextIO) -> None:
    """Quantizes `checkpoint` into the new folder `out`; see the module.

    Args:
        source: a recipe's file, or its name in ModelOpt's library.
    """
    _require()
    import modelopt.torch.quantization as mtq
    import torch
    from modelopt.recipe import load_recipe
    from modelopt.torch.export import export_hf_checkpoint

    opened = Checkpoint.open(checkpoint)
    path = Path(source)
    plan = plan_weights(read_rules(path if path.is_file() else source), opened.spec)
    if not torch.cuda.is_available():
        from edgekit.export.quantize.modelopt_cpu import install

        install()
    samples = list(_tokens(checkpoint, read_texts(calib), opened.spec.vocab_size))
    model = _load(checkpoint)
    counts = _count_experts(model)

    def forward(model: Any) -> None:
        with torch.inference_mode():
            for i, ids in enumerate(samples):
                model(input_ids=ids.to(model.device), use_cache=False)
                _emit(events, "progress", done=i + 1, total=len(samples))

    mtq.quantize(model, load_recipe(source).quantize.model_dump(), forward)
    _check_quantizers(model, plan)
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    export_hf_checkpoint(model, export_dir=part, extra_state_dict=_mtp(opened))
    _complete(checkpoint, part)
    Checkpoint.open(part)
    part.rename(out)
    unreached = {
        layer: [e for e, n in enumerate(c.tolist()) if n == 0] for layer, c in counts.items()
    }
    _emit(
        events,
        "report",
        texts=len(samples),
        tokens=sum(ids.shape[1] for ids in samples),
        experts=sum(len(c) for c in counts.values()),
        unreached={layer: missing for layer, missing in unreached.items() if missing},
    )


def _require() -> None:
    try:
        import modelopt.torch.quantization  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "this recipe needs NVIDIA ModelOpt, which is not installed",
            cause=str(error),
            hint="pip install 'edgekit-nemotron[quantize]', or set activations: ignored in the "
            "recipe",
        ) from None


def _load(checkpoint: Path) -> Any:
    import torch
    import transformers

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count() or 1)
    auto: Any = transformers.AutoModelForCausalLM
    model: Any = auto.from_pretrained(str(checkpoint), dtype="auto")
    if torch.cuda.is_available():
        model = model.to("cuda")
    if "moe" in getattr(model.config, "layers_block_type", ()):
        model.set_experts_implementation("eager")  # the only one ModelOpt sees experts in
    model.config.architectures = ["NemotronHForCausalLM"]  # ModelOpt's export iterates over it
    return model.eval()


def _tokens(checkpoint: Path, texts: list[str], vocabulary: int) -> Iterator[Any]:
    import torch
    from tokenizers import Tokenizer

    path = checkpoint / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(
            f"no tokenizer.json in {checkpoint}",
            cause="calibration runs text through the model",
            hint="download it, or set activations: ignored in the recipe",
        )
    tokenizer = Tokenizer.from_file(str(path))
    for text in texts:
        ids = [i for i in tokenizer.encode(text).ids[:TOKENS] if i < vocabulary]
        if ids:
            yield torch.tensor([ids])


def _count_experts(model: Any) -> dict[str, Any]:
    """Tokens routed to each expert, filled while the model runs: counts [E] by layer."""
    import torch

    counts: dict[str, Any] = {}
    for name, module in model.named_modules():
        if not name.endswith(".mixer.experts"):
            continue
        counts[name] = torch.zeros(module.num_experts, dtype=torch.int64)

        def hook(
            _: Any, inputs: tuple[Any, ...], kwargs: Mapping[str, Any], at: str = name
        ) -> None:
            for value in (*inputs, *kwargs.values()):
                if isinstance(value, torch.Tensor) and not value.is_floating_point():
                    found = value.reshape(-1).cpu()
                    counts[at] += torch.bincount(found, minlength=len(counts[at]))
                    return

        module.register_forward_pre_hook(hook, with_kwargs=True)
    return counts


def _check_quantizers(model: Any, plan: WeightPlan) -> None:
    """Every weight the recipe quantizes has a live, calibrated quantizer, and no other has one.

    Raises:
        BuildError: ModelOpt quantized something else than the recipe says.
    """
    live = {
        name
        for name, module in model.named_modules()
        if "weight_quantizer" in name and getattr(module, "is_enabled", False)
    }
    wanted = {weight_quantizer(module)[0] for module in plan.modules}
    if live != wanted:
        example = sorted(live ^ wanted)[0]
        raise BuildError(
            f"ModelOpt quantized {len(live)} weights where the recipe has {len(wanted)}",
            cause=f"for example {example}",
            hint="pip install 'nvidia-modelopt==0.47.0', the version edgekit was tested with",
        )


def _mtp(checkpoint: Checkpoint) -> dict[str, Any]:
    """The multi-token-prediction tensors, which transformers does not load."""
    import torch

    found = {}
    for name, entry in checkpoint.tensors.items():
        if name.startswith("mtp."):
            array = entry.read()
            if str(entry.dtype) == "bfloat16":
                bits = torch.from_numpy(array.view("uint16").copy())
                found[name] = bits.view(torch.bfloat16).reshape(entry.shape)
            else:
                found[name] = torch.from_numpy(array.copy())
    return found


def _complete(checkpoint: Path, folder: Path) -> None:
    """Mends the names in both JSON files, and takes the other files from the source."""
    tensors = read_folder(folder)
    modules = {name.rpartition(".")[0] for name in tensors}
    declared = mend(json.loads((folder / "hf_quant_config.json").read_text()), modules)
    (folder / "hf_quant_config.json").write_text(json.dumps(declared, indent=1) + "\n")
    exported = json.loads((folder / "config.json").read_text())
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = mend(exported["quantization_config"], modules)
    for file in checkpoint.iterdir():
        companion = file.is_file() and file.suffix in (".json", ".jinja", ".txt", ".model")
        if companion and file.name != INDEX and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def _emit(events: TextIO, kind: str, **fields: Any) -> None:
    events.write(json.dumps({"type": kind, **fields}) + "\n")
    events.flush()


def main() -> int:
    """The command line: events on standard output, everything libraries print on standard error."""
    parser = argparse.ArgumentParser(prog="edgekit.export.quantize.modelopt")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("recipe")
    parser.add_argument("out", type=Path)
    parser.add_argument("--calib", type=Path)
    flags = parser.parse_args()
    with os.fdopen(os.dup(1), "w") as events:
        os.dup2(2, 1)
        try:
            quantize(flags.checkpoint, flags.recipe, flags.out, flags.calib, events)
        except EdgekitError as error:
            _emit(events, "error", **error.as_dict())
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
