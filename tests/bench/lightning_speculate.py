"""Times DSpark rounds of a full-size Lightning with synthetic weights on this machine's GPU.

    python -m tests.bench.lightning_speculate [--context N] [--json FILE]

The draft has the published dimensions and formats. Times are measured: a plain step, a round of k
drafted tokens on the device (draft, verify, choice), and both with their host (the tokens read, the
commit, the draft's context), greedily and drawn with top-p 0.95. Synthetic weights accept nothing,
so the speed-up is a cost model: the tokens that a round gives if each drafted token is kept with
one probability, which is chosen so that k = 7 gives the 3.75 tokens a round that NVIDIA publishes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.plugin_draft import PluginDraft
from edgekit.runtime.sampling import Sampler
from edgekit.runtime.session import Draw
from tests.bench.lightning_decode import PROMPT, SyntheticDevice
from tests.tools.lightning_quantization import LIGHTNING
from tests.tools.random_draft import draft_config
from tests.tools.synthetic_session import synthetic_bundle

PUBLISHED_TOKENS = 3.75
"""A round of DSpark with seven drafts, SPEED-Bench average of the model card."""

SAMPLER = Sampler(SamplingParams(temperature=1.0, top_p=0.95), LIGHTNING.vocab_size)

TAPS = [1, 5, 19, 29, 41, 51]


def published_config() -> dict[str, Any]:
    """The config of Lightning's published draft, as far as it says what to compute."""
    window = 1024
    inner = {"causal": True, "mask_token_id": 990, "swa_window_size": window, "use_swa": True}
    return draft_config(
        hidden_size=2688,
        intermediate_size=6144,
        num_hidden_layers=6,
        num_attention_heads=32,
        num_key_value_heads=2,
        head_dim=128,
        vocab_size=131072,
        layer_types=["sliding_attention"] * 6,
        sliding_window=window,
        mask_token_id=990,
        pard_token=990,
        target_layer_ids=TAPS,
        eagle_aux_hidden_state_layer_ids=[i + 1 for i in TAPS],
        dflash_config=inner | {"target_layer_ids": TAPS, "sample_from_anchor": False},
        dspark_markov_rank=512,
        markov_rank=512,
    )


def kept_share() -> float:
    """Probability p with 1 + p + ... + p^7 = PUBLISHED_TOKENS."""
    low, high = 0.0, 1.0
    for _ in range(60):
        p = (low + high) / 2
        low, high = (p, high) if sum(p**i for i in range(8)) < PUBLISHED_TOKENS else (low, p)
    return low


def measure(folder: Path, context: int) -> dict[str, Any]:
    bundle, places = synthetic_bundle(folder, LIGHTNING, context, published_config())
    device = SyntheticDevice(places)
    session = PluginSession(bundle, device)
    drafter = PluginDraft(session, bundle, bundle.manifest.drafts[0])
    tokens = np.random.default_rng(0).integers(0, LIGHTNING.vocab_size, PROMPT).tolist()
    started = time.perf_counter()
    output = session.step(tokens)
    prefilled = time.perf_counter()
    drafter.observe(tokens, output.taps)
    device._synchronize()
    result: dict[str, Any] = {
        "prefill_ms": 1e3 * (prefilled - started),
        "draft_prefill_ms": 1e3 * (time.perf_counter() - prefilled),
    }
    session.step((1,))
    drafter.observe((1,), None)
    result["decode_ms"] = 1e3 * device.seconds(session.program("step", 1, 1))
    result["host_drawn_ms"] = 1e3 * seconds(lambda: host_step(session, drafter))
    result["context_ms"] = 1e3 * device.seconds(drafter._program("context", 4, 0))
    for name, draw in (("greedy", None), ("drawn", Draw(1.0, 0, 0.95, 0.0, 1, drafts=True))):
        result[name] = rounds(device, session, drafter, name, draw)
    session.close()
    return result


def rounds(
    device: SyntheticDevice, session: PluginSession, drafter: PluginDraft, name: str, draw: Any
) -> dict[str, Any]:
    """A plain step and a round of each length, with the host's part of it."""

    def step() -> None:
        session.step_choose(2, draw)
        drafter.observe((2,), None)

    def one(k: int) -> None:
        drafter.round(2, k, draw)
        drafter.observe((2,), None)
        session.commit(1)

    plain = seconds(step)
    share, rows = kept_share(), []
    for k in range(1, 8):
        whole = seconds(lambda k=k: one(k))
        drafter.round(2, k, draw)
        session.commit(0)
        made = sum(share**i for i in range(k + 1))
        rows.append(
            {
                "k": k,
                "block_ms": 1e3 * device.seconds(drafter._program("block", k, 0), 20),
                "round_ms": 1e3 * device.seconds(drafter._program(name, k, 0), 20),
                "with_host_ms": 1e3 * whole,
                "modelled_tokens": made,
                "modelled_speedup": made * plain / whole,
            }
        )
    return {"plain_ms": 1e3 * plain, "rounds": rows}


def host_step(session: PluginSession, drafter: PluginDraft) -> None:
    """A sampled token as a host draws it from logits that it reads."""
    output = session.step((2,))
    SAMPLER.sample(output.logits[-1])
    drafter.observe((2,), None)


def seconds(run: Callable[[], Any], repeats: int = 30) -> float:
    """The median of runs, each waited for."""
    times = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return float(np.median(times[2:]))


def report(result: dict[str, Any]) -> None:
    print(f"prefill {result['prefill_ms']:.1f} ms, the draft's {result['draft_prefill_ms']:.1f} ms")
    print(f"plain step {result['decode_ms']:.3f} ms on the device", end="; ")
    print(f"drawn by the host {result['host_drawn_ms']:.3f} ms", end="; ")
    print(f"context {result['context_ms']:.3f} ms; kept share of the cost model {kept_share():.3f}")
    for name in ("greedy", "drawn"):
        print(f"{name}: plain with host {result[name]['plain_ms']:.3f} ms")
        for row in result[name]["rounds"]:
            print(
                f"  k={row['k']} block {row['block_ms']:.3f} ms, round {row['round_ms']:.3f} ms, "
                f"with host {row['with_host_ms']:.3f} ms, {row['modelled_tokens']:.2f} tokens: "
                f"{row['modelled_speedup']:.2f} x plain (cost model)"
            )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), arguments.context)
    report(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
