"""Every kernel compiles for every board's SM, without spilling more than a few registers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.errors import BuildError, MissingDependencyError
from edgekit.export.plugins import compile as compiler
from edgekit.export.plugins.compile import SUPPORTED_SMS, compile_kernel, source_hash
from edgekit.kernels.attention import AttentionLayer, attention_prefill, attention_step
from edgekit.kernels.embed import embed
from edgekit.kernels.launch import Kernel, Launch, defines, float_bits
from edgekit.kernels.linear import linear_step
from edgekit.kernels.linear_prefill import linear_prefill, norm_prefill
from edgekit.kernels.mamba2 import MambaLayer, mamba2_commit, mamba2_prefill, mamba2_scan
from edgekit.kernels.moe import MoeLayer, moe_down_step, moe_route_step, moe_up_step
from edgekit.kernels.moe_prefill import (
    moe_down_prefill,
    moe_route_prefill,
    moe_sort_prefill,
    moe_sum_prefill,
    moe_up_prefill,
)
from edgekit.kernels.sampling import argmax, judge, sample
from edgekit.kernels.weights import Matrix
from edgekit.ops.formats import WeightFormat

FORMATS: tuple[WeightFormat, ...] = ("dense", "fp8", "nvfp4", "int4")
LIGHTNING = MoeLayer(
    Matrix(1856, 2688, "nvfp4"),
    Matrix(2688, 1856, "nvfp4"),
    128,
    6,
    Matrix(3712, 2688, "nvfp4"),
    Matrix(2688, 3712, "nvfp4"),
)
ATTENTION = AttentionLayer(32, 2, 128, 128**-0.5)
DRAFT_ATTENTION = AttentionLayer(32, 2, 128, 128**-0.5, window=1024, sinks=True)
FP8_ATTENTION = replace(ATTENTION, kv_dtype="float8_e4m3fn")
MAMBA = MambaLayer(64, 64, 8, 128, 4)
LAUNCHES: dict[str, Launch] = {
    **{
        f"linear {form}": linear_step(
            8, Matrix(10304, 2688, form), input="float32", output="bfloat16", norm_groups=1
        )
        for form in FORMATS
    },
    **{
        f"linear {form}, prefill": linear_prefill(512, Matrix(10304, 2688, form), output="bfloat16")
        for form in FORMATS
    },
    "norm_prefill": norm_prefill(512, 2688, input="float32", norm_groups=1),
    "moe_route, prefill": moe_route_prefill(512, LIGHTNING),
    "moe_sort, prefill": moe_sort_prefill(512, LIGHTNING),
    "moe_up, prefill": moe_up_prefill(512, LIGHTNING),
    "moe_down, prefill": moe_down_prefill(512, LIGHTNING),
    "moe_sum, prefill": moe_sum_prefill(512, LIGHTNING),
    "moe_route": moe_route_step(8, LIGHTNING),
    "moe_up": moe_up_step(8, LIGHTNING),
    "moe_down": moe_down_step(8, LIGHTNING),
    "embed": embed(8, 2688),
    "mamba2_scan": mamba2_scan(8, MAMBA, commits=True),
    "mamba2_scan, verify": mamba2_scan(8, MAMBA, commits=False),
    "mamba2_prefill": mamba2_prefill(2048, MAMBA),
    "mamba2_commit": mamba2_commit(23, MAMBA),
    "attention": attention_step(8, ATTENTION, 8192),
    "attention_prefill": attention_prefill(2048, ATTENTION, 8192),
    "attention, window and sinks": attention_step(8, DRAFT_ATTENTION, 8192),
    "attention_prefill, window and sinks": attention_prefill(2048, DRAFT_ATTENTION, 8192),
    "attention, fp8": attention_step(8, FP8_ATTENTION, 8192),
    "attention_prefill, fp8": attention_prefill(2048, FP8_ATTENTION, 8192),
    "argmax": argmax(8, 131072),
    "sample": sample(8, 131072, philox=True),
    "judge": judge(8, 131072, philox=True),
    "sample, numbers given": sample(8, 131072, philox=False),
}
SHARED_LIMIT = 99 << 10
"""Shared memory of a block on the smallest of the boards (sm_121), bytes."""


SPILL_BUDGET = 32
"""Bytes a thread. Holding two step kernels to three blocks a multiprocessor costs up to 28 on
sm_110 and 12 on sm_121, and is worth it; all others spill nothing."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("sm", [sm for sm in SUPPORTED_SMS if sm != 90])
@pytest.mark.parametrize("name", LAUNCHES)
def test_no_kernel_spills(needs_nvcc: None, name: str, sm: int) -> None:
    launch = LAUNCHES[name]
    usage = compile_kernel(launch.kernel, sm).usage
    assert usage is not None
    assert usage.spilled <= SPILL_BUDGET
    assert usage.registers * launch.block <= 65536  # a multiprocessor's: one block always fits
    assert launch.shared + usage.shared <= SHARED_LIMIT


def test_a_kernel_is_compiled_once(needs_nvcc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = LAUNCHES["linear dense"].kernel
    first = compile_kernel(kernel, 87)
    monkeypatch.setattr(compiler, "_run_nvcc", None)
    assert compile_kernel(kernel, 87) == first


def test_the_hash_follows_the_defines() -> None:
    one = Kernel("linear.cu", "linear_step", defines(FORMAT=1))
    other = Kernel("linear.cu", "linear_step", defines(FORMAT=2))
    assert source_hash(one) == source_hash(one)
    assert source_hash(one) != source_hash(other)


def test_what_does_not_compile_says_why(needs_nvcc: None) -> None:
    with pytest.raises(BuildError, match="does not compile for sm_87") as caught:
        compile_kernel(Kernel("linear.cu", "linear_step", defines(FORMAT=9)), 87)
    assert "error" in caught.value.cause


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(MissingDependencyError, match="no CUDA compiler"):
        compile_kernel(LAUNCHES["linear dense"].kernel, 87)


def test_float_bits() -> None:
    assert float_bits(1.0) == 0x3F800000
    assert float_bits(-0.0) == -(1 << 31)
