"""What building an engine of a checkpoint costs: memory, disk, time.

    python -m tests.bench.engine_memory CHECKPOINT FOLDER [--sm 121] [--context 8192] [--chunk 512]

Lowers with `standard`, writes the graph and its weights to FOLDER and builds the plan there, as
`edgekit build` does, without the rest of a bundle. FOLDER is removed at the end.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from pathlib import Path

from edgekit.export.checkpoint import Checkpoint
from edgekit.export.engine import EngineRequest, build_engine
from edgekit.export.engines import profiles
from edgekit.export.graph.nemotron_h import build_step
from edgekit.export.lower import standard
from edgekit.export.weights import save_graph, write_weights


class Disk:
    """The most bytes that a folder took while a block ran."""

    def __init__(self, folder: Path) -> None:
        self.peak = 0
        self._folder, self._done = folder, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Disk:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            blocks = 0
            for path in self._folder.iterdir():
                try:
                    blocks += path.stat().st_blocks
                except FileNotFoundError:  # renamed meanwhile
                    continue
            self.peak = max(self.peak, 512 * blocks)


def main() -> None:
    """Builds, and prints one line."""
    parser = argparse.ArgumentParser(prog="tests.bench.engine_memory", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sm", type=int, default=121)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=512)
    flags = parser.parse_args()
    checkpoint = Checkpoint.open(flags.checkpoint)
    model = standard.lower(build_step(checkpoint), checkpoint.spec, flags.context, "bfloat16")
    flags.folder.mkdir(parents=True)
    try:
        started = time.monotonic()
        weights = write_weights([model], flags.folder / "weights.bin", "weights.bin")
        save_graph(model, flags.folder / "step.onnx")
        written = time.monotonic() - started
        request = EngineRequest(
            "tensorrt-rtx",
            flags.folder / "step.onnx",
            flags.folder / "step.plan",
            flags.sm,
            profiles("step", flags.chunk),
            frozenset(str(form) for form in checkpoint.formats.values()),
            weights.nbytes,
        )
        with Disk(flags.folder) as disk:
            report = build_engine(request)
        print(
            f"{len(checkpoint.spec.pattern)} layers, weights {weights.nbytes / 1e9:.3f} GB in "
            f"{written:.0f} s; memory {report.peak_bytes / 1e9:.3f} GB, "
            f"plan {report.nbytes / 1e9:.3f} GB, disk {disk.peak / 1e9:.3f} GB, "
            f"{report.layers} engine layers, {report.seconds:.0f} s"
        )
    finally:
        shutil.rmtree(flags.folder)


if __name__ == "__main__":
    main()
