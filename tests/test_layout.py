"""The repository's shape: top-level names, symlinks, who imports whom, and what the wheel holds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import edgekit

ROOT = Path(__file__).parents[1]
FOLDERS = ("edgekit", "export", "jetson", "recipes", "runtime", "spark", "tests")
LINKED = ("export", "jetson", "recipes", "runtime", "spark")
CORE_BANS = ("torch", "tensorrt", "onnxruntime", "onnx", "onnx_ir", "transformers", "modelopt")


def git(*arguments: str) -> list[str]:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.split("\0" if "-z" in arguments else "\n")[:-1]


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """Every tracked file that is there, symlinks not followed."""
    return [path for name in git("ls-files", "-z") if (path := ROOT / name).is_file()]


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def imports(path: Path, *, lazy: bool) -> set[str]:
    """Names of modules that a file imports absolutely; `lazy` includes those inside functions."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree) if lazy else module_level(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module))
    return found


def module_level(tree: ast.Module) -> list[ast.stmt]:
    """Statements that run on import, type checking aside."""
    statements: list[ast.stmt] = []
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        statements.append(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += [
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)
            ]
    return statements


# -- folders and links


def test_the_seven_top_level_names(tracked: list[Path]) -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in tracked if path.parent != ROOT}
    code = {path.relative_to(ROOT).parts[0] for path in tracked if path.suffix == ".py"}
    assert code == set(FOLDERS)
    assert tops - {".ci", ".github", "docs"} == set(FOLDERS)


@pytest.mark.parametrize("name", LINKED)
def test_the_halves_are_linked_into_the_package(name: str) -> None:
    link = ROOT / "edgekit" / name
    assert link.is_symlink(), f"{link} is no symlink: git config core.symlinks true, and check out"
    assert str(link.readlink()) == f"../{name}"
    assert link.resolve() == ROOT / name
    (entry,) = git("ls-files", "-s", f"edgekit/{name}")
    assert entry.startswith("120000 ")  # git keeps it as a link, not as a copy


def test_there_are_no_other_links(tracked: list[Path]) -> None:
    links = {entry.split("\t")[1] for entry in git("ls-files", "-s") if entry.startswith("12")}
    assert links == {f"edgekit/{name}" for name in LINKED}
    assert not any(path.is_symlink() for path in tracked)


def test_data_is_found_through_the_package() -> None:
    package = files("edgekit")
    assert (package / "recipes/nano-bf16/recipe.yaml").is_file()
    assert (package / "jetson/profiles/orin-nano-8gb.toml").is_file()
    assert (package / "spark/profiles/dgx-spark.toml").is_file()
    assert (package / "profiles/cpu.toml").is_file()


# -- imports


def test_import_contracts_hold() -> None:
    """`lint-imports`, with the contracts of pyproject.toml."""
    command = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "0 broken" in run.stdout


def test_every_core_module_is_under_contract(
    pyproject: dict[str, Any], tracked: list[Path]
) -> None:
    """A module that is added to edgekit/ is held to the core's rules from its first day."""
    package = ROOT / "edgekit"
    core = {
        f"edgekit.{path.relative_to(package).parts[0].removesuffix('.py')}"
        for path in tracked
        if path.suffix == ".py" and path.is_relative_to(package)
    } - {"edgekit.__init__", "edgekit.__main__", "edgekit.cli"}
    contracts = {c["name"]: c for c in pyproject["tool"]["importlinter"]["contracts"]}
    assert set(contracts["the core is light"]["source_modules"]) == core
    assert set(contracts["the core is light"]["forbidden_modules"]) == set(CORE_BANS)
    layers = contracts["the core is below both halves and the command line"]["layers"]
    assert core <= {name.strip() for layer in layers for name in re.split("[:|]", layer)}
    meeting = contracts["export and runtime meet only in the bundle"]
    assert meeting["type"] == "independence"
    assert set(meeting["modules"]) == {"edgekit.export", "edgekit.runtime"}


def test_nobody_imports_the_folders_by_their_own_names(tracked: list[Path]) -> None:
    """`import export` would be a second copy of `edgekit.export`."""
    for path in tracked:
        if path.suffix == ".py":
            tops = {name.partition(".")[0] for name in imports(path, lazy=True)}
            assert not tops & set(LINKED), path


def test_nothing_heavy_is_imported_with_a_module(tracked: list[Path]) -> None:
    """torch and its like are imported by the function that needs them, in what ships."""
    heavy = {"torch", "tensorrt", "onnxruntime", "transformers", "modelopt"}
    for path in tracked:
        half = path.relative_to(ROOT).parts[0]
        if path.suffix == ".py" and half in ("edgekit", "export", "runtime"):
            tops = {name.partition(".")[0] for name in imports(path, lazy=False)}
            assert not tops & heavy, path


@pytest.mark.parametrize(
    "module", ["edgekit", "edgekit.cli", "edgekit.bundle", "edgekit.ops", "edgekit.runtime.session"]
)
def test_importing_the_core_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert not loaded & set(CORE_BANS)


# -- version, wheel, paths


def test_the_version_is_in_one_place(pyproject: dict[str, Any], tracked: list[Path]) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", edgekit.__version__)
    assert "version" not in pyproject["project"]
    assert pyproject["project"]["dynamic"] == ["version"]
    assigned = re.compile(
        rf"""version_*["']?\s*[:=]\s*["']{re.escape(edgekit.__version__)}["']""", re.IGNORECASE
    )
    found = [
        path.relative_to(ROOT).as_posix()
        for path in tracked
        if path.suffix in (".py", ".toml", ".yaml", ".cfg") and assigned.search(path.read_text())
    ]
    assert found == ["edgekit/__init__.py"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that `pip install` would make, built in this process."""
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    return zipfile.ZipFile(built)


def test_the_wheel_holds_the_whole_package(wheel: zipfile.ZipFile, tracked: list[Path]) -> None:
    names = set(wheel.namelist())
    expected = set()
    for path in tracked:
        inside = path.relative_to(ROOT)
        if inside.parts[0] == "edgekit":
            expected.add(inside.as_posix())
        elif inside.parts[0] in LINKED:
            expected.add(f"edgekit/{inside.as_posix()}")
    assert expected <= names
    for needed in (
        "edgekit/py.typed",
        "edgekit/profiles/cpu.toml",
        "edgekit/jetson/profiles/agx-orin-64gb.toml",
        "edgekit/spark/profiles/dgx-spark.toml",
        "edgekit/recipes/published/recipe.yaml",
        "edgekit/recipes/nano-bf16/recipe.yaml",
        "edgekit/export/build.py",
        "edgekit/runtime/session.py",
    ):
        assert needed in names
    contents = [info for info in wheel.infolist() if not info.is_dir()]
    assert all(info.external_attr >> 28 != 0o12 for info in contents)  # files, not symlinks


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"edgekit", f"edgekit_nemotron-{edgekit.__version__}.dist-info"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name or "tests" in name]
    doubled = [name for name in wheel.namelist() if re.match(r"edgekit/(\w+)/edgekit/", name)]
    assert not doubled


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile, pyproject: dict[str, Any]) -> None:
    info = f"edgekit_nemotron-{edgekit.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Name"] == "edgekit-nemotron"  # `edgekit` is another project on PyPI
    assert metadata["Version"] == edgekit.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    required = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in required}
    assert not names & {"torch", "transformers", "nvidia-modelopt", "tensorrt", "onnxruntime"}
    extras = set(metadata.get_all("Provides-Extra", []))
    assert {"cpu", "cuda", "tensorrt", "quantize", "dev"} <= extras
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "edgekit = edgekit.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert "onnxruntime" not in str(pyproject["project"]["dependencies"])


def test_a_wheel_runs_without_the_repository(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked elsewhere, the package finds its own data."""
    wheel.extractall(tmp_path)
    code = f"""
import edgekit, edgekit.recipe, edgekit.profile, edgekit.export.build
assert edgekit.__file__.startswith({str(tmp_path)!r}), edgekit.__file__
assert edgekit.export.build.__file__.startswith({str(tmp_path)!r})
print(*edgekit.recipe.recipe_names(), *edgekit.profile.profile_names())
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"published", "nano-bf16", "cpu", "dgx-spark", "orin-nano-8gb"} <= set(
        run.stdout.split()
    )


def test_no_file_knows_the_machine_it_was_written_on(tracked: list[Path]) -> None:
    roots = [
        f"{root}/".encode() for root in ("/work", "/root", "/Users", "/home/runner", "/tmp/qa")
    ]
    for path in tracked:
        data = path.read_bytes()
        assert not [root for root in roots if root in data], path


def test_the_embedded_weights_are_small(tracked: list[Path]) -> None:
    weights = [path for path in tracked if path.suffix == ".safetensors"]
    assert sum(path.stat().st_size for path in weights) <= 26_000_000
