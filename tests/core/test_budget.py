"""The memory plan against published counts and sizes, and what it changes to make models fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.budget import Model, Plan, Wish, Wishes, fit_error, plan_memory
from edgekit.catalog import catalog
from edgekit.choice import Choice
from edgekit.detect import DeviceMemory, device_memory
from edgekit.errors import CheckpointError
from edgekit.parameters import count_parameters, stored_bytes
from edgekit.profile import DeviceProfile, load_profile, profile_names

LIGHTNING = catalog()["lightning"]
SPEC = LIGHTNING.spec
MODEL = Model(
    LIGHTNING.title,
    SPEC,
    count_parameters(SPEC).nbytes(LIGHTNING.formats),
    LIGHTNING.published,
)
BOARDS = [name for name in profile_names() if name not in ("cpu", "gpu")]


def wishes(profile: DeviceProfile, context: Wish[int] | None = None) -> Wishes:
    defaults = profile.defaults
    return Wishes(
        executor=Choice(defaults.executor, "profile"),
        kv_dtype=Wish(defaults.kv_dtype, "profile"),
        context=context or Wish(defaults.context, "profile"),
        prefill_chunk=Wish(defaults.prefill_chunk, "profile"),
    )


def plan(name: str, context: Wish[int] | None = None) -> Plan:
    profile = load_profile(name)
    return plan_memory(MODEL, profile, device_memory(profile), wishes(profile, context))


def test_lightning_has_the_published_number_of_parameters() -> None:
    parameters = count_parameters(SPEC)
    assert parameters.total == 31_577_937_344
    assert parameters.buffers == 23 * 128
    assert parameters.matrices["routed"] == 23 * 128 * 9_977_856


@pytest.mark.parametrize(
    ("formats", "default", "gigabytes"),
    [
        ({}, "bf16", 63.2),
        (LIGHTNING.formats, "bf16", 18.9),
        ({"attention": "bf16", "lm_head": "bf16", "embedding": "bf16"}, "fp8", 32.4),
        ({"embedding": "bf16"}, "nvfp4", 18.3),
    ],
)
def test_checkpoint_sizes(formats: dict[str, str], default: str, gigabytes: float) -> None:
    size = count_parameters(SPEC).nbytes(formats, default)  # type: ignore[arg-type]
    assert size / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_state_sizes() -> None:
    assert SPEC.kv_bytes_per_token(2) == 6_144
    assert SPEC.kv_bytes_per_token(1) == 3_072
    assert SPEC.state_bytes(4, 0) == 48_234_496
    assert SPEC.state_bytes(0, 2) == 847_872


def test_lightning_by_board() -> None:
    """Where it fits, as facts say: no Orin Nano or NX, marginal on AGX Orin 32 GB."""
    verdicts = {name: plan(name).verdict for name in BOARDS}
    assert verdicts == {
        "orin-nano-4gb": "does not fit",
        "orin-nano-8gb": "does not fit",
        "orin-nx-8gb": "does not fit",
        "orin-nx-16gb": "does not fit",
        "agx-orin-32gb": "marginal",
        "agx-orin-64gb": "fits",
        "thor-t4000": "fits",
        "thor-t5000": "fits",
        "dgx-spark": "fits",
    }


@pytest.mark.parametrize("name", ["thor-t5000", "dgx-spark"])
def test_near_published_peaks(name: str) -> None:
    """TensorRT Edge-LLM 0.9: Nano 30B NVFP4 peaks at 18,537 to 18,754 MB with 2,200 KV tokens."""
    result = plan(name, Wish(2200, "test", fixed=True))
    device = sum(item.nbytes for item in result.items if item.name != "snapshots")
    assert device / (1 << 20) == pytest.approx(18_650, rel=0.05)


def test_items_add_up() -> None:
    result = plan("thor-t5000")
    items = {item.name: item.nbytes for item in result.items}
    assert items["weights"] == MODEL.weight_bytes
    assert items["KV cache"] == 32768 * 6144
    assert items["conv and SSM state"] == 2 * SPEC.state_bytes()
    assert items["snapshots"] == 8 * SPEC.state_bytes()
    assert result.needed == sum(items.values())
    assert result.available == result.usable - result.reserve
    assert result.headroom == result.available - result.needed
    assert all(item.why for item in result.items)


def small(available_mib: int) -> tuple[DeviceProfile, DeviceMemory]:
    """Thor with much less memory."""
    profile = load_profile("thor-t5000")
    reserve = int(profile.memory.reserve_mib.value)
    usable = (available_mib + reserve) << 20
    return profile, DeviceMemory(2 * usable, usable, "test")


def test_snapshots_go_before_context_and_each_says_why() -> None:
    profile, _ = small(0)
    full = plan_memory(MODEL, profile, device_memory(profile), wishes(profile))
    exact = full.needed >> 20
    _, memory = small(exact - 100)
    result = plan_memory(MODEL, profile, memory, wishes(profile))
    assert result.headroom >= 0
    assert result.context.value == full.context.value
    assert result.snapshots.value < full.snapshots.value
    assert "8 do not fit" in result.snapshots.why
    _, memory = small(exact - 600)
    result = plan_memory(MODEL, profile, memory, wishes(profile))
    assert result.headroom >= 0
    assert result.context.value < full.context.value
    assert "32768" in result.context.why


def test_a_chosen_context_is_never_changed() -> None:
    profile, memory = small(19_200)
    chosen = Wish(131072, "--context", fixed=True)
    result = plan_memory(MODEL, profile, memory, wishes(profile, chosen))
    assert result.context == Choice(131072, "--context")
    assert result.verdict == "does not fit"
    error = fit_error(result, MODEL)
    assert "--context" in error.hint
    fitting = int(error.hint.split("--context ")[1].split()[0])
    again = wishes(profile, Wish(fitting, "--context", fixed=True))
    assert plan_memory(MODEL, profile, memory, again).headroom >= 0


def test_context_is_capped_at_the_models_own() -> None:
    spec = replace(SPEC, max_position_embeddings=2048)
    profile = load_profile("thor-t5000")
    result = plan_memory(
        replace(MODEL, spec=spec), profile, device_memory(profile), wishes(profile)
    )
    assert result.context.value == 2048
    assert "2048" in result.context.why


def test_what_would_fit_instead() -> None:
    boards = [plan(name) for name in BOARDS]
    error = fit_error(plan("orin-nano-8gb"), MODEL, boards)
    assert error.exit_code == 1
    assert "does not fit orin-nano-8gb" in error.message
    for word in ("weights", "KV cache", "needed", "available", "short by"):
        assert word in error.cause
    assert "agx-orin-32gb" in error.hint
    assert "Nano 4B" in error.hint
    assert "edgekit run nano" in error.hint
    tiny = fit_error(plan("orin-nano-4gb"), MODEL, boards)
    assert "Nano 4B" not in tiny.hint  # it would not fit there either


def test_onnx_runtime_holds_float32() -> None:
    profile = load_profile("cpu")
    memory = DeviceMemory(64 << 30, 60 << 30, "test")
    result = plan_memory(MODEL, profile, memory, wishes(profile))
    assert result.items[0].nbytes > 4 * 31_577_937_344
    assert result.verdict == "does not fit"


@given(
    available=st.integers(15_000, 40_000),
    context=st.integers(1, 300_000),
    chunk=st.integers(1, 4096),
    fixed=st.booleans(),
)
def test_a_plan_that_says_it_fits_does(
    available: int, context: int, chunk: int, fixed: bool
) -> None:
    profile, memory = small(available)
    asked = replace(
        wishes(profile, Wish(context, "test", fixed)), prefill_chunk=Wish(chunk, "test")
    )
    result = plan_memory(MODEL, profile, memory, asked)
    assert (result.verdict == "does not fit") == (result.needed > result.available)
    assert 1 <= result.prefill_chunk.value <= max(chunk, 1)
    assert result.prefill_chunk.value <= result.context.value
    assert result.context.value <= context
    if fixed:
        assert result.context.value == context


def write_safetensors(path: Path, tensors: dict[str, int]) -> None:
    header, at = {}, 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))


def test_stored_bytes(tmp_path: Path) -> None:
    assert stored_bytes(tmp_path) is None
    write_safetensors(tmp_path / "model.safetensors", {"a": 10, "mtp.b": 100})
    assert stored_bytes(tmp_path) == 10


def test_stored_bytes_of_shards(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 110}, "weight_map": {"a": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert stored_bytes(tmp_path) == 110  # before the download the index knows
    write_safetensors(tmp_path / "1.safetensors", {"a": 7, "mtp.b": 100})
    assert stored_bytes(tmp_path) == 7


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, (4).to_bytes(8, "little") + b"null"])
def test_a_damaged_header(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError):
        stored_bytes(tmp_path)
