"""A record as a roofline: operations a second that were reached, over operations a byte.

The line is the memory's bandwidth: a point above it read something more seldom than `traffic`
counts, from a cache or for several drafted tokens at once. The processor's own limit is not drawn:
no profile tells it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.picture import new_figure, save_png

_COLORS = {"prompt": "tab:blue", "generation": "tab:orange"}
_MARKERS = "osD^v<>pPX*"


def plot_roofline(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a PNG of a bench record."""
    points = [_point(result) for result in record["results"]]
    figure = new_figure(8, 5.5)
    axis = figure.subplots()
    bandwidth = record["bandwidth"]
    if bandwidth is not None:
        ends = [min(x for x, _ in points) / 3, max(x for x, _ in points) * 3]
        label = f"{bandwidth / 1e9:.0f} GB/s, {record['bandwidth_why']}"
        axis.plot(ends, [bandwidth * x / 1e9 for x in ends], color="black", label=label)
    seen = dict.fromkeys(_COLORS, 0)
    for result, (x, y) in zip(record["results"], points, strict=True):
        kind, rate = result["kind"], result["tokens_per_second"]["median"]
        axis.scatter(
            [x],
            [y / 1e9],
            color=_COLORS[kind],
            marker=_MARKERS[seen[kind] % len(_MARKERS)],
            label=f"{result['test']}, {rate:.4g} tok/s",
            zorder=3,
        )
        seen[kind] += 1
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.margins(x=0.15)
    axis.set_xlabel("operations per byte")
    axis.set_ylabel("10⁹ operations a second")
    axis.grid(alpha=0.3, which="both")
    axis.legend(loc="upper left")
    figure.suptitle(_title(record))
    save_png(figure, path)


def _point(result: Mapping[str, Any]) -> tuple[float, float]:
    """(operations a byte, operations a second)."""
    operations = result["operations_per_token"]
    rate = result["tokens_per_second"]["median"]
    return operations / result["bytes_per_token"], operations * rate


def _title(record: Mapping[str, Any]) -> str:
    environment = record["environment"]
    parts: Sequence[str | None] = (
        record["bundle"]["name"],
        environment["executor"],
        environment["gpu"] or environment["cpu"] or environment["profile"],
        environment["power_mode"] if environment["power_mode"] != "none" else None,
    )
    return ", ".join(part for part in parts if part)
