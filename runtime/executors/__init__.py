"""Executors: one class each, all keeping the contract of `edgekit.runtime.session`."""

from __future__ import annotations

from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.runtime.session import Session


def open_session(bundle: Bundle, *, threads: int | None = None) -> Session:
    """Loads the bundle's model into the executor it was built for.

    Args:
        threads: CPU threads; None lets the executor choose.

    Raises:
        BundleError: built for an executor this edgekit does not have.
        MissingDependencyError: the executor's package is not installed.
    """
    if bundle.manifest.executor == "onnxruntime-cpu":
        from edgekit.runtime.executors.ort import OrtSession

        return OrtSession(bundle, threads=threads)
    if bundle.manifest.executor == "torch-cuda":
        from edgekit.runtime.executors.torch import open_torch_session

        return open_torch_session(bundle)
    raise BundleError(
        f"bundle {bundle.manifest.name!r} needs executor {bundle.manifest.executor!r}",
        cause="this edgekit does not have it",
        hint="build the bundle again with `edgekit build`, or update edgekit",
    )
