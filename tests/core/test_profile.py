"""Device profiles: every file is complete, sourced and consistent, and found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import EdgekitError, UsageError
from edgekit.profile import load_profile, parse_profile, profile_names
from edgekit.recipe import load_recipe

BOARDS = (
    "agx-orin-32gb",
    "agx-orin-64gb",
    "dgx-spark",
    "orin-nano-4gb",
    "orin-nano-8gb",
    "orin-nx-16gb",
    "orin-nx-8gb",
    "thor-t4000",
    "thor-t5000",
)


def test_all_profiles_are_there() -> None:
    assert profile_names() == tuple(sorted((*BOARDS, "cpu", "gpu")))


@pytest.mark.parametrize("name", [*BOARDS, "cpu", "gpu"])
def test_a_profile_is_consistent(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    load_recipe(profile.defaults.recipe)
    assert profile.defaults.prefill_chunk <= profile.defaults.context
    power = profile.power
    assert set(power.slow) <= set(power.modes)
    assert not power.modes or (power.recommended in power.modes and power.source)
    assert profile.software.source or profile.family in ("cpu", "gpu")


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_knows_its_sizes(name: str) -> None:
    memory = load_profile(name).memory
    assert memory.physical_mib is not None
    assert memory.usable_mib is not None
    assert memory.bandwidth_gb_s is not None
    assert memory.usable_mib.value < memory.physical_mib.value
    assert memory.reserve_mib.value < memory.usable_mib.value / 4
    assert f"{memory.physical_mib.value / 1024:.0f}" in {"4", "8", "16", "32", "64", "128"}


def test_orin_computes_neither_fp8_nor_fp4_but_decodes_both() -> None:
    for name in BOARDS:
        profile = load_profile(name)
        if profile.sm == "8.7":
            assert not {"fp8", "nvfp4"} & set(profile.formats.compute)
            assert {"fp8", "nvfp4"} <= set(profile.formats.weights)


def test_an_unknown_name_gives_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        load_profile("orin-nano-8b")
    assert "'orin-nano-8gb'" in caught.value.hint
    assert "dgx-spark" in caught.value.cause


MINIMAL = """
schema_version = 1
name = "board"
title = "A board"
family = "jetson"
[memory]
unified = true
physical_mib = { value = 8192, source = "its label" }
usable_mib = { value = 7000, measured = false }
reserve_mib = { value = 512, measured = false }
runtime_mib = { value = 500, measured = false }
[formats]
compute = ["bf16"]
weights = ["bf16"]
[defaults]
recipe = "published"
executor = "ort"
context = 4096
kv_dtype = "bfloat16"
prefill_chunk = 128
snapshot_budget_mib = 64
"""


def test_a_board_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "board.toml"
    path.write_text(MINIMAL)
    assert load_profile(str(path)).title == "A board"
    with pytest.raises(EdgekitError, match="no device profile at"):
        load_profile(str(tmp_path / "other.toml"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("unified = true", "unified = true\nbandwith_gb_s = 3", "bandwith_gb_s"),
        ('source = "its label"', "measured = true", "needs a source"),
        ("usable_mib = { value = 7000, measured = false }\n", "", "usable_mib"),
        ('"bfloat16"', '"bf16"', "kv_dtype"),
        ("schema_version = 1", "schema_version = 2", "schema_version"),
        ("context = 4096", "context = 0", "context"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, message: str) -> None:
    assert old in MINIMAL
    with pytest.raises(EdgekitError, match="no device profile") as caught:
        parse_profile(MINIMAL.replace(old, new), "board.toml")
    assert message in caught.value.cause


def test_toml_that_is_none() -> None:
    with pytest.raises(EdgekitError, match="not valid TOML"):
        parse_profile("name = ", "board.toml")
