"""A report as a picture: the error of every layer and, where it was measured, of the answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.export.quantize.report import WeightError
from edgekit.picture import new_figure, save_png

_LAYER = re.compile(r"backbone\.layers\.(\d+)\.mixer\.(.+)")
_COLORS = {"nvfp4": "tab:green", "int4": "tab:blue", "fp8": "tab:orange"}
_MARKERS = "osD^v<>pPX*"


def plot_report(
    path: Path, title: str, errors: Sequence[WeightError], lost: Mapping[str, int] | None
) -> None:
    """Writes a PNG.

    Args:
        errors: by layer.
        lost: right answers lost by skill; None where nothing was asked.
    """
    figure = new_figure(10, 4.5 if lost is None else 8)
    axes = figure.subplots(1 if lost is None else 2, squeeze=False)[:, 0]
    _draw_errors(axes[0], errors)
    if lost is not None:
        names = sorted(lost, key=lambda name: (-lost[name], name))
        axes[1].bar(names, [lost[name] for name in names], color="tab:red")
        axes[1].axhline(0, color="black", linewidth=0.8)
        axes[1].set_ylabel("right answers lost")
        axes[1].tick_params(axis="x", rotation=90)
    figure.suptitle(title)
    save_png(figure, path)


def _draw_errors(axis: Any, errors: Sequence[WeightError]) -> None:
    """Relative RMS error over the layer: colour is the format, the marker says which weight."""
    places = [_place(error.name) for error in errors]
    last = max((layer for layer, _ in places if layer is not None), default=-1) + 1
    kinds = list(dict.fromkeys(kind for _, kind in places))
    for number, kind in enumerate(kinds):
        for form, color in _COLORS.items():
            points = [
                (last if layer is None else layer, error.rms)
                for error, (layer, other) in zip(errors, places, strict=True)
                if other == kind and error.format == form
            ]
            if points:
                marker = _MARKERS[number % len(_MARKERS)]
                xs, ys = zip(*points, strict=True)
                axis.scatter(xs, ys, color=color, marker=marker, label=f"{kind}, {form}")
    axis.set_xlabel("layer (the last is lm_head)")
    axis.set_ylabel("RMS error, relative")
    axis.set_ylim(0, 1.1 * max((error.rms for error in errors), default=1.0))
    axis.grid(alpha=0.3)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _place(name: str) -> tuple[int | None, str]:
    match = _LAYER.fullmatch(name)
    return (int(match[1]), match[2].replace(".*", "")) if match else (None, name)
