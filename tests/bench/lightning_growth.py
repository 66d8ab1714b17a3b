"""How a full-size Lightning's time and memory grow with the context, on this machine's GPU.

    python -m tests.bench.lightning_growth [--context N] [--json FILE]

Synthetic weights. Decode steps are replays of their CUDA graph, prefill is the session's own
`step`, host included. Memory is what the driver says was taken since before the process used the
GPU, beside what `edgekit plan` says without snapshots, of which the session takes none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.runtime.executors.plugin import PluginSession
from tests.bench.lightning_decode import ACTIVE_BYTES, SyntheticDevice
from tests.tools import gpu
from tests.tools.lightning_quantization import LIGHTNING
from tests.tools.synthetic_session import synthetic_bundle

CHUNK = 2048
DEPTHS = (1024, 4096, 16384, 65536)


def taken() -> int:
    """Bytes of the GPU in use, by anybody."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, check=True, capture_output=True, text=True).stdout) << 20


def planned(context: int) -> int:
    """Bytes that the plan counts, less snapshots."""
    ask = ["plan", "lightning", "--device", "gpu", "--context", str(context)]
    ask += ["--prefill-chunk", str(CHUNK), "--snapshots", "0", "--json"]
    call = [sys.executable, "-c", "from edgekit.cli import main; main()", *ask]
    record = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    return int(record["needed"])


def measure(folder: Path, context: int) -> dict[str, Any]:
    plan, before = planned(context), taken()
    bundle, places = synthetic_bundle(folder, LIGHTNING, context)
    device = SyntheticDevice(places)
    session = PluginSession(bundle, device)
    tokens = np.random.default_rng(0).integers(0, LIGHTNING.vocab_size, CHUNK).tolist()
    session.step(tokens)  # captures its graph
    session.reset()
    prefill: dict[int, float] = {}
    decode: dict[int, float] = {}
    spent = 0.0
    for depth in (depth for depth in DEPTHS if depth < context):
        while session.length < depth:
            count = min(CHUNK, depth - session.length)
            started = time.perf_counter()
            session.step(tokens[:count])
            spent += time.perf_counter() - started
        prefill[depth] = spent
        session.step(tokens[:1])
        decode[depth] = 1e3 * device.seconds(session.program("step", 1, 1))
    memory = taken() - before
    session.close()
    return {
        "context": context,
        "planned_bytes": plan,
        "taken_bytes": memory,
        "prefill_seconds": prefill,
        "decode_ms": decode,
        "floor_ms": 1e3 * ACTIVE_BYTES / gpu.copy_bandwidth(),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--context", type=int, default=131072)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), arguments.context)
    share = result["taken_bytes"] / result["planned_bytes"]
    print(f"context {result['context']}: planned {result['planned_bytes'] / 1e9:.3f} GB")
    print(f"taken {result['taken_bytes'] / 1e9:.3f} GB, {share:.3f} of the plan")
    for depth, milliseconds in result["decode_ms"].items():
        seconds = result["prefill_seconds"][depth]
        print(f"  {depth:6} tokens: prompt {seconds:.3f} s, decode {milliseconds:.3f} ms")
    print(f"floor {result['floor_ms']:.3f} ms")
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
