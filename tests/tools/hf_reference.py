"""The transformers oracle: float32 logits and greedy tokens of a NemotronH folder, one thread.

transformers floors dt at `time_step_min` in its chunked prefill and not in its single step; the
published kernels use no floor, so `time_step_limit` is set to (0, inf) on every Mamba mixer.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Greedy:
    """Greedy tokens with, for each, the gap between the best and second-best logit."""

    tokens: list[int]
    margins: list[float]


class HfReference:
    """A NemotronH folder loaded into transformers in float32 with eager experts."""

    def __init__(self, folder: str | Path) -> None:
        torch: Any = importlib.import_module("torch")
        transformers: Any = importlib.import_module("transformers")
        torch.set_num_threads(1)
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        self._torch = torch
        self._new_cache = transformers.DynamicCache
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.float32, output_loading_info=True
            )
        self.loading_info: dict[str, Any] = info
        for layer in model.model.layers:
            if layer.block_type == "linear_attention":
                layer.mixer.time_step_limit = (0.0, math.inf)
        if model.config.n_routed_experts and "moe" in model.config.layers_block_type:
            model.set_experts_implementation("eager")
        self._model: Any = model.eval()

    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits [T, V] of one full forward pass over `token_ids` (T >= 1), no cache."""
        with self._torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ids = self._torch.tensor([list(token_ids)])
            out = self._model(input_ids=ids, use_cache=False).logits[0]
        result: npt.NDArray[np.float32] = out.numpy()
        return result

    def greedy(self, token_ids: Sequence[int], n: int) -> Greedy:
        """`n` greedy tokens after `token_ids`, by prefill and cached single steps; no stop."""
        torch = self._torch
        tokens: list[int] = []
        margins: list[float] = []
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cache = self._new_cache(config=self._model.config)
            ids = list(token_ids)
            while len(tokens) < n:
                out = self._model(input_ids=torch.tensor([ids]), cache=cache, use_cache=True)
                best, index = out.logits[0, -1].topk(2)
                tokens.append(int(index[0]))
                margins.append(float(best[0] - best[1]))
                ids = tokens[-1:]
        return Greedy(tokens, margins)

    def generate(self, token_ids: Sequence[int], n: int) -> list[int]:
        """`n` greedy tokens by transformers' own `generate` with its cache; no stop."""
        with self._torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ids = self._torch.tensor([list(token_ids)])
            out = self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                do_sample=False,
                use_cache=True,
                eos_token_id=None,
                max_new_tokens=n,
            )
        found: list[int] = out[0, len(token_ids) :].tolist()
        return found


def hf_logits(folder: str | Path, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """Float32 logits [T, V] of `token_ids` from transformers."""
    return HfReference(folder).logits(token_ids)


def hf_greedy(folder: str | Path, token_ids: Sequence[int], n: int) -> list[int]:
    """`n` greedy tokens after `token_ids` from transformers."""
    return HfReference(folder).greedy(token_ids, n).tokens
