"""Bundles: written whole or not at all, opened only when whole, listed, found and removed."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle, find_bundle, list_bundles, remove_bundle
from edgekit.errors import BundleError, UsageError
from edgekit.export.build import BuildEvent, BuildRequest, build_bundle
from edgekit.export.bundle_writer import write_bundle
from edgekit.manifest import SCHEMA_VERSION, FileEntry, Graphs, Manifest, StateTensor
from tests.tools.random_checkpoint import write_random_checkpoint

COMPANIONS = {
    "generation_config.json": "{}",
    "tokenizer.json": '{"version": "1.0"}',
    "chat_template.jinja": "{{ messages }}",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_random_checkpoint(tmp_path_factory.mktemp("bundles") / "tiny", pattern="M*E")
    for name, text in COMPANIONS.items():
        (folder / name).write_text(text)
    (folder / "README.md").write_text("not part of a bundle")
    return folder


@pytest.fixture(scope="module")
def original(checkpoint: Path) -> Path:
    return build_bundle(request(checkpoint, checkpoint.parent / "original"))


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(original, tmp_path / "bundles" / "tiny"))


def request(checkpoint: Path, output: Path, **changes: Any) -> BuildRequest:
    return BuildRequest(checkpoint, output, "cpu", "none", 64, 16, **changes)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def edit_manifest(bundle: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = bundle / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# -- writing


def test_what_a_bundle_holds(original: Path, checkpoint: Path) -> None:
    opened = Bundle.open(original)
    manifest = opened.manifest
    assert set(contents(original)) == {
        *COMPANIONS,
        "config.json",
        "golden.json",
        "manifest.json",
        "target.commit.onnx",
        "target.onnx",
        "weights/weights.bin",
    }
    assert set(manifest.files) == set(contents(original)) - {"manifest.json"}
    assert manifest.nbytes == sum(
        len(data) for name, data in contents(original).items() if name != "manifest.json"
    )
    for name, text in COMPANIONS.items():
        assert opened.file(name).read_text() == text
    assert (manifest.name, manifest.source) == ("original", str(checkpoint))
    assert (manifest.profile, manifest.recipe) == ("cpu", "none")
    assert (manifest.lowering, manifest.executor) == ("ort", "onnxruntime-cpu")
    assert (manifest.context, manifest.prefill_chunk) == (64, 16)
    assert {"edgekit", "onnx", "onnxruntime"} <= set(manifest.versions)
    assert [state.input for state in manifest.target.state] == [
        "conv_state.0",
        "ssm_state.0",
        "key_cache.1",
        "value_cache.1",
    ]
    assert [state.kind for state in manifest.target.state] == ["recurrent"] * 2 + ["cache"] * 2
    assert manifest.target.state[2].shape == (1, 2, 64, 16)
    assert opened.spec.pattern == "M*E"
    opened.check_hashes()
    assert (original.stat().st_mode & 0o777) == 0o755
    assert {path.name for path in original.parent.iterdir()} == {"tiny", "original"}


def test_two_builds_differ_in_nothing_but_their_date(original: Path, bundle: Path) -> None:
    again = build_bundle(request(original.parent / "tiny", bundle.parent / "original"))
    first, second = contents(original), contents(again)
    manifests = [json.loads(files.pop("manifest.json")) for files in (first, second)]
    assert first == second
    assert manifests[0] | {"created": None} == manifests[1] | {"created": None}


def test_a_build_says_how_far_it_is(checkpoint: Path, tmp_path: Path) -> None:
    events: list[BuildEvent] = []
    build_bundle(request(checkpoint, tmp_path / "b"), events.append)
    assert list(dict.fromkeys(event.step for event in events)) == [
        "read",
        "golden",
        "weights",
        "finish",
    ]
    for step in ("golden", "weights"):
        done = [(event.done, event.total) for event in events if event.step == step]
        assert done == sorted(done)
        assert done[-1][0] == done[-1][1] > 0


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("step", ["read", "golden", "weights", "finish"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_build_that_stops_in_the_middle_leaves_nothing(
    checkpoint: Path, tmp_path: Path, existing: bool, step: str, error: type[BaseException]
) -> None:
    output = tmp_path / "bundles" / "b"
    if existing:
        build_bundle(request(checkpoint, output))
    before = contents(tmp_path)

    def stop(event: BuildEvent) -> None:
        if event.step == step:
            raise error("stopped")

    with pytest.raises(error, match="stopped"):
        build_bundle(request(checkpoint, output, force=True), stop)
    assert contents(tmp_path) == before
    assert [path.name for path in output.parent.glob("*")] == (["b"] if existing else [])
    if existing:
        Bundle.open(output).check_hashes()


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rename_that_fails_keeps_the_old_bundle(
    checkpoint: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """First the old bundle is set aside, then the new one takes its place."""
    before = contents(bundle.parent)
    rename, calls = Path.rename, []

    def flaky(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == failing:
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", flaky)
    with pytest.raises(BundleError) as refused:
        build_bundle(request(checkpoint, bundle, force=True))
    assert refused.value.cause == "no"
    monkeypatch.undo()
    assert len(calls) >= failing
    assert contents(bundle.parent) == before
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]


def test_a_killed_build_is_cleaned_up_by_the_next(checkpoint: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from edgekit.export.build import BuildRequest, build_bundle\n"
        "def stop(event):\n"
        "    if event.step == 'weights': os.kill(os.getpid(), signal.SIGKILL)\n"
        "source, output = map(Path, sys.argv[1:])\n"
        "build_bundle(BuildRequest(source, output, 'cpu', 'none', 64, 16), stop)\n"
    )
    output = tmp_path / "bundles" / "b"
    killed = subprocess.run([sys.executable, "-c", code, str(checkpoint), str(output)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not output.exists()
    assert len(list(output.parent.iterdir())) == 1
    build_bundle(request(checkpoint, output))
    assert list(output.parent.iterdir()) == [output]


def test_two_builds_of_one_name_do_not_meet(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "b"

    def build_again(event: BuildEvent) -> None:
        if event.step == "weights":
            with pytest.raises(BundleError, match="another build of 'b' is running"):
                build_bundle(request(checkpoint, output))

    build_bundle(request(checkpoint, output), build_again)
    assert list(tmp_path.iterdir()) == [output]


def test_a_full_disk_is_one_clear_error(checkpoint: Path, tmp_path: Path) -> None:
    def fill(event: BuildEvent) -> None:
        if event.step == "weights":
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BundleError, match="cannot write bundle 'b'") as refused:
        build_bundle(request(checkpoint, tmp_path / "b"), fill)
    assert "No space left" in refused.value.cause
    assert "free some space" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_files_are_synced_before_the_bundle_appears(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    synced: set[str] = set()
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        assert not (tmp_path / "out" / "b").exists() or synced >= set(expected)
        fsync(descriptor)

    expected = ["manifest.json", "target.onnx", "weights.bin", "weights", "golden.json"]
    monkeypatch.setattr(os, "fsync", record)
    build_bundle(request(checkpoint, tmp_path / "out" / "b"))
    assert synced >= {*expected, "out"}


def test_an_existing_bundle_is_replaced_only_by_force(checkpoint: Path, bundle: Path) -> None:
    before = contents(bundle)
    with pytest.raises(UsageError, match="bundle 'tiny' exists already") as caught:
        build_bundle(request(checkpoint, bundle))
    assert "--force" in caught.value.hint
    assert contents(bundle) == before

    (bundle / "left-over").write_text("from before")
    build_bundle(BuildRequest(checkpoint, bundle, "cpu", "none", 32, 16, force=True))
    assert Bundle.open(bundle).manifest.context == 32
    assert not (bundle / "left-over").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_that_is_no_bundle_is_never_replaced(
    checkpoint: Path, tmp_path: Path, force: bool
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("a file")
    for name in ("work", "file"):
        with pytest.raises(UsageError, match="exists and is not a bundle"):
            build_bundle(request(checkpoint, tmp_path / name, force=force))
    assert contents(tmp_path) == {"work/thesis.txt": b"years", "file": b"a file"}


def test_the_writer_lists_and_hashes_what_it_finds(original: Path, tmp_path: Path) -> None:
    """Without the builder: two files, one of them hashed by whoever wrote it."""
    manifest = Bundle.open(original).manifest
    with write_bundle(tmp_path / "b", force=False) as writer:
        writer.path("a/b/c.bin").write_bytes(b"abc")
        writer.path("d.bin").write_bytes(b"d")
        writer.add_hashed("d.bin", FileEntry("0" * 64, 1))
        writer.finish(manifest)
    written = Manifest.from_json(json.loads((tmp_path / "b" / "manifest.json").read_text()))
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert written.files == {"a/b/c.bin": FileEntry(abc, 3), "d.bin": FileEntry("0" * 64, 1)}


# -- opening


def opening(bundle: Path) -> BundleError:
    with pytest.raises(BundleError) as caught:
        Bundle.open(bundle)
    return caught.value


@pytest.mark.parametrize("name", ["target.onnx", "weights/weights.bin", "config.json"])
@pytest.mark.parametrize("damage", ["missing", "short", "long", "directory"])
def test_a_file_that_is_missing_or_of_another_size(
    bundle: Path, checkpoint: Path, name: str, damage: str
) -> None:
    path = bundle / name
    size = path.stat().st_size
    if damage == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "long":
        path.write_bytes(path.read_bytes() + b"x")
    else:
        path.unlink()
        if damage == "directory":
            path.mkdir()
    error = opening(bundle)
    found = {"short": f"has {size - 1} bytes", "long": f"has {size + 1} bytes"}
    assert error.message.startswith(f"bundle 'original' is damaged: {name} ")
    assert found.get(damage, "is missing") in error.message
    command = f"edgekit build {checkpoint} --device cpu --recipe none --output {bundle} --force"
    assert error.hint == f"build it again: {command}"


@pytest.mark.parametrize("name", ["target.onnx", "weights/weights.bin", "golden.json"])
def test_a_changed_byte_is_found_by_its_hash(bundle: Path, name: str) -> None:
    data = bytearray((bundle / name).read_bytes())
    data[len(data) // 2] ^= 1
    (bundle / name).write_bytes(data)
    opened = Bundle.open(bundle)
    with pytest.raises(BundleError, match=f"the content of {name} changed") as caught:
        opened.check_hashes()
    assert "--force" in caught.value.hint


def test_checking_hashes_says_how_far_it_is(bundle: Path) -> None:
    opened, calls = Bundle.open(bundle), []
    opened.check_hashes(lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (opened.manifest.nbytes, opened.manifest.nbytes)


def test_a_directory_without_a_manifest(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        error = opening(path)
        assert error.message == f"{path} is not a bundle"
        assert error.hint == "edgekit list"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xff"])
def test_a_manifest_that_is_not_json(bundle: Path, data: bytes) -> None:
    (bundle / "manifest.json").write_bytes(data)
    error = opening(bundle)
    assert "manifest.json is damaged" in error.message
    assert "edgekit build" in error.hint


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, "1", None])
def test_another_schema_version(bundle: Path, version: Any) -> None:
    edit_manifest(bundle, lambda data: data.update(schema_version=version))
    error = opening(bundle)
    expected = f"this bundle has schema version {version}, this edgekit reads {SCHEMA_VERSION}"
    assert error.message == expected
    assert "edgekit build" in error.hint


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data.pop("context"), "manifest: context"),
        (lambda data: data.update(colour="red"), "manifest: colour"),
        (lambda data: data.update(context="64"), "manifest.context is '64', not int"),
        (lambda data: data.update(context=True), "manifest.context is True"),
        (lambda data: data.update(name=None), "manifest.name is None"),
        (lambda data: data.update(files=[]), "manifest.files is not an object"),
        (lambda data: data["files"]["target.onnx"].pop("sha256"), "files.target.onnx: sha256"),
        (lambda data: data.update(versions={"onnx": 1}), "manifest.versions.onnx is 1"),
        (lambda data: data["target"].pop("step"), "manifest.target: step"),
        (lambda data: data["target"].update(stash="x"), "manifest.target.stash is not a list"),
        (lambda data: data["target"]["state"][0].update(kind="odd"), "state.kind is 'odd'"),
        (lambda data: data.update(target=3), "manifest.target"),
    ],
)
def test_a_manifest_with_another_field(bundle: Path, change: Any, named: str) -> None:
    edit_manifest(bundle, change)
    error = opening(bundle)
    assert error.message == "manifest.json is damaged"
    assert named in error.cause
    assert "edgekit build" in error.hint


def test_a_config_that_edgekit_does_not_run(bundle: Path) -> None:
    """The size is right, the content is not: still an error about the bundle."""
    path = bundle / "config.json"
    text = path.read_text()
    path.write_text(text.replace("nemotron_h", "memotron_h").replace("Nemotron", "Memotron"))
    error = opening(bundle)
    assert "'original' is damaged: architecture 'memotron_h' is not supported" in error.message


@pytest.mark.parametrize("commit", [None, "target.commit.onnx"])
@pytest.mark.parametrize("taps", [(), (0, 3)])
def test_a_manifest_survives_json(original: Path, commit: str | None, taps: Any) -> None:
    manifest = Bundle.open(original).manifest
    state = StateTensor("s.0", "s_out.0", (1, 2, 3), "float32", "cache")
    graphs = Graphs("target.onnx", commit, (state,), ("stash.0",), taps)
    changed = replace(manifest, target=graphs, name="größer", files={})
    text = json.dumps(changed.to_json())
    assert Manifest.from_json(json.loads(text)) == changed


# -- listing, finding, removing


def test_the_list_holds_bundles_and_what_is_wrong_with_them(bundle: Path) -> None:
    folder = bundle.parent
    for name in ("damaged", "config", ".hidden"):
        shutil.copytree(bundle, folder / name)
    (folder / "damaged" / "target.onnx").unlink()
    config = folder / "config" / "config.json"
    config.write_text(
        config.read_text().replace("nemotron_h", "memotron_h").replace("NemotronH", "MemotronH")
    )
    (folder / "no-bundle").mkdir()
    (folder / "file").write_text("")
    found = list_bundles(folder)
    assert [type(item) for item in found] == [BundleError, BundleError, Bundle]
    assert "memotron_h" in str(found[0])
    assert "target.onnx is missing" in str(found[1])
    assert found[2] == Bundle.open(bundle)
    assert list_bundles(folder / "nowhere") == []


def test_a_bundle_is_found_by_name_and_by_path(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bundle.parent
    assert find_bundle("tiny", folder) == bundle
    assert find_bundle(str(bundle), folder / "elsewhere") == bundle
    monkeypatch.chdir(bundle)
    assert find_bundle(".", folder / "elsewhere").samefile(bundle)


def test_what_cannot_be_found(bundle: Path, checkpoint: Path) -> None:
    folder = bundle.parent
    with pytest.raises(BundleError, match="no bundle 'tinny'") as caught:
        find_bundle("tinny", folder)
    assert caught.value.cause == "there are: tiny"
    with pytest.raises(BundleError, match="no bundle") as caught:
        find_bundle("tiny", folder / "elsewhere")
    assert "none are in" in caught.value.cause
    assert "edgekit build" in caught.value.hint
    with pytest.raises(BundleError, match="is a checkpoint, not a bundle") as caught:
        find_bundle(str(checkpoint), folder)
    assert caught.value.hint == f"edgekit build {checkpoint}"


def test_removing_a_bundle(bundle: Path) -> None:
    size = sum(len(data) for data in contents(bundle).values())
    assert remove_bundle(bundle) == size
    assert list(bundle.parent.iterdir()) == []


def test_removing_after_an_interrupted_removal(bundle: Path) -> None:
    (bundle.parent / ".tiny.removed" / "weights").mkdir(parents=True)
    remove_bundle(bundle)
    assert list(bundle.parent.iterdir()) == []


def test_removing_a_link_keeps_the_bundle(bundle: Path) -> None:
    link = bundle.with_name("link")
    link.symlink_to(bundle, target_is_directory=True)
    assert remove_bundle(link) == 0
    assert list(bundle.parent.iterdir()) == [bundle]


def test_only_bundles_are_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(BundleError, match="is not a bundle"):
        remove_bundle(tmp_path)
    assert (tmp_path / "thesis.txt").exists()
