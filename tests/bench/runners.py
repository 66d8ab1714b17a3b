"""What is compared: edgekit, llama.cpp and transformers behind one interface, greedy, one thread.

Imports happen inside `load`, so that a measured process holds only the peer that it measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol


class Runner(Protocol):
    """One model loaded in one runtime."""

    def load(self, path: Path, context: int) -> None:
        """Open the model at `path` with room for `context` tokens."""

    def run(self, token_ids: Sequence[int], n: int) -> int:
        """Prefill `token_ids` afresh, decode up to `n` greedy tokens, return how many came."""

    def tokens(self, token_ids: Sequence[int], n: int) -> list[int]:
        """Up to `n` greedy tokens; not timed."""


class EdgekitRunner:
    """edgekit's session and greedy sampler, which run past end-of-text as the peer does here."""

    def load(self, path: Path, context: int) -> None:
        from edgekit.bundle import Bundle
        from edgekit.runtime.events import SamplingParams
        from edgekit.runtime.executors import open_session
        from edgekit.runtime.sampling import Sampler
        from edgekit.runtime.session import prefill

        self._session = open_session(Bundle.open(path), threads=1)
        if self._session.capacity < context:
            raise SystemExit(f"the bundle's context is below {context}: build it with more")
        self._prefill = prefill
        self._sampler = partial(Sampler, SamplingParams(temperature=0.0), self._session.vocab_size)

    def run(self, token_ids: Sequence[int], n: int) -> int:
        return len(self.tokens(token_ids, n))

    def tokens(self, token_ids: Sequence[int], n: int) -> list[int]:
        session, sampler = self._session, self._sampler()
        session.reset()
        sampler.observe_prompt(token_ids)
        found = [sampler.sample(self._prefill(session, token_ids))]
        while len(found) < n:
            sampler.observe(found[-1])
            found.append(sampler.sample(session.step(found[-1:]).logits[-1]))
        return found


class LlamaRunner:
    """llama.cpp through the xllamacpp wheel, with its default KV cache and attention."""

    def load(self, path: Path, context: int) -> None:
        from tests.tools.llama_peer import LlamaPeer

        self._peer = LlamaPeer(path, context=context, exact=False)

    def run(self, token_ids: Sequence[int], n: int) -> int:
        return int(self._peer.timed(token_ids, n)["predicted_n"])

    def tokens(self, token_ids: Sequence[int], n: int) -> list[int]:
        return self._peer.greedy(token_ids, n, top=0).tokens


class TransformersRunner:
    """transformers in float32 from the checkpoint's folder, its PyTorch code and `generate`."""

    def load(self, path: Path, context: int) -> None:
        from tests.tools.hf_reference import HfReference

        self._reference = HfReference(path)  # its cache grows: `context` needs no room

    def run(self, token_ids: Sequence[int], n: int) -> int:
        return len(self.tokens(token_ids, n))

    def tokens(self, token_ids: Sequence[int], n: int) -> list[int]:
        return self._reference.generate(token_ids, n)


RUNNERS: dict[str, type[EdgekitRunner] | type[LlamaRunner] | type[TransformersRunner]] = {
    "edgekit": EdgekitRunner,
    "xllamacpp": LlamaRunner,
    "transformers": TransformersRunner,
}
