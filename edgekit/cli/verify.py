"""`edgekit verify`."""

from __future__ import annotations

import typer

from edgekit.cli.bundles import BundleArgument
from edgekit.cli.options import Json, bundle_path, globals_of
from edgekit.cli.output import out
from edgekit.cli.progress import Step, show_progress


def verify(ctx: typer.Context, bundle: BundleArgument, json: Json = False) -> None:
    """Check a bundle on this machine: every file's hash, then its golden prompt.

    The golden prompt's logits were computed in float32 when the bundle was built. Exits 1 when
    this machine computes something else.
    """
    from edgekit.bundle import Bundle
    from edgekit.errors import BundleError
    from edgekit.runtime.verify import verify_bundle

    out.json = json
    settings = globals_of(ctx).settings()
    opened = Bundle.open(bundle_path(settings, bundle))
    with show_progress(settings.values.progress) as sink:
        opened.check_hashes(lambda done, total: sink(Step("hashes", done, total, "bytes")))
    report = verify_bundle(opened)
    if out.json:
        out.json_line({"type": "verify", "bundle": opened.manifest.name, **report.as_dict()})
    else:
        agreed = f"{report.agreeing} of {report.positions} best tokens agree"
        if report.near_ties:
            agreed += f", {report.near_ties} more are near-ties"
        out.record(
            {
                "bundle": opened.manifest.name,
                "files": f"{len(opened.manifest.files)} hashes match",
                "executor": report.executor,
                "tokens": agreed,
                "logits": f"differ by at most {report.max_difference:.2g} "
                f"(tolerance {report.tolerance:.2g})",
                "verdict": out.styled("ok", "green", out.stdout)
                if report.ok
                else out.styled("wrong", "red", out.stdout),
            }
        )
    if not report.ok:
        raise BundleError(
            f"bundle {opened.manifest.name!r} computes something else on this machine",
            cause=f"largest logit difference {report.max_difference:.2g}, "
            f"tolerance {report.tolerance:.2g}",
            hint="build it again on this machine with `edgekit build --force`, or report it",
        )
