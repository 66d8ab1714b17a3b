"""Pictures: what draws them is an optional part."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgekit.errors import MissingDependencyError


def require_matplotlib(what: str) -> None:
    """Says so before long work if nothing here can draw.

    Args:
        what: needs it.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise MissingDependencyError(
            f"{what} needs matplotlib, which is not installed",
            hint="pip install 'edgekit-nemotron[report]'",
        )


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure of so many inches, drawn without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_png(figure: Any, path: Path) -> None:
    """Writes a PNG, whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    figure.savefig(part, format="png", dpi=120)
    part.rename(path)
