"""The session contract on `ort`: verify and commit, snapshots, reset, taps, and the KV cache."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from edgekit.errors import DoesNotFitError, UsageError
from edgekit.runtime.executors import open_session
from edgekit.runtime.session import MAX_VERIFY, Session, Snapshot
from tests.executors.cases import TOLERANCE, VOCABULARY, Model, random_model
from tests.tools.hf_reference import HfReference

STATE_TOLERANCE = 2e-5
"""Largest difference of a state element; they reach about 10."""

STATEFUL = ("every-kind", "attention-first", "only-mamba", "no-mamba", "four-groups")
PREFIX = 37


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=STATEFUL)
def model(request: pytest.FixtureRequest, root: Path) -> Model:
    return random_model(request.param, root)


@pytest.fixture
def session(model: Model) -> Iterator[Session]:
    opened = open_session(model.bundle(), threads=1)
    yield opened
    opened.close()


def bits(arrays: Sequence[npt.NDArray[Any]]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def assert_close(actual: Snapshot, expected: Snapshot) -> None:
    assert actual.length == expected.length
    for one, other in zip(actual.arrays, expected.arrays, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=STATE_TOLERANCE)


# -- verify and commit


def test_verify_and_commit_are_single_steps(model: Model, session: Session) -> None:
    """For every T and n: the rows, the state after commit, and the logits of the next step."""
    ids = model.ids
    session.step(ids[:PREFIX])
    start = session.snapshot()
    rows, states = [], [start]
    for token in ids[PREFIX : PREFIX + MAX_VERIFY + 1]:
        rows.append(session.step([token]).logits[0].copy())
        states.append(session.snapshot())
    if start.arrays:  # every step moves the state, or the comparison below would mean nothing
        for before, after in itertools.pairwise(states):
            assert all(
                np.abs(a - b).max() > 100 * STATE_TOLERANCE
                for a, b in zip(before.arrays, after.arrays, strict=True)
            )

    for T in range(1, MAX_VERIFY + 1):
        for n in range(T + 1):
            session.restore(start)
            verified = session.verify(ids[PREFIX : PREFIX + T]).logits
            assert session.length == PREFIX
            np.testing.assert_allclose(verified, np.stack(rows[:T]), rtol=0, atol=TOLERANCE)
            session.commit(n)
            assert session.length == PREFIX + n
            assert_close(session.snapshot(), states[n])
            logits = session.step([ids[PREFIX + n]]).logits[0]
            np.testing.assert_allclose(logits, rows[n], rtol=0, atol=TOLERANCE)


def test_rejected_tokens_leave_nothing(model: Model, session: Session) -> None:
    """After commit(n) it makes no difference what the rejected tokens were.

    Without experts that holds to the bit. With them, how many rows an expert multiplies at once
    depends on all tokens of the step, and so does the order of its sums.
    """
    ids = model.ids
    states, logits = [], []
    for wrong in (11, 200):
        session.reset()
        session.step(ids[:PREFIX])
        session.verify([*ids[PREFIX : PREFIX + 2], wrong, wrong, wrong])
        session.commit(2)
        states.append(session.snapshot())
        logits.append(session.step([ids[PREFIX + 2]]).logits[0].copy())
    if "E" in model.bundle().spec.layers:
        assert_close(*states)
        np.testing.assert_allclose(logits[0], logits[1], rtol=0, atol=TOLERANCE)
    else:
        assert bits(states[0].arrays) == bits(states[1].arrays)
        assert logits[0].tobytes() == logits[1].tobytes()


def test_verify_does_not_touch_the_committed_state(session: Session, model: Model) -> None:
    session.step(model.ids[:PREFIX])
    before = session.snapshot()
    for T in (1, 3, MAX_VERIFY):
        session.verify(model.ids[PREFIX : PREFIX + T])
        session.commit(0)
        after = session.snapshot()
        assert after.length == before.length
        assert bits(after.arrays) == bits(before.arrays)


def test_in_place_decode_is_double_buffered_advance(model: Model, session: Session) -> None:
    """A decode step overwrites its state; verify and commit(1) write beside it. Same bits."""
    session.step(model.ids[:PREFIX])
    start = session.snapshot()
    runs = []
    for in_place in (True, False, True):
        session.restore(start)
        logits = []
        for token in model.ids[PREFIX : PREFIX + 5]:
            if in_place:
                logits.append(session.step([token]).logits[0].tobytes())
            else:
                logits.append(session.verify([token]).logits[0].tobytes())
                session.commit(1)
        runs.append((logits, bits(session.snapshot().arrays)))
    assert runs[0] == runs[1] == runs[2]


def test_any_order_of_calls_follows_transformers(model: Model, session: Session) -> None:
    """Four hundred random calls; whatever was committed is always a prefix of `ids`."""
    expected = model.logits(1000)
    rng = np.random.default_rng(3)
    saved: list[Snapshot] = []  # of tokens that the cache still holds

    def compare(logits: npt.NDArray[np.float32], first: int) -> None:
        rows = expected[first : first + len(logits)]
        np.testing.assert_allclose(logits, rows, rtol=0, atol=TOLERANCE)

    seen = set()
    for _ in range(400):
        at = session.length
        call = rng.choice(["decode", "decode", "verify", "verify", "chunk", "save", "back"])
        if at > 900:
            call = "reset"
        seen.add(call)
        if call == "decode":
            compare(session.step([model.ids[at]]).logits, at)
        elif call == "chunk":
            T = int(rng.integers(2, 30))
            compare(session.step(model.ids[at : at + T], logits="all").logits, at)
        elif call == "verify":
            T = int(rng.integers(1, MAX_VERIFY + 1))
            n = int(rng.integers(0, T + 1))
            draft = model.ids[at : at + n]
            draft += rng.integers(0, VOCABULARY, T - n).tolist()
            compare(session.verify(draft).logits[:n], at)
            session.commit(n)
        elif call == "save":
            saved.append(session.snapshot())  # in the order of their lengths
        elif call == "back" and saved:
            del saved[int(rng.integers(len(saved))) + 1 :]
            session.restore(saved[-1])
        elif call == "reset":
            session.reset()
            saved.clear()
    assert {"decode", "chunk", "verify", "save", "back"} <= seen


# -- snapshot, restore, reset


def test_restore_is_exact(model: Model, session: Session) -> None:
    ids = model.ids

    def continuation() -> list[bytes]:
        rows = [session.step([token]).logits.tobytes() for token in ids[PREFIX : PREFIX + 4]]
        rows.append(session.step(ids[PREFIX + 4 : PREFIX + 20], logits="all").logits.tobytes())
        return rows

    session.step(ids[:PREFIX])
    snapshot = session.snapshot()
    copies = bits(snapshot.arrays)
    expected = continuation()
    assert bits(snapshot.arrays) == copies  # its own memory
    assert not snapshot.arrays or bits(session.snapshot().arrays) != copies

    session.restore(snapshot)  # after more tokens
    assert bits(session.snapshot().arrays) == copies
    assert continuation() == expected

    session.restore(snapshot)  # after a verify step and a partial commit
    session.verify(ids[PREFIX : PREFIX + 6])
    session.commit(3)
    session.restore(snapshot)
    assert session.length == PREFIX
    assert bits(session.snapshot().arrays) == copies
    assert continuation() == expected

    session.restore(snapshot)  # in place of a commit
    session.verify([1, 2, 3])
    session.restore(snapshot)
    assert continuation() == expected


def test_a_snapshot_is_as_large_as_the_model_says(model: Model, session: Session) -> None:
    assert session.snapshot().nbytes == model.bundle().spec.state_bytes()


def test_reset_is_a_new_session(model: Model, session: Session) -> None:
    ids = model.ids[:60]
    first = session.step(ids, logits="all").logits.tobytes()
    state = bits(session.snapshot().arrays)
    session.verify([1, 2, 3, 4])
    session.commit(2)
    session.step([5])
    session.verify([6])  # reset abandons it
    session.reset()
    assert session.length == 0
    assert all(not array.any() for array in session.snapshot().arrays)
    assert session.step(ids, logits="all").logits.tobytes() == first
    assert bits(session.snapshot().arrays) == state


# -- taps


class ResidualReference(HfReference):
    def residuals(self, ids: Sequence[int]) -> list[npt.NDArray[np.float32]]:
        """The residual stream [T, H] after each layer."""
        streams: list[npt.NDArray[np.float32]] = []

        def record(module: Any, inputs: Any, output: Any) -> None:
            streams.append((output[0] if isinstance(output, tuple) else output)[0].numpy().copy())

        hooks = [layer.register_forward_hook(record) for layer in self._model.model.layers]
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._model(input_ids=torch.tensor([list(ids)]), use_cache=False)
        for hook in hooks:
            hook.remove()
        return streams


@pytest.mark.parametrize("taps", [(0,), (5,), (0, 2, 5), (4, 1, 3)])
def test_taps_are_the_residual_stream(root: Path, taps: tuple[int, ...]) -> None:
    model = random_model("every-kind", root)
    ids = model.ids[:70]
    streams = ResidualReference(model.folder).residuals(ids)
    expected = np.concatenate([streams[layer] for layer in taps], axis=-1)
    assert 0.5 < expected.std() < 5

    session = open_session(model.bundle(taps=taps), threads=1)
    whole = session.step(ids, logits="all").taps
    assert whole is not None
    assert whole.shape == (70, len(taps) * 64)
    np.testing.assert_allclose(whole, expected, rtol=0, atol=TOLERANCE)

    session.reset()
    session.step(ids[:60])
    decoded = session.step([ids[60]]).taps
    assert decoded is not None
    np.testing.assert_allclose(decoded, expected[60:61], rtol=0, atol=TOLERANCE)
    verified = session.verify(ids[61:66])
    assert verified.taps is not None
    np.testing.assert_allclose(verified.taps, expected[61:66], rtol=0, atol=TOLERANCE)
    session.close()


def test_without_taps_there_are_none(session: Session) -> None:
    assert session.step([1, 2]).taps is None


# -- memory


def peak_anonymous_growth(session: Session, ids: Sequence[int]) -> int:
    """Bytes by which the process's peak grows while the session runs one step."""

    def read(field: str) -> int:
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(field))
        return int(line.split()[1]) << 10

    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = read("VmHWM")
    session.step(ids)
    return read("VmHWM") - before


def test_a_step_does_not_copy_the_cache(root: Path) -> None:
    """Caches of 256 MiB that nothing has touched yet: a copy would make them resident."""
    model = random_model("attention-first", root)
    spec = model.bundle().spec
    context = 1 << 20
    config = model.folder / "config.json"
    text = config.read_text()
    config.write_text(
        text.replace('"max_position_embeddings": 4096', '"max_position_embeddings": 1048576')
    )
    try:
        bundle = model.bundle(context=context)
    finally:
        config.write_text(text)
    assert context * spec.kv_bytes_per_token(4) == 256 << 20
    session = open_session(bundle, threads=1)
    session.step(model.ids[:100])  # kernels allocate their workspace
    session.step([1])
    for ids in (model.ids[:100], [1], [1, 2, 3]):
        assert peak_anonymous_growth(session, ids) < 24 << 20
    session.verify([1, 2, 3, 4])
    session.commit(2)
    assert peak_anonymous_growth(session, [1]) < 24 << 20
    session.close()


def test_the_cache_is_written_where_it_stands(root: Path) -> None:
    """Only rows length..length+T change, in the same memory, and no row behind them is read."""
    model = random_model("no-mamba", root)
    session: Any = open_session(model.bundle(), threads=1)
    caches = {
        name: buffer
        for name, buffer in session._state.items()
        if name.split(".")[0].endswith("_cache")
    }
    assert len(caches) == 4
    addresses = {name: buffer.value.data_ptr() for name, buffer in caches.items()}
    for buffer in caches.values():
        buffer.array[...] = np.nan
    at = 0
    for T in (5, 1, 1, 8, 1):
        before = {name: buffer.array.copy() for name, buffer in caches.items()}
        logits = session.step(model.ids[at : at + T], logits="all").logits
        assert np.abs(logits - model.logits(128)[at : at + T]).max() <= TOLERANCE
        for name, buffer in caches.items():
            assert session._state[name].value.data_ptr() == addresses[name]
            assert buffer.array.__array_interface__["data"][0] == addresses[name]
            written = np.ones(buffer.array.shape[2], dtype=bool)
            written[at : at + T] = False
            assert buffer.array[:, :, written].tobytes() == before[name][:, :, written].tobytes()
            assert np.isfinite(buffer.array[:, :, at : at + T]).all()
        at += T
    session.close()


# -- what the contract refuses


def test_a_full_context_refuses_more_and_changes_nothing(root: Path) -> None:
    model = random_model("every-kind", root)
    session = open_session(model.bundle(context=20), threads=1)
    session.step(model.ids[:18])
    state = bits(session.snapshot().arrays)
    for call in (session.step, session.verify):
        with pytest.raises(DoesNotFitError, match="18 tokens and 3 more, of 20"):
            call(model.ids[18:21])
    assert session.length == 18
    assert bits(session.snapshot().arrays) == state
    logits = session.step(model.ids[18:20], logits="all").logits
    assert np.abs(logits - model.logits(128)[18:20]).max() <= TOLERANCE
    assert session.length == session.capacity == 20
    with pytest.raises(DoesNotFitError):
        session.step([1])
    session.close()


def test_calls_out_of_order_are_refused(model: Model, session: Session) -> None:
    with pytest.raises(ValueError, match="does not follow a verify"):
        session.commit(0)
    with pytest.raises(ValueError, match="at most 8"):
        session.verify([1] * 9)
    for tokens in ([], [1] * 129):
        with pytest.raises(ValueError, match=r"1\.\.128 tokens"):
            session.step(tokens)
    session.verify([1, 2])
    for n in (-1, 3):
        with pytest.raises(ValueError, match=f"commit\\({n}\\)"):
            session.commit(n)
    for call in (lambda: session.step([1]), lambda: session.verify([1]), session.snapshot):
        with pytest.raises(ValueError, match="waiting for commit"):
            call()
    session.commit(1)
    with pytest.raises(ValueError, match="does not follow a verify"):
        session.commit(1)
    assert session.length == 1


@pytest.mark.parametrize("token", [-1, VOCABULARY])
def test_a_token_outside_the_vocabulary_changes_nothing(session: Session, token: int) -> None:
    session.step([1, 2, 3])
    before = session.snapshot()
    for call in (session.step, session.verify):
        with pytest.raises(ValueError, match="from 0 to 255"):
            call([4, token])
    after = session.snapshot()
    assert after.length == before.length
    assert bits(after.arrays) == bits(before.arrays)


def test_taps_and_contexts_that_do_not_exist_are_refused(root: Path) -> None:
    model = random_model("every-kind", root)
    with pytest.raises(UsageError, match=r"tapped layers \[7\]"):
        model.bundle(taps=(1, 7))
    with pytest.raises(UsageError, match="longer than the model's 4096"):
        model.bundle(context=4097)
    with pytest.raises(UsageError, match="at least 1"):
        model.bundle(context=0)


def test_sessions_beside_each_other_do_not_mix(model: Model, session: Session) -> None:
    """Two sequences take turns over one loaded model: each is as if it were alone."""
    other = open_session(model.bundle(), threads=1, beside=session)
    alone = open_session(model.bundle(), threads=1)
    one, two = [int(i) for i in model.ids[:12]], [int(i) for i in model.ids[12:24]]
    expected = [alone.step([token]).logits.copy() for token in one]
    for i, token in enumerate(one):
        other.verify([two[i], two[i]])
        np.testing.assert_array_equal(session.step([token]).logits, expected[i])
        other.commit(1)
    alone.reset()
    for token in two:
        alone.step([token])
    assert_close(other.snapshot(), alone.snapshot())
    other.close()
    session.step([one[0]])  # what it shared is still there
    alone.close()


def test_a_prefix_moves_to_another_session(model: Model, session: Session) -> None:
    """State and rows of the cache, through the host, into a session that held something else."""
    tokens = [int(i) for i in model.ids[:40]]
    session.step(tokens[:20])
    first = session.read_rows(0, 20)
    session.step(tokens[20:30])
    kept = session.snapshot()
    rest = session.read_rows(20, 30)
    arrays = session.to_host(kept)
    expected = session.step(tokens[30:]).logits.copy()
    other = open_session(model.bundle(), threads=1, beside=session)
    other.step([int(i) for i in model.ids[100:125]])
    other.write_rows(0, first)
    other.write_rows(
        18,
        tuple(np.concatenate([a[..., 18:, :], b], -2) for a, b in zip(first, rest, strict=True)),
        skip=2,
    )
    other.restore(other.from_host(30, arrays))
    assert other.length == 30
    np.testing.assert_array_equal(other.step(tokens[30:]).logits, expected)
    if arrays:
        with pytest.raises(ValueError, match="another model"):
            other.from_host(30, arrays[1:])
    other.close()
