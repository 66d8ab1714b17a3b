"""Kernels to machine code: nvcc where it is installed, NVRTC otherwise, each kernel once a machine.

Compiled kernels are kept under the user's cache folder by the hash of everything that went into
them, so building a second bundle compiles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from edgekit import paths
from edgekit.errors import BuildError, MissingDependencyError
from edgekit.kernels.launch import Kernel

SOURCES = Path(__file__).parent
SUPPORTED_SMS = (87, 90, 110, 121)
"""Orin, H100/H200, Thor, DGX Spark: what the sources are compiled for in tests."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What ptxas says a kernel needs: registers a thread, bytes spilled, static shared memory."""

    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's cubin for one SM. `usage` is None where NVRTC compiled it, which does not say."""

    kernel: Kernel
    sm: int
    path: Path
    usage: Usage | None


def compile_kernels(kernels: Iterable[Kernel], sm: int) -> list[Compiled]:
    """Compiles each distinct kernel for `sm` (90 is compute capability 9.0), in parallel.

    Raises:
        MissingDependencyError: there is neither nvcc nor NVRTC.
        BuildError: a kernel does not compile.
    """
    unique = list(dict.fromkeys(kernels))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda kernel: compile_kernel(kernel, sm), unique))


def compile_kernel(kernel: Kernel, sm: int) -> Compiled:
    """Compiles one kernel, or finds it compiled; see `compile_kernels`."""
    nvcc = shutil.which("nvcc")
    compiler = _nvcc_version(nvcc) if nvcc else "nvrtc"
    folder = paths.cache_dir() / "kernels"
    path = folder / f"{source_hash(kernel, f'sm_{sm}', compiler)}.cubin"
    facts = path.with_suffix(".json")
    if path.exists() and facts.exists():
        stored = json.loads(facts.read_text())
        return Compiled(kernel, sm, path, Usage(**stored) if stored else None)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        partial = Path(work) / "kernel.cubin"
        usage = None
        if nvcc:
            usage = _run_nvcc(nvcc, kernel, sm, partial)
        else:
            _run_nvrtc(kernel, sm, partial, "cubin")
        facts.write_text(json.dumps(asdict(usage) if usage else None))
        partial.replace(path)
    return Compiled(kernel, sm, path, usage)


def compile_ptx(kernel: Kernel, sm: int) -> bytes:
    """A kernel as PTX for `sm` and what comes after it; errors are those of `compile_kernels`."""
    nvcc = shutil.which("nvcc")
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "kernel.ptx"
        if nvcc:
            _run(nvcc, kernel, sm, path, "-ptx")
        else:
            _run_nvrtc(kernel, sm, path, "ptx")
        return path.read_bytes()


def source_hash(kernel: Kernel, *more: str) -> str:
    """Changes whenever the kernel's source, a header or its defines do."""
    digest = hashlib.sha256("\0".join([kernel.key, *more]).encode())
    for path in [*sorted(SOURCES.glob("*.cuh")), SOURCES / kernel.source]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _nvcc_version(nvcc: str) -> str:
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[-1] if done.stdout else "nvcc"


def _options(kernel: Kernel) -> list[str]:
    return ["-std=c++17", f"-I{SOURCES}", *(f"-D{name}={value}" for name, value in kernel.defines)]


def _run_nvcc(nvcc: str, kernel: Kernel, sm: int, output: Path) -> Usage:
    report = _run(nvcc, kernel, sm, output, "-cubin", "-Xptxas", "-v")
    return _usage(report, kernel.name)


def _run(nvcc: str, kernel: Kernel, sm: int, output: Path, *options: str) -> str:
    command = [nvcc, f"-arch=sm_{sm}", *options, *_options(kernel)]
    command += [str(SOURCES / kernel.source), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{kernel.key} does not compile for sm_{sm}", cause=done.stderr.strip())
    return done.stderr


def _usage(report: str, name: str) -> Usage:
    """Reads ptxas' report of the entry function `name`."""
    entry = report.split(f"Compiling entry function '{name}'")[-1]
    registers = re.search(r"Used (\d+) registers", entry)
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", entry)
    shared = re.search(r"(\d+) bytes smem", entry)
    assert registers is not None, report
    return Usage(
        int(registers[1]), max((int(n) for n in spills), default=0), int(shared[1]) if shared else 0
    )


def _run_nvrtc(kernel: Kernel, sm: int, output: Path, target: Literal["cubin", "ptx"]) -> None:
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError:
        raise MissingDependencyError(
            "there is no CUDA compiler to build kernels with",
            cause="neither nvcc nor the cuda-core package was found",
            hint="pip install 'edgekit-nemotron[cuda]', or install the CUDA toolkit",
        ) from None
    options = ProgramOptions(
        std="c++17",
        arch=f"sm_{sm}",
        include_path=[str(SOURCES)],
        define_macro=[(name, str(value)) for name, value in kernel.defines],
    )
    try:
        code = Program((SOURCES / kernel.source).read_text(), "c++", options).compile(target)
    except Exception as error:  # cuda-core raises classes of several packages
        raise BuildError(
            f"{kernel.key} does not compile for sm_{sm}", cause=str(error).strip()
        ) from error
    output.write_bytes(bytes(code.code))
