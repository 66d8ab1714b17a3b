"""One measurement from a bundle to its record."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.bundle import Bundle
from edgekit.doctor import Machine
from edgekit.runtime.bench.bandwidth import cpu_bandwidth, device_bandwidth
from edgekit.runtime.bench.case import Case
from edgekit.runtime.bench.environment import PowerLog, Sensors, Watch, environment_record
from edgekit.runtime.bench.measure import Measured, Sample, measure
from edgekit.runtime.bench.traffic import chunk_bytes, token_bytes, token_operations
from edgekit.runtime.model import Model, load_model

if TYPE_CHECKING:
    from edgekit.runtime.speculate.choose import Speculate


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure and how.

    Attributes:
        threads, speculate, draft_tokens: see `load_model`.
        bandwidth: of the device in bytes a second; None asks its profile or copies memory.
    """

    bundle: Path
    cases: tuple[Case, ...]
    repeats: int = 5
    warmup: int = 1
    threads: int | None = None
    speculate: Speculate = "off"
    draft_tokens: int | None = None
    bandwidth: float | None = None


def run_bench(
    request: BenchRequest,
    machine: Machine,
    sensors: Sensors,
    on_progress: Callable[[int, int, str], None] = lambda done, total, name: None,
) -> dict[str, Any]:
    """Loads the bundle, measures, and returns the record as JSON: seconds, bytes and watts unless
    a name says otherwise.

    Raises:
        BundleError, MissingDependencyError, BuildError, UsageError: see `load_model`.
        DoesNotFitError: a case is longer than the context.
    """
    bundle = Bundle.open(request.bundle)
    started = perf_counter()
    with load_model(
        request.bundle,
        threads=request.threads,
        prefix_bytes=0,
        speculate=request.speculate,
        draft_tokens=request.draft_tokens,
    ) as model:
        load_seconds = perf_counter() - started
        with Watch(sensors) as watch:
            measured = measure(
                model,
                request.cases,
                repeats=request.repeats,
                warmup=request.warmup,
                on_progress=on_progress,
            )
        memory = {"peak_rss": peak_rss(), "peak_device": _peak_device(bundle, model)}
        rate, source = _bandwidth(request, bundle, machine, model)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "bundle": {
            "name": request.bundle.name,
            "recipe": bundle.manifest.recipe,
            "lowering": bundle.manifest.lowering,
            "weights_format": bundle.manifest.weights_format,
            "context": bundle.manifest.context,
            "prefill_chunk": bundle.manifest.prefill_chunk,
            "bytes": bundle.manifest.nbytes,
        },
        "settings": {
            "repeats": request.repeats,
            "warmup": request.warmup,
            "threads": request.threads,
            "speculate": request.speculate,
            "draft_tokens": request.draft_tokens,
        },
        "environment": environment_record(bundle, machine, sensors, watch.looks),
        "load_seconds": load_seconds,
        **memory,
        "bandwidth": rate,
        "bandwidth_why": source,
        "results": [_result(one, bundle, rate, watch.power) for one in measured],
    }


def peak_rss() -> int | None:
    """Most bytes of memory that this process had at once."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _peak_device(bundle: Bundle, model: Model) -> int | None:
    store = _store(bundle, model)
    return store.peak_bytes() if store is not None else None


def _store(bundle: Bundle, model: Model) -> Any:
    """The device's memory, where edgekit's kernels run."""
    if bundle.manifest.lowering != "plugin":
        return None
    from edgekit.runtime.executors.plugin import PluginSession

    return model.session.device if isinstance(model.session, PluginSession) else None


def _bandwidth(
    request: BenchRequest, bundle: Bundle, machine: Machine, model: Model
) -> tuple[float | None, str | None]:
    """Bytes a second of the memory that holds the weights, and who says so."""
    if request.bandwidth is not None:
        return request.bandwidth, "--bandwidth"
    if bundle.manifest.executor == "onnxruntime-cpu":
        threads = request.threads or len(os.sched_getaffinity(0))
        return cpu_bandwidth(threads), f"a copy in memory, threads: {threads}"
    told = machine.profile.memory.bandwidth_gb_s
    if told is not None:
        return told.value * 1e9, f"profile {machine.profile.name}"
    store = _store(bundle, model)
    if store is not None:
        return device_bandwidth(store), "a copy in the GPU's memory"
    return None, None


def _result(one: Measured, bundle: Bundle, rate: float | None, power: PowerLog) -> dict[str, Any]:
    case, samples = one.case, one.samples
    is_prompt = case.kind == "prompt"
    seconds = [sample.seconds for sample in samples]
    moved = _bytes_per_token(one, bundle)
    speculation = _speculation(samples)
    speed = spread([case.tokens / value for value in seconds], 5)
    limit = rate / moved if rate is not None and not is_prompt and speculation is None else None
    joules = [power.joules(sample.started, sample.ended) for sample in samples]
    known = [value for value in joules if value is not None]
    latencies = [value for sample in samples for value in sample.tokens]
    return {
        "test": case.name,
        "kind": case.kind,
        "tokens": case.tokens,
        "depth": case.depth,
        "start": one.start,
        "tokens_per_second": speed | {"runs": [case.tokens / value for value in seconds]},
        "first_token_ms": spread([1e3 * s.first for s in samples], 95) if is_prompt else None,
        "token_ms": None if is_prompt else spread([1e3 * value for value in latencies], 95),
        "bytes_per_token": moved,
        "operations_per_token": token_operations(bundle),
        "limit_tokens_per_second": limit,
        "share_of_limit": speed["median"] / limit if limit is not None else None,
        "joules_per_token": sum(known) / (case.tokens * len(known)) if known else None,
        "speculation": speculation,
    }


def spread(values: Sequence[float], slow: int) -> dict[str, float]:
    """Median and the slow end: `slow` is 95 for times, and 5 for rates."""
    return {"median": float(np.median(values)), "p95": float(np.percentile(values, slow))}


def _bytes_per_token(one: Measured, bundle: Bundle) -> float:
    case = one.case
    if case.kind == "generation":
        return token_bytes(bundle, case.depth + one.start + case.tokens / 2)
    chunk, moved = bundle.manifest.prefill_chunk, 0.0
    for at in range(0, case.tokens, chunk):
        moved += chunk_bytes(bundle, min(chunk, case.tokens - at), case.depth + at)
    return moved / case.tokens


def _speculation(samples: Sequence[Sample]) -> dict[str, Any] | None:
    """What drafting did in all runs together; None without a generation that drafts."""
    stats = [sample.speculation for sample in samples if sample.speculation is not None]
    if not stats:
        return None
    rounds = sum(one.rounds for one in stats)
    plain = sum(one.plain_steps for one in stats)
    width = max(len(one.offered) for one in stats)
    offered, accepted = np.zeros(width, int), np.zeros(width, int)
    for one in stats:
        offered[: len(one.offered)] += one.offered
        accepted[: len(one.accepted)] += one.accepted
    return {
        "drafter": stats[0].drafter,
        "rounds": rounds,
        "plain_steps": plain,
        "tokens_per_round": 1 + float(accepted.sum()) / rounds if rounds else 1.0,
        "acceptance": [float(a / o) for a, o in zip(accepted, offered, strict=True)],
    }
