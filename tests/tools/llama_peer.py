"""llama.cpp through the `xllamacpp` wheel: greedy tokens and log-probabilities, one thread.

By default the KV cache is float32 and flash attention off, so that differences from the
transformers reference are rounding alone. Prompt caches and checkpoints are off: each call starts
from nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xllamacpp


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One greedy generation.

    `top[i]` holds (token id, natural log-probability) pairs for position i, best first; it is
    shorter than `tokens` where llama.cpp joined the pieces of a UTF-8 character.
    """

    tokens: list[int]
    text: str
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)


class LlamaPeer:
    """A GGUF file loaded into llama.cpp with one compute thread.

    `exact=False` leaves the KV type and attention kernel at llama.cpp's own choice, for timing.
    """

    def __init__(self, gguf_path: str | Path, *, context: int = 2048, exact: bool = True) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(gguf_path)
        params.n_ctx = context
        params.n_parallel = 1
        params.n_threads_http = 1
        params.cpuparams.n_threads = 1
        params.cpuparams_batch.n_threads = 1
        if exact:
            params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
            params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
            params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.fit_params = False
        params.warmup = False
        params.cache_ram_mib = 0
        params.n_ctx_checkpoints = 0
        params.verbosity = 0
        started = time.perf_counter()
        self._server: Any = xllamacpp.Server(params)
        self.load_seconds = time.perf_counter() - started

    def greedy(self, token_ids: Sequence[int], n: int, *, top: int = 5) -> PeerResult:
        """`n` greedy tokens after `token_ids`, never stopping early.

        Token ids come only from the native endpoint of the server that the wheel embeds.
        """
        answer = self._post(
            "/completion", greedy_request(token_ids, n) | {"return_tokens": True, "n_probs": top}
        )
        return PeerResult(
            tokens=answer["tokens"],
            text=answer["content"],
            top=[
                [(item["id"], item["logprob"]) for item in position["top_logprobs"]]
                for position in answer.get("completion_probabilities", [])
            ],
            timings=answer["timings"],
        )

    def tokenize(self, text: str) -> list[int]:
        """Token ids of `text`, special tokens included, no beginning-of-text token added."""
        answer = self._post("/tokenize", {"content": text, "parse_special": True})
        return list(answer["tokens"])

    def timed(self, token_ids: Sequence[int], n: int) -> dict[str, float]:
        """Run greedy decoding in process, no HTTP and no probabilities; llama.cpp's timings."""
        answer = self._server.handle_completions(greedy_request(token_ids, n))
        timings: dict[str, float] = answer["timings"]
        return timings

    def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        import urllib.request  # 10 MiB that a memory measurement must not see

        request = urllib.request.Request(
            self._server.listening_address + route,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


def greedy_request(token_ids: Sequence[int], n: int) -> dict[str, Any]:
    """The request for `n` arg-max tokens with the cheapest sampler chain."""
    return {
        "prompt": list(token_ids),
        "n_predict": n,
        "temperature": 0.0,
        "top_k": 1,
        "samplers": ["top_k"],
        "ignore_eos": True,
        "cache_prompt": False,
    }
