"""Executors: one class each, all keeping the contract of `edgekit.runtime.session`."""

from __future__ import annotations

from edgekit.bundle import Bundle
from edgekit.engines import FLAVOURS
from edgekit.errors import BundleError, UsageError
from edgekit.runtime.session import Session


def open_session(
    bundle: Bundle, *, threads: int | None = None, beside: Session | None = None
) -> Session:
    """Loads the bundle's model into the executor it was built for.

    Args:
        threads: CPU threads; None lets the executor choose.
        beside: a session of the same bundle whose weights the new one shares. The two may take
            turns, but not run at the same time.

    Raises:
        BundleError: built for an executor this edgekit does not have.
        MissingDependencyError: the executor's package is not installed.
    """
    if bundle.manifest.executor == "onnxruntime-cpu":
        from edgekit.runtime.executors.ort import OrtSession

        sibling = beside if isinstance(beside, OrtSession) else None
        return OrtSession(bundle, threads=threads, beside=sibling)
    if beside is not None:
        raise UsageError(
            "one sequence at a time on a GPU",
            cause="its executor does not share weights between sequences yet",
            hint="edgekit serve --slots 1",
        )
    if bundle.manifest.executor == "torch-cuda":
        from edgekit.runtime.executors.torch import open_torch_session

        return open_torch_session(bundle)
    if bundle.manifest.executor in FLAVOURS and bundle.manifest.lowering == "plugin":
        from edgekit.runtime.executors.plugin_engines import open_plugin_engines

        return open_plugin_engines(bundle)
    if bundle.manifest.executor in FLAVOURS:
        from edgekit.runtime.executors.tensorrt import open_tensorrt_session

        return open_tensorrt_session(bundle)
    raise BundleError(
        f"bundle {bundle.manifest.name!r} needs executor {bundle.manifest.executor!r}",
        cause="this edgekit does not have it",
        hint="build the bundle again with `edgekit build`, or update edgekit",
    )
