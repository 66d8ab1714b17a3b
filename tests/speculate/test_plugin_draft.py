"""The DSpark draft of a `plugin` bundle: on a CPU that stands in for the device, and on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from edgekit.bundle import Bundle
from edgekit.cli.options import embedded_checkpoint
from edgekit.draft import DraftRequest
from edgekit.errors import BuildError
from edgekit.export.build import BuildRequest, build_bundle
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.executors import open_session
from edgekit.runtime.executors.plugin import PluginSession
from edgekit.runtime.executors.plugin_draft import PluginDraft
from edgekit.runtime.model import Model
from edgekit.runtime.sampling import distribution
from edgekit.runtime.session import Draw
from edgekit.runtime.speculate.choose import open_speculator
from edgekit.runtime.speculate.length import FixedLength
from edgekit.runtime.speculate.rounds import Speculator
from edgekit.runtime.template import ChatTemplate
from edgekit.runtime.tokenizer import Tokenizer
from tests.tools.cpu_device import CpuDevice, emulated
from tests.tools.plugin_reference import philox
from tests.tools.random_draft import dflash_config, write_random_draft

NANO = embedded_checkpoint()
DRAFT = DraftRequest(NANO / "draft")
GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


def built(folder: Path, lowering: Any, **how: Any) -> Bundle:
    request = BuildRequest(
        NANO, folder / lowering, "cpu", "none", 512, 64, lowering=lowering, drafts=DRAFT, **how
    )
    return Bundle.open(build_bundle(request))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    folder = tmp_path_factory.mktemp("bundles")
    return {lowering: built(folder, lowering) for lowering in ("plugin", "ort")}


def opened(bundle: Bundle) -> tuple[PluginSession, PluginDraft]:
    session = PluginSession(bundle, CpuDevice())
    (graphs,) = bundle.manifest.drafts
    return session, PluginDraft(session, bundle, graphs)


def model_of(bundle: Bundle, session: PluginSession, speculator: Speculator | None) -> Model:
    tokenizer, template = Tokenizer.load(bundle.path), ChatTemplate.load(bundle.path)
    return Model(session, tokenizer, template, speculator=speculator)


def rows_of(drafter: Any, anchor: int, k: int) -> tuple[list[int], np.ndarray[Any, Any]]:
    found: list[Any] = []

    def choose(logits: Any) -> int:
        found.append(np.array(logits))
        return int(logits.argmax())

    return drafter.propose(anchor, k, choose), np.stack(found)


def test_it_drafts_what_the_float32_draft_drafts(bundles: dict[str, Bundle]) -> None:
    """Within bfloat16, through a prompt longer than the window and the rows beyond it."""
    text = [int(t) for t in np.random.default_rng(4).integers(20, 4000, 420)]
    session, drafter = opened(bundles["plugin"])
    theirs = open_session(bundles["ort"], threads=1)
    other = open_speculator(theirs, bundles["ort"], "dspark", 7, 1)
    assert other is not None
    for at in range(0, 416, 52):
        tokens = text[at : at + 52]
        drafter.observe(tokens, session.step(tokens).taps)
        other.drafter.observe(tokens, theirs.step(tokens).taps)
    assert drafter.window.length < drafter.window.position == 416
    _, found = rows_of(drafter, text[416], 7)
    _, expected = rows_of(other.drafter, text[416], 7)
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error[0] < 0.05


@pytest.mark.parametrize("drafts", [True, False])
def test_a_drawn_round_judges_what_it_drafts(bundles: dict[str, Bundle], drafts: bool) -> None:
    """With the numbers that seed and positions give, the round of runtime/speculate/accept.py."""
    text, k = [5, 77, 402, 31, 9, 1200, 88], 4
    params = SamplingParams(temperature=1.2, top_p=0.9)
    session, drafter = opened(bundles["plugin"])
    drafter.observe(text, session.step(text).taps)
    seen = set()
    for seed in range(12):
        draw = Draw(1.2, 0, 0.9, 0.0, seed, drafts)
        drafted, chosen = drafter.round(44, k, draw)
        session.commit(0)
        at = len(text)
        found: list[Any] = []
        following = iter(drafted)

        def choose(logits: Any, found: list[Any] = found, following: Any = following) -> int:
            found.append(distribution(logits, params) if drafts else int(logits.argmax()))
            return int(next(following))

        drafter.propose(44, k, choose)
        target = session.verify([44, *drafted]).logits
        session.commit(0)
        for i, row in enumerate(target):
            p = distribution(row, params)
            token = taken(p, philox(at + i, 0, seed))
            if i < k and not drafts:
                assert drafted[i] == found[i]
            elif i < k:
                q = found[i]
                assert drafted[i] == taken(q, philox(at + i, 2, seed))
                keep = philox(at + i, 1, seed) / 2**64
                stays = keep * q[drafted[i]] < p[drafted[i]]
                rest = np.maximum(p - q, 0)
                token = drafted[i] if stays else taken(rest, philox(at + i, 0, seed))
                seen.add(stays)
            assert chosen[i] == token
    assert seen == ({True, False} if drafts else set())


def taken(weights: Any, number: int) -> int:
    mass = np.cumsum(weights)
    return int(np.searchsorted(mass, number / 2**64 * mass[-1], side="right"))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_round_on_the_device_is_a_round_on_the_host(bundles: dict[str, Bundle], k: int) -> None:
    session, drafter = opened(bundles["plugin"])
    text = [5, 77, 402, 31, 9, 1200, 88]
    drafter.observe(text, session.step(text).taps)
    expected, _ = rows_of(drafter, 44, k)
    logits = session.verify([44, *expected]).logits
    best = [int(row.argmax()) for row in logits]
    session.commit(0)
    drafted, chosen = drafter.round(44, k, None)
    assert (drafted, chosen) == (expected, best)
    session.commit(1)
    assert session.length == len(text) + 1


@pytest.mark.parametrize(
    "params", [GREEDY, SamplingParams(seed=3, max_tokens=24)], ids=["greedy", "seed"]
)
def test_the_answer_is_that_of_plain_decoding(
    bundles: dict[str, Bundle], params: SamplingParams
) -> None:
    bundle = bundles["plugin"]
    messages = [{"role": "user", "content": "Tell me about bread."}]
    plain = model_of(bundle, PluginSession(bundle, CpuDevice()), None)
    said = [token for event in plain.chat(messages, params) for token in event.tokens]
    session, drafter = opened(bundle)
    rounds = []
    inner = drafter.round
    drafter.round = lambda anchor, k, draw: rounds.append(k) or inner(anchor, k, draw)  # type: ignore[method-assign]
    model = model_of(bundle, session, Speculator(drafter, FixedLength(5), "dspark"))
    events = list(model.chat(messages, params))
    assert [token for event in events for token in event.tokens] == said
    assert model.committed == plain.committed
    stats = events[-1].stats.speculation
    assert stats is not None
    assert len(rounds) == stats.rounds > 0
    assert sum(stats.accepted) >= 5


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=3, max_tokens=12, presence_penalty=0.5),
        SamplingParams(temperature=0.0, max_tokens=12, repetition_penalty=1.3),
        SamplingParams(temperature=0.0, max_tokens=12, logprobs=2),
    ],
    ids=["seed and penalty", "penalty", "logprobs"],
)
def test_what_needs_logits_gets_them(bundles: dict[str, Bundle], params: SamplingParams) -> None:
    bundle = bundles["plugin"]
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    plain = model_of(bundle, PluginSession(bundle, CpuDevice()), None)
    said = [token for event in plain.chat(messages, params) for token in event.tokens]
    session, drafter = opened(bundle)
    model = model_of(bundle, session, Speculator(drafter, FixedLength(3), "dspark"))
    events = list(model.chat(messages, params))
    assert [token for event in events for token in event.tokens] == said
    assert (params.logprobs is not None) == bool(events[0].logprobs)


@pytest.mark.parametrize("cuts", [[100], [7, 60, 100]])
def test_a_kept_beginning_is_as_good_as_a_computed_one(
    bundles: dict[str, Bundle], cuts: list[int]
) -> None:
    text = [int(t) for t in np.random.default_rng(4).integers(20, 4000, 101)]
    session, source = opened(bundles["plugin"])
    parts, first = [], 0
    for end in cuts:
        for at in range(first, end, 50):
            tokens = text[at : min(at + 50, end)]
            source.observe(tokens, session.step(tokens).taps)
        parts.append((first, source.read_rows(first)))
        first = end
    _, expected = rows_of(source, text[100], 5)
    _, other = opened(bundles["plugin"])
    other.resume(text[:100], parts)
    np.testing.assert_array_equal(rows_of(other, text[100], 5)[1], expected)


def test_what_the_kernels_do_not_run_is_refused(tmp_path: Path) -> None:
    config = dflash_config(hidden_size=256, vocab_size=4096)
    requests = {
        "bidirectional": DraftRequest(write_random_draft(tmp_path / "draft", config)),
        "behind the final norm": DraftRequest(mtp=True),
    }
    for cause, drafts in requests.items():
        request = BuildRequest(
            NANO, tmp_path / "b", "cpu", "none", 64, 16, lowering="plugin", drafts=drafts
        )
        with pytest.raises(BuildError) as caught:
            build_bundle(request)
        assert cause in f"{caught.value.message} {caught.value.cause}"
        assert not (tmp_path / "b").exists()


# -- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_on_a_gpu_the_answers_are_those_of_plain_decoding(
    tmp_path: Path, temperature: float
) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    from edgekit.runtime.model import load_model

    major, minor = torch.cuda.get_device_capability()
    bundle = built(tmp_path, "plugin", sm=10 * major + minor)
    kept = 0
    for question in ("Tell me about bread.", "Count from one to nine.", "What is edgekit?"):
        messages = [{"role": "user", "content": question}]
        params = SamplingParams(temperature=temperature, seed=5, max_tokens=64)
        with load_model(bundle.path) as plain:
            said = [token for event in plain.chat(messages, params) for token in event.tokens]
        with load_model(bundle.path, speculate="dspark", draft_tokens=7) as model:
            events = list(model.chat(messages, params))
        assert [token for event in events for token in event.tokens] == said
        stats = events[-1].stats.speculation
        assert stats is not None
        kept += sum(stats.accepted)
    assert kept > 40


@pytest.mark.gpu
@pytest.mark.parametrize("draw", [None, Draw(1.0, 20, 0.95, 0.0, 7, True)], ids=["greedy", "drawn"])
def test_a_round_waits_for_the_host_once(tmp_path: Path, draw: Draw | None) -> None:
    """Draft, verify, choice, commit and the draft's context: one read, of tokens."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    from torch.profiler import ProfilerActivity, profile

    major, minor = torch.cuda.get_device_capability()
    bundle = built(tmp_path, "plugin", sm=10 * major + minor)
    session = open_session(bundle)
    assert isinstance(session, PluginSession)
    drafter = PluginDraft(session, bundle, bundle.manifest.drafts[0])
    text = [5, 77, 402]
    drafter.observe(text, session.step(text).taps)

    def rounds(count: int) -> None:
        for _ in range(count):
            drafter.round(44, 3, draw)
            drafter.observe((44,), None)
            session.commit(1)

    rounds(2)  # captures the graphs
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True
    ) as trace:
        rounds(5)
    names = [event.name for event in trace.events()]
    waits = [name for name in names if name in ("cudaStreamSynchronize", "cudaEventSynchronize")]
    reads = [name for name in names if "Memcpy DtoH" in name]
    assert len(waits) == 5
    assert len(reads) == 5


@pytest.mark.slow
def test_the_kernels_draft_what_their_definitions_draft(bundles: dict[str, Bundle]) -> None:
    """Every launch of a draft in the emulator, behind a target in it too."""
    bundle = bundles["plugin"]
    found = []
    for device in (CpuDevice(emulated), CpuDevice()):
        session = PluginSession(bundle, device)
        drafter = PluginDraft(session, bundle, bundle.manifest.drafts[0])
        text = [5, 77, 402]
        drafter.observe(text, session.step(text).taps)
        tokens, rows = rows_of(drafter, 44, 2)
        found.append((tokens, rows, drafter.round(44, 2, None)))
    (tokens, rows, whole), (expected, expected_rows, expected_whole) = found
    assert (tokens, whole) == (expected, expected_whole)
    np.testing.assert_allclose(rows, expected_rows, atol=0.3)
