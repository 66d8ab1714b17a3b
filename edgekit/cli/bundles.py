"""`edgekit list`, `edgekit show` and `edgekit rm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.options import Json, bundle_path, bundles_dir, complete_bundle, globals_of
from edgekit.cli.output import out
from edgekit.units import size_text

if TYPE_CHECKING:
    from edgekit.bundle import Bundle

BundleArgument = Annotated[
    str,
    typer.Argument(
        metavar="BUNDLE",
        autocompletion=complete_bundle,
        help="A bundle by name or path.",
        show_default=False,
    ),
]


def list_(
    ctx: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Names only.")] = False,
    json: Json = False,
) -> None:
    """List the bundles on this machine."""
    from edgekit.bundle import Bundle, list_bundles

    out.json, out.quiet = json, quiet
    folder = bundles_dir(globals_of(ctx).settings())
    rows: list[dict[str, object]] = []
    broken = []
    for item in list_bundles(folder):
        if not isinstance(item, Bundle):
            broken.append(item)
            continue
        record = bundle_record(item)
        if not out.json:
            record["size"] = size_text(item.manifest.nbytes)
        rows.append(record)
    columns = ["name", "source", "profile", "executor", "context", "size", "created"]
    out.table(columns, rows, empty=f"no bundles in {folder} yet: edgekit build MODEL")
    for error in broken:
        if out.json:
            out.json_line({"type": "broken", **error.as_dict()})
        else:
            out.warn(error.message)
            out.hint(error.hint)


def show(ctx: typer.Context, bundle: BundleArgument, json: Json = False) -> None:
    """Show what a bundle is, what it was built with and its files."""
    from edgekit.bundle import Bundle

    out.json = json
    opened = Bundle.open(bundle_path(globals_of(ctx).settings(), bundle))
    record = bundle_record(opened)
    files = opened.manifest.files
    if out.json:
        listed = {
            name: {"bytes": entry.nbytes, "sha256": entry.sha256} for name, entry in files.items()
        }
        out.json_line({"type": "bundle", **record, "files": listed})
        return
    versions = record.pop("versions")
    assert isinstance(versions, dict)
    record["size"] = size_text(opened.manifest.nbytes)
    record["versions"] = [f"{name} {version}" for name, version in versions.items()]
    out.record(record)
    out.print("")
    out.table(
        ["file", "size"],
        [{"file": name, "size": size_text(entry.nbytes)} for name, entry in files.items()],
    )


def remove(
    ctx: typer.Context,
    bundles: Annotated[
        list[str],
        typer.Argument(
            metavar="BUNDLE...",
            autocompletion=complete_bundle,
            help="Bundles by name or path.",
            show_default=False,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Remove bundles from the disk."""
    from edgekit.bundle import remove_bundle
    from edgekit.errors import UsageError

    out.json = json
    settings = globals_of(ctx).settings()
    paths = [bundle_path(settings, name) for name in dict.fromkeys(bundles)]
    if not yes:
        names = ", ".join(path.name for path in paths)
        if not out.confirm(f"remove {names}?"):
            raise UsageError("nothing was removed", hint="confirm with y, or pass -y")
    for path in paths:
        size = remove_bundle(path)
        if out.json:
            out.json_line({"type": "removed", "path": str(path), "bytes": size})
        else:
            out.note(f"removed {path.name} ({size_text(size)})")


def bundle_record(bundle: Bundle) -> dict[str, object]:
    """What a bundle is, as JSON; sizes in bytes."""
    manifest, spec = bundle.manifest, bundle.spec
    return {
        "name": bundle.path.name,
        "path": str(bundle.path),
        "source": manifest.source,
        "layers": f"{spec.num_hidden_layers} ({spec.pattern})",
        "profile": manifest.profile,
        "recipe": manifest.recipe,
        "executor": manifest.executor,
        "weights": manifest.weights_format,
        "context": manifest.context,
        "prefill_chunk": manifest.prefill_chunk,
        "size": manifest.nbytes,
        "created": manifest.created,
        "versions": manifest.versions,
    }
