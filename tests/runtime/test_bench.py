"""What `bench` measures, and what its figures are made of. No time is asserted anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.doctor import Machine
from edgekit.errors import DoesNotFitError, UsageError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.profile import load_profile
from edgekit.runtime.bench import bandwidth, environment, plot, traffic
from edgekit.runtime.bench.case import Case, check_fits, make_cases
from edgekit.runtime.bench.environment import Look, PowerLog, Sensors, Watch, throttling
from edgekit.runtime.bench.measure import QUESTIONS, Sample, _share, measure
from edgekit.runtime.bench.run import _speculation, peak_rss, spread
from edgekit.runtime.events import SpeculationStats
from edgekit.runtime.model import Model
from edgekit.runtime.speculate.length import FixedLength
from edgekit.runtime.speculate.ngram import NgramDrafter
from edgekit.runtime.speculate.rounds import Speculator
from tests.doctor.test_doctor import on, record
from tests.doctor.test_readings import AGX_ORIN, FakeNvml
from tests.runtime.fake_model import make_model
from tests.tools.cpu_device import CpuDevice
from tests.tools.random_checkpoint import write_random_checkpoint

# -- cases


def test_cases_are_named_as_llama_bench_names_them() -> None:
    cases = make_cases([512, 0], [128], [0, 4096])
    assert [case.name for case in cases] == ["pp512", "tg128", "pp512 @ d4096", "tg128 @ d4096"]
    assert make_cases([8, 8], [0], [0]) == (Case("prompt", 8),)
    with pytest.raises(UsageError, match="nothing to measure"):
        make_cases([0], [0], [0])


def test_a_case_must_fit_the_context() -> None:
    check_fits(make_cases([512], [480], [0]), 512, start=32)
    with pytest.raises(DoesNotFitError, match=r"pp512 @ d1 needs 513 tokens, the context holds"):
        check_fits(make_cases([512], [0], [1]), 512)
    with pytest.raises(DoesNotFitError) as caught:
        check_fits(make_cases([0], [481], [9]), 512, start=32)
    assert "--context 522" in caught.value.hint
    assert caught.value.cause == "481 of the generation, 32 to go on from, 9 before"


# -- measuring


def test_runs_take_turns_and_come_back_to_their_depth() -> None:
    model = make_model(prefix_bytes=0)
    seen: list[tuple[int, int, str]] = []
    cases = make_cases([20], [5], [0, 30])
    found = measure(
        model,
        cases,
        repeats=2,
        warmup=1,
        on_progress=lambda done, total, name: seen.append((done, total, name)),
    )
    assert [(one.case, len(one.samples)) for one in found] == [(case, 2) for case in cases]
    assert [name for _, _, name in seen[:6]] == ["pp20", "tg5"] * 3
    assert seen[-1] == (12, 12, "")
    for one in found:
        for sample in one.samples:
            assert sample.ended > sample.started
            assert len(sample.tokens) == (5 if one.case.kind == "generation" else 0)
            assert sum(sample.tokens) == pytest.approx(
                sample.seconds if one.case.kind == "generation" else 0
            )
            assert (sample.first > 0) == (one.case.kind == "prompt")
    session = model.session
    assert session.restored == [30] * 6  # type: ignore[attr-defined]  # never filled again
    assert sum(session.steps) >= 30  # type: ignore[attr-defined]


def test_a_generation_goes_on_past_the_end_of_the_answer() -> None:
    end = make_model().tokenizer.eos_token_ids[0]
    model = make_model(prefix_bytes=0, script=lambda tokens: end)
    (found,) = measure(model, [Case("generation", 9)], repeats=1, warmup=0)
    assert len(found.samples[0].tokens) == 9


def test_a_model_without_a_template_goes_on_from_the_bare_question() -> None:
    model = make_model(prefix_bytes=0, template=None)
    (found,) = measure(model, [Case("generation", 2)], repeats=1, warmup=0)
    assert found.start == max(len(model.tokenizer.encode(question)) for question in QUESTIONS)


def test_drafting_is_counted_at_every_depth() -> None:
    plain = make_model(prefix_bytes=0, script=lambda tokens: 100 + len(tokens) % 3)
    model = Model(
        plain.session,
        plain.tokenizer,
        plain.template,
        speculator=Speculator(NgramDrafter(), FixedLength(3), "ngram"),
    )
    cases = make_cases([8], [24], [0, 16])
    found = measure(model, cases, repeats=2, warmup=0)
    for one in found:
        for sample in one.samples:
            if one.case.kind == "prompt":
                assert sample.speculation is None
                continue
            assert sample.speculation is not None
            assert sample.speculation.rounds > 0
            assert sum(sample.speculation.accepted) > 0  # the text repeats itself
            assert len(sample.tokens) == 24


def test_tokens_of_one_step_share_its_time() -> None:
    seconds = np.array([4.0, 0.1, 0.1, 6.0, 0.0])
    assert _share(seconds, [1, 1, 1, 2, 2]) == pytest.approx([1.4, 1.4, 1.4, 3.0, 3.0])


def test_the_slow_end_of_rates_is_the_low_one() -> None:
    times = [float(n) for n in range(1, 101)]
    assert spread(times, 95) == {"median": 50.5, "p95": pytest.approx(95.05)}
    assert spread([1 / t for t in times], 5)["p95"] < spread([1 / t for t in times], 5)["median"]


def test_drafting_of_all_runs_is_added_up() -> None:
    def sample(rounds: int, offered: tuple[int, ...], accepted: tuple[int, ...]) -> Sample:
        stats = SpeculationStats("ngram", rounds, 1, offered, accepted, 0.0, 0.0, 0.0)
        return Sample(0.0, 1.0, speculation=stats)

    found = _speculation([sample(4, (4, 2), (2, 1)), sample(1, (1,), (1,))])
    assert found == {
        "drafter": "ngram",
        "rounds": 5,
        "plain_steps": 2,
        "tokens_per_round": 1 + 4 / 5,
        "acceptance": [3 / 5, 1 / 2],
    }
    assert _speculation([Sample(0.0, 1.0)]) is None


# -- the picture


def _record(bandwidth: float | None) -> dict[str, Any]:
    def result(test: str, kind: str, rate: float, moved: float) -> dict[str, Any]:
        return {
            "test": test,
            "kind": kind,
            "tokens_per_second": {"median": rate},
            "operations_per_token": 2e9,
            "bytes_per_token": moved,
        }

    return {
        "bundle": {"name": "tiny"},
        "environment": {"executor": "x", "gpu": None, "cpu": "y", "power_mode": "MAXN"},
        "bandwidth": bandwidth,
        "bandwidth_why": "told",
        "results": [
            result("pp8", "prompt", 1000.0, 1e7),
            result("tg2", "generation", 20.0, 1e9),
            result("tg4", "generation", 10.0, 2e9),
        ],
    }


@pytest.mark.parametrize("bandwidth", [50e9, None])
def test_points_lie_where_their_bytes_and_operations_put_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bandwidth: float | None
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(plot, "save_png", lambda figure, path: drawn.append(figure))
    plot.plot_roofline(tmp_path / "x.png", _record(bandwidth))
    (axis,) = drawn[0].axes
    points = [tuple(found.get_offsets()[0]) for found in axis.collections]
    assert points == [(200.0, 2000.0), (2.0, 40.0), (1.0, 20.0)]
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels[-3:] == ["pp8, 1000 tok/s", "tg2, 20 tok/s", "tg4, 10 tok/s"]
    assert drawn[0].get_suptitle() == "tiny, x, y, MAXN"
    if bandwidth is None:
        assert not axis.lines
        return
    (line,) = axis.lines
    for x, y in line.get_xydata():
        assert y * 1e9 == pytest.approx(50e9 * x)
    assert labels[0] == "50 GB/s, told"


# -- bytes and bandwidth


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    checkpoint = write_random_checkpoint(tmp_path_factory.mktemp("bench") / "tiny", pattern="M*E-")
    request = BuildRequest(checkpoint, checkpoint.parent / "bundle", "cpu", "none", 64, 16)
    return Bundle.open(build_bundle(request))


def test_a_token_reads_the_experts_it_chooses(bundle: Bundle) -> None:
    spec, manifest = bundle.spec, bundle.manifest
    n, k = spec.n_routed_experts, spec.num_experts_per_tok
    assert 0 < k < n
    # ONNX Runtime's MoE takes float32, and each up matrix twice.
    assert manifest.expert_bytes == 4 * n * 3 * spec.moe_intermediate_size * spec.hidden_size
    state = 2 * spec.state_bytes()
    dense = manifest.weight_bytes - manifest.expert_bytes
    expected = dense + manifest.expert_bytes * k / n + state
    assert traffic.token_bytes(bundle, 0) == pytest.approx(expected)
    rows = traffic.token_bytes(bundle, 10) - traffic.token_bytes(bundle, 0)
    assert rows == pytest.approx(10 * spec.kv_bytes_per_token(4))
    many = traffic.chunk_bytes(bundle, 4096, 0)
    assert many == pytest.approx(manifest.weight_bytes + state)
    # The table of the embedding is not among them.
    assert manifest.weight_bytes < bundle.file("weights/weights.bin").stat().st_size


def test_operations_are_those_of_the_active_weights(bundle: Bundle) -> None:
    spec = bundle.spec
    expert = 2 * spec.moe_intermediate_size * spec.hidden_size
    idle = expert * (spec.n_routed_experts - spec.num_experts_per_tok)
    from edgekit.parameters import count_parameters

    matrices = count_parameters(spec).matrices
    active = sum(matrices.values()) - matrices["embedding"] - idle
    assert traffic.token_operations(bundle) == 2 * active


def test_copies_give_a_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "_CPU_BYTES", 1 << 16)
    monkeypatch.setattr(bandwidth, "_DEVICE_BYTES", 1 << 16)
    assert bandwidth.cpu_bandwidth(2) > 0
    assert bandwidth.device_bandwidth(CpuDevice()) > 0
    rss = peak_rss()
    assert rss is not None
    assert rss > 1 << 20


# -- the environment


def test_energy_is_the_area_under_the_readings() -> None:
    log = PowerLog([0.0, 1.0, 3.0], [10.0, 20.0, 20.0])
    assert log.joules(0.0, 3.0) == pytest.approx(15 + 40)
    assert log.joules(0.5, 1.0) == pytest.approx(8.75)
    assert log.joules(3.0, 5.0) == pytest.approx(40)  # the last reading goes on
    assert PowerLog().joules(0.0, 1.0) is None


def look(**changes: object) -> Look:
    fields: dict[str, object] = {
        "cpu_mhz": None, "gpu_mhz": None, "memory_mhz": None, "celsius": None,
        "throttles": {}, "counts": {},
    }  # fmt: skip
    return Look(**(fields | changes))  # type: ignore[arg-type]


def test_throttling_is_what_was_on_or_was_counted() -> None:
    assert throttling([look(), look()]) is None
    assert throttling([look(counts={"oc1": 2}), look(counts={"oc1": 2})]) == []
    calm = look(counts={"oc1": 2}, throttles={"power cap": False})
    hot = look(counts={"oc1": 3}, throttles={"power cap": True})
    assert throttling([calm, hot]) == ["oc1", "power cap"]


def test_sensors_of_a_board_and_of_a_card(tmp_path: Path) -> None:
    board = Sensors(on(record(tmp_path, AGX_ORIN)), None)
    assert board.watts() == pytest.approx(16.9)
    assert board.power_source == "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0+VDDQ_VDD2_1V8AO"
    from edgekit.doctor.nvml import Nvml

    gpu = Nvml(FakeNvml(nvmlDeviceGetPowerUsage=300_000, nvmlDeviceGetTemperature=70))
    card = Sensors(on(tmp_path / "none", "gpu"), gpu)
    assert card.watts() == 300
    assert card.power_source == "NVML, the GPU alone"
    assert card.look().celsius == 70
    nothing = Sensors(on(tmp_path / "none", "cpu"), None)
    assert nothing.watts() is None
    assert nothing.power_source == ""
    assert nothing.look() == look()


def test_a_watch_reads_before_and_after_and_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_POWER_SECONDS", 0.0)
    ticks: Iterator[int] = count()
    sensors = Sensors(on(record(tmp_path, AGX_ORIN)), None)
    with Watch(sensors, clock=lambda: float(next(ticks))) as watch:
        while len(watch.looks) < 3:
            pass
    assert watch.power.times == [float(n) for n in range(len(watch.power.times))]
    assert watch.power.watts == pytest.approx([16.9] * len(watch.power.watts))


def test_the_environment_of_a_machine_that_tells_nothing(bundle: Bundle, tmp_path: Path) -> None:
    machine = Machine(tmp_path, load_profile("orin-nano-8gb"), "recorded", tmp_path)
    sensors = Sensors(machine, None)
    found = environment.environment_record(bundle, machine, sensors, [sensors.look()] * 2)
    unknown = {name for name, value in found.items() if value is None}
    assert unknown == {
        "cpu", "gpu", "power_mode", "cpu_mhz", "gpu_mhz", "memory_mhz", "celsius", "throttling",
        "power_source",
    }  # fmt: skip
    assert found["executor"] == "onnxruntime-cpu"
    record(tmp_path, {"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd42\n"})
    assert environment.cpu_name(machine) == "Arm core 0xd42"
