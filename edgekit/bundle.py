"""A bundle: one directory with everything a model needs to run.

    manifest.json      config.json  tokenizer.json  tokenizer_config.json  chat_template.jinja
    generation_config.json          golden.json
    target.onnx        runs T tokens           target.commit.onnx   replays accepted ones
    weights/           weights.bin

Graph files stand above the weights they share, because ONNX Runtime refuses paths that climb.
It exists whole or not at all (`edgekit.export.bundle_writer`). Opening it checks the schema and
each file's size; `check_hashes` reads every byte.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgekit.engines import FLAVOURS
from edgekit.errors import BundleError, CheckpointError
from edgekit.manifest import Manifest
from edgekit.model import ModelSpec, load_spec

MANIFEST = "manifest.json"
_HASH_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle."""

    path: Path
    manifest: Manifest
    spec: ModelSpec

    @classmethod
    def open(cls, path: Path) -> Bundle:
        """Opens a bundle directory.

        Raises:
            BundleError: it is no bundle, of another schema, or a file is missing or cut short.
        """
        manifest = _read_manifest(path)
        for name, entry in manifest.files.items():
            file = path / name
            size = file.stat().st_size if file.is_file() else None
            if size != entry.nbytes:
                found = "is missing" if size is None else f"has {size} bytes, not {entry.nbytes}"
                raise _damaged(path, manifest, f"{name} {found}")
        try:
            spec = load_spec(path)
        except CheckpointError as error:
            raise _damaged(path, manifest, error.message, error.cause) from None
        return cls(path, manifest, spec)

    @property
    def rebuild_command(self) -> str:
        """The command that builds this bundle again where it is."""
        return rebuild_command(self.path, self.manifest)

    def file(self, name: str) -> Path:
        """The path of one of its files."""
        return self.path / name

    def check_hashes(self, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Reads every file and compares its hash.

        Args:
            on_progress: called with (bytes done, bytes in all).

        Raises:
            BundleError: a file's bytes are not those that were written.
        """
        import hashlib  # OpenSSL is 5 MB that running a bundle does not need

        done = 0
        for name, entry in self.manifest.files.items():
            digest = hashlib.sha256()
            with self.file(name).open("rb") as file:
                while chunk := file.read(_HASH_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    if on_progress is not None:
                        on_progress(done, self.manifest.nbytes)
            if digest.hexdigest() != entry.sha256:
                raise _damaged(self.path, self.manifest, f"the content of {name} changed")


def rebuild_command(path: Path, manifest: Manifest) -> str:
    """The command that builds the bundle at `path` again, from the same model in the same way."""
    words = ["edgekit", "build", manifest.source, "--device", manifest.profile]
    words += ["--recipe", manifest.recipe, "--output", str(path), "--force"]
    words += [word for value in manifest.draft_values for word in ("--draft", value)]
    if manifest.lowering == "canonical":
        words += ["--stop-after", "graph"]
    elif manifest.executor in FLAVOURS:
        words += ["--executor", manifest.executor, "--sm", manifest.versions["sm"]]
    elif manifest.lowering == "plugin":
        words += ["--executor", "kernels"]
    return shlex.join(words)


def list_bundles(directory: Path) -> list[Bundle | BundleError]:
    """Every bundle in a directory by name; one that cannot be opened is listed as its error."""
    found: list[Bundle | BundleError] = []
    if not directory.is_dir():
        return found
    for path in sorted(directory.iterdir()):
        if not path.name.startswith(".") and (path / MANIFEST).exists():
            try:
                found.append(Bundle.open(path))
            except BundleError as error:
                found.append(error)
    return found


def find_bundle(name_or_path: str, directory: Path) -> Path:
    """The directory of a bundle given by name or by path.

    Raises:
        BundleError: there is none.
    """
    for path in (directory / name_or_path, Path(name_or_path)):
        if (path / MANIFEST).exists():
            return path
    if (Path(name_or_path) / "config.json").exists():
        raise BundleError(
            f"{name_or_path} is a checkpoint, not a bundle",
            hint=f"edgekit build {shlex.quote(name_or_path)}",
        )
    known = [path.parent.name for path in sorted(directory.glob(f"*/{MANIFEST}"))]
    raise BundleError(
        f"no bundle {name_or_path!r}",
        cause=f"there are: {', '.join(known)}" if known else f"none are in {directory}",
        hint="edgekit list" if known else "edgekit build MODEL",
    )


def remove_bundle(path: Path) -> int:
    """Deletes a bundle and returns the bytes that frees: none for a link, whose bundle stays.

    Raises:
        BundleError: the directory is no bundle.
    """
    if not (path / MANIFEST).exists():
        raise BundleError(f"{path} is not a bundle")
    if path.is_symlink():
        path.unlink()
        return 0
    import shutil

    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    trash = path.with_name(f".{path.name}.removed")
    if trash.exists():  # an earlier removal was interrupted
        shutil.rmtree(trash)
    path.rename(trash)
    shutil.rmtree(trash)
    return size


def _damaged(path: Path, manifest: Manifest, what: str, cause: str = "") -> BundleError:
    return BundleError(
        f"bundle {manifest.name!r} is damaged: {what}",
        cause=cause,
        hint=f"build it again: {rebuild_command(path, manifest)}",
    )


def _read_manifest(path: Path) -> Manifest:
    try:
        data = json.loads((path / MANIFEST).read_text())
    except FileNotFoundError:
        raise BundleError(
            f"{path} is not a bundle", cause=f"it has no {MANIFEST}", hint="edgekit list"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BundleError(
            f"{path / MANIFEST} is damaged",
            cause=str(error),
            hint="build the bundle again with `edgekit build`",
        ) from None
    return Manifest.from_json(data)
