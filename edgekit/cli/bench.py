"""`edgekit bench`: how fast a bundle is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.cli.options import (
    EMBEDDED,
    Context,
    DraftTokens,
    Json,
    Speculate,
    Threads,
    bundles_dir,
    complete_bundle,
    globals_of,
)
from edgekit.cli.output import out
from edgekit.errors import UsageError
from edgekit.units import size_text

if TYPE_CHECKING:
    from edgekit.doctor import Machine

_MOST = 1 << 24
"""No context is longer."""


def bench(
    ctx: typer.Context,
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUNDLE]",
            autocompletion=complete_bundle,
            help="A bundle by name or path; the embedded model `nano` when left out.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", metavar="N,N", help="Prompt lengths; 0 is none.")
    ] = "512",
    gen: Annotated[
        str, typer.Option("--gen", "-n", metavar="N,N", help="Tokens to generate; 0 is none.")
    ] = "128",
    depth: Annotated[
        str,
        typer.Option("--depth", "-d", metavar="N,N", help="Tokens in the context before each."),
    ] = "0",
    speculate: Speculate = None,
    draft_tokens: DraftTokens = None,
    threads: Threads = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=1000, metavar="N", help="Timed runs of each.")
    ] = 5,
    warmup: Annotated[
        int, typer.Option("--warmup", min=0, max=1000, metavar="N", help="Runs before them.")
    ] = 1,
    context: Context = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            "--bandwidth",
            min=0.001,
            metavar="GB/S",
            help="The memory's; the device profile's or measured when left out.",
        ),
    ] = None,
    old: Annotated[
        Path | None,
        typer.Option("--compare", metavar="FILE", help="Set the figures beside an earlier --json."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw a roofline; needs matplotlib."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a bundle on this machine.

    Reads a prompt of 512 tokens and generates 128, llama-bench's pp512 and tg128, unless told
    otherwise, and shows medians and the slow end: 95 of 100 runs, or tokens, are no slower than
    p95. A share of the limit compares decoding with reading all its bytes at the memory's
    bandwidth. What a machine does not tell is unknown.
    """
    from edgekit.bundle import Bundle
    from edgekit.cli.bench_compare import compare, read_record, show_comparison
    from edgekit.cli.chat import locate_bundle
    from edgekit.cli.progress import Step, show_progress
    from edgekit.cli.run import count_or_text
    from edgekit.doctor.nvml import open_nvml
    from edgekit.runtime.bench.case import check_fits, make_cases
    from edgekit.runtime.bench.environment import Sensors
    from edgekit.runtime.bench.run import BenchRequest, run_bench

    out.json = json
    cases = make_cases(
        lengths("--prompt", prompt), lengths("--gen", gen), lengths("--depth", depth)
    )
    kept = read_record(old) if old is not None else None
    if plot is not None:
        _check_plot(plot)
    settings = globals_of(ctx).settings(
        speculate=speculate.value if speculate is not None else None,
        draft_tokens=count_or_text(draft_tokens),
        threads=threads,
        context=context,
    )
    values = settings.values
    embedded = bundles_dir(settings) / EMBEDDED
    before = _written(embedded)
    path = locate_bundle(settings, bundle)
    if path == embedded and _written(path) != before:
        out.warn("peak memory will be the build's: run it again for the model's")
    check_fits(cases, Bundle.open(path).manifest.context)
    request = BenchRequest(
        bundle=path,
        cases=cases,
        repeats=repeats,
        warmup=warmup,
        threads=values.threads,
        speculate=values.speculate,
        draft_tokens=None if values.draft_tokens == "auto" else values.draft_tokens,
        bandwidth=bandwidth * 1e9 if bandwidth is not None else None,
    )
    machine, nvml = _machine(path), open_nvml()
    try:
        with show_progress(values.progress) as sink:
            record = run_bench(
                request,
                machine,
                Sensors(machine, nvml),
                lambda done, total, name: sink(Step("bench", done, total, "runs", name)),
            )
    finally:
        if nvml is not None:
            nvml.close()
    compared = compare(kept, record) if kept is not None else None
    if plot is not None:
        from edgekit.runtime.bench.plot import plot_roofline

        plot_roofline(plot, record)
    if out.json:
        also = {"compared": compared} if compared is not None else {}
        out.json_line({"type": "bench", **record, **also})
        return
    show(record)
    if compared is not None:
        show_comparison(compared)
    if plot is not None:
        out.note(f"plot: {plot}")


def lengths(flag: str, text: str) -> list[int]:
    """The numbers of a comma list.

    Raises:
        UsageError: it is none, or a number is beyond any context.
    """
    found = []
    for part in text.split(","):
        digits = part.strip()
        if not (digits.isascii() and digits.isdigit()) or int(digits[:12]) > _MOST:
            raise UsageError(
                f"{flag} {text!r} is no list of lengths",
                cause=f"{digits!r} is not a whole number up to {_MOST}",
                hint=f"{flag} 128,512",
            )
        found.append(int(digits))
    return found


def _check_plot(path: Path) -> None:
    """Refuses, before anything is measured, a picture that could not be written."""
    from edgekit.picture import require_matplotlib

    require_matplotlib("--plot")
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot {path} is no name of a PNG", hint="--plot roofline.png")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")


def show(record: dict[str, Any]) -> None:
    """The record for people: environment, memory, and a row a test."""
    bundle, environment = record["bundle"], record["environment"]
    out.record(
        {
            "bundle": f"{bundle['name']}, {bundle['weights_format']}, {size_text(bundle['bytes'])}",
            "executor": f"{environment['executor']} {_known(environment['executor_version'])}, "
            f"threads {record['settings']['threads'] or 'auto'}, "
            f"edgekit {environment['edgekit']}",
            "device": f"{environment['profile']}, "
            f"{environment['gpu'] or _known(environment['cpu'])} ({environment['profile_why']})",
            "power mode": _known(environment["power_mode"]),
            "clocks": ", ".join(
                f"{name} {_span(environment[key])} MHz"
                for name, key in (("CPU", "cpu_mhz"), ("GPU", "gpu_mhz"), ("memory", "memory_mhz"))
                if environment[key]
            )
            or "unknown",
            "temperature": f"{_span(environment['celsius'])} °C"
            if environment["celsius"]
            else "unknown",
            "throttling": "unknown"
            if environment["throttling"] is None
            else ", ".join(environment["throttling"]) or "none seen",
            "load": f"{record['load_seconds']:.2f} s",
            "peak memory": _memory(record),
            "bandwidth": f"{record['bandwidth'] / 1e9:.1f} GB/s, {record['bandwidth_why']}"
            if record["bandwidth"]
            else "unknown",
            "energy": _known(environment["power_source"]),
        }
    )
    out.print("")
    rows = [_row(result) for result in record["results"]]
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    out.table(columns, rows)
    for result in record["results"]:
        if (drafts := result["speculation"]) is not None:
            kept = " ".join(f"{share:.2f}".lstrip("0") for share in drafts["acceptance"])
            out.note(f"{result['test']}: {drafts['drafter']}, kept by position {kept or '-'}")


def _row(result: dict[str, Any]) -> dict[str, object]:
    speed, first, token = (
        result[name] for name in ("tokens_per_second", "first_token_ms", "token_ms")
    )
    share, joules, drafts = (
        result[name] for name in ("share_of_limit", "joules_per_token", "speculation")
    )
    return {
        "test": result["test"],
        "tok/s": _number(speed["median"]),
        "p95": _number(speed["p95"]),
        "first token ms": first and _number(first["median"]),
        "first p95": first and _number(first["p95"]),
        "ms/token": token and _number(token["median"]),
        "token p95": token and _number(token["p95"]),
        "MB/token": _number(result["bytes_per_token"] / 1e6),
        "of limit": None if share is None else f"{share:.0%}",
        "tokens/round": drafts and f"{drafts['tokens_per_round']:.2f}",
        "J/token": joules and _number(joules),
    }


def _number(value: float) -> float:
    """Four digits."""
    return round(value) if value >= 1000 else float(f"{value:.4g}")


def _known(value: object) -> str:
    return "unknown" if value is None else str(value)


def _span(values: list[float]) -> str:
    low, high = (f"{value:.0f}" for value in values)
    return low if low == high else f"{low} to {high}"


def _memory(record: dict[str, Any]) -> str:
    rss, device = record["peak_rss"], record["peak_device"]
    text = f"{size_text(rss)} resident" if rss is not None else "unknown"
    return text if device is None else f"{text}, {size_text(device)} on the GPU"


def _machine(bundle: Path) -> Machine:
    from edgekit.detect import detect_profile, query_gpu
    from edgekit.doctor import Machine
    from edgekit.profile import load_profile

    gpu = query_gpu()
    found = detect_profile(gpu=gpu)
    return Machine(Path("/"), load_profile(found.value), found.why, bundle.parent, gpu)


def _written(bundle: Path) -> int | None:
    """When a bundle was written, None where there is none."""
    from edgekit.bundle import MANIFEST

    manifest = bundle / MANIFEST
    return manifest.stat().st_mtime_ns if manifest.exists() else None
