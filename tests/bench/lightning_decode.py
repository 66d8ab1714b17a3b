"""Times a full-size Lightning with synthetic weights on this machine's GPU.

    python -m tests.bench.lightning_decode [--context N] [--json FILE]

Decode and verify steps are replays of their CUDA graphs, whose weights exceed every cache; prefill
is the session's own `step`, host included. The breakdown replays the launches of one kind alone, so
that what overlaps in a step is not seen. `floor` is the weights that one token reads over the copy
bandwidth of the same run.
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

from edgekit.export.plugins.compile import compile_kernels
from edgekit.kernels.launch import Kernel
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.program import Call, View
from edgekit.runtime.executors.torch import TorchDevice
from tests.tools import gpu
from tests.tools.lightning_quantization import LIGHTNING
from tests.tools.synthetic_session import fill, synthetic_bundle

ACTIVE_BYTES = 2.42e9
"""Weights that one token of Lightning reads: NVFP4 experts and head, FP8 Mamba, bfloat16 rest."""

PROMPT = 2048


class SyntheticDevice(TorchDevice):
    """A GPU that makes the weights instead of reading them, and compiles the kernels it meets."""

    def __init__(self, places: dict[str, View]) -> None:
        import torch

        major, minor = torch.cuda.get_device_capability()
        self._sm = 10 * major + minor
        self._places = places
        self.programs: list[Sequence[Call]] = []
        self._generator = torch.Generator(device="cuda").manual_seed(0)
        super().__init__(self._compile)

    def _compile(self, kernel: Kernel) -> bytes:
        return compile_kernels([kernel], self._sm)[0].path.read_bytes()

    def write_file(self, memory: Any, path: Path) -> None:
        with self._on_stream():
            fill(self._places, memory, self)
        self._synchronize()

    def normal(self, view: View, mean: float, deviation: float) -> None:
        values = _raw(view).view(getattr(self._torch, view.dtype))
        values.normal_(mean, deviation, generator=self._generator)

    def random_bytes(self, view: View) -> None:
        _raw(view).random_(0, 256, generator=self._generator)

    def ready(self, calls: Sequence[Call]) -> Callable[[], None]:
        self.programs.append(calls)
        return super().ready(calls)

    def seconds(self, run: Callable[[], None], repeats: int = 50) -> float:
        """Of one run, on the device."""
        torch = self._torch
        for _ in range(3):
            run()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(self._stream)
        for _ in range(repeats):
            run()
        end.record(self._stream)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / repeats


def _raw(view: View) -> Any:
    return view.memory[view.offset : view.offset + view.nbytes]


def breakdown(
    device: SyntheticDevice, calls: Sequence[Call], repeats: int = 20
) -> dict[str, tuple[int, float]]:
    """Launches and seconds of each kind of node."""
    kinds = dict.fromkeys(call.node.op for call in calls)
    found = {}
    for kind in kinds:
        own = [call for call in calls if call.node.op == kind]
        found[kind] = (len(own), device.seconds(device.ready(own), repeats))
    return found


def measure(folder: Path, context: int) -> dict[str, Any]:
    bundle, places = synthetic_bundle(folder, LIGHTNING, context)
    device = SyntheticDevice(places)
    session = PluginSession(bundle, device)
    random = np.random.default_rng(0)
    tokens = random.integers(0, LIGHTNING.vocab_size, PROMPT + 8).tolist()
    bandwidth = gpu.copy_bandwidth()

    session.step(tokens[:PROMPT])  # captures its graph
    prefill_calls = device.programs[-1]
    prefill = {}
    for T in (PROMPT, 512, 64):
        session.reset()
        started = time.perf_counter()
        session.step(tokens[:T])
        prefill[T] = T / (time.perf_counter() - started)
    session.reset()
    session.step(tokens[:PROMPT])

    session.step(tokens[PROMPT : PROMPT + 1])
    decode_calls = device.programs[-1]
    result: dict[str, Any] = {
        "copy_bandwidth": bandwidth,
        "floor_ms": ACTIVE_BYTES / bandwidth * 1e3,
        "prefill_tokens_per_second": prefill,
        "decode_ms": 1e3 * device.seconds(session.program("step", 1, 1)),
        "breakdown": breakdown(device, decode_calls),
        "prefill_breakdown": breakdown(device, prefill_calls, 2),
    }
    for T in (4, 8):
        session.verify(tokens[PROMPT : PROMPT + T])
        session.commit(0)
        result[f"verify_{T}_ms"] = 1e3 * device.seconds(session.program("verify", T, T))
    session.close()
    return result


def report(result: dict[str, Any]) -> None:
    print(f"copy bandwidth {result['copy_bandwidth'] / 1e12:.2f} TB/s")
    decode = result["decode_ms"]
    print(f"decode {decode:.3f} ms a token, floor {result['floor_ms']:.3f} ms")
    for T in (4, 8):
        verify = result[f"verify_{T}_ms"]
        print(f"verify T={T} {verify:.3f} ms, {verify / decode:.2f} x")
    for T, rate in result["prefill_tokens_per_second"].items():
        print(f"prefill of {T} tokens: {rate:.0f} tokens/s")
    for name in ("breakdown", "prefill_breakdown"):
        print("one token" if name == "breakdown" else f"{PROMPT} tokens")
        for kind, (launches, seconds) in result[name].items():
            print(f"  {kind:18} {launches:4} launches {seconds * 1e3:8.3f} ms")


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
