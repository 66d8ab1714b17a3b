"""What a store leaves to the next process, and what damage does to it."""

import pytest

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.prefix import PrefixStore
from edgekit.runtime.prefix_files import load, save
from tests.runtime.fake_model import make_model

PROMPT = list(range(40))
ONE = SamplingParams(0.0, max_tokens=4)


def filled():
    model = make_model()
    list(model.generate(PROMPT, ONE, snapshot_at=(10, 30), pin=10))
    list(model.generate([*PROMPT[:20], 7, 8, 9], ONE, snapshot_at=(21,)))
    return model


def tokens_of(events):
    return [token for event in events for token in event.tokens]


def restarted(folder, budget=1 << 20):
    model = make_model(prefix_bytes=budget)
    count = load(model.prefixes, model.session, folder)
    return model, count


def test_the_next_process_goes_on(tmp_path):
    model = filled()
    folder = tmp_path / "a"
    assert save(model.prefixes, model.session, folder) == 3
    assert save(model.prefixes, model.session, folder) == 0, "what is there is not written again"
    again, count = restarted(folder)
    assert count == 3
    assert again.prefixes.stats().nbytes == model.prefixes.stats().nbytes
    assert [e.pinned for e in again.prefixes.entries()] == [True, False, False]
    for prompt, cached in ((PROMPT, 30), ([*PROMPT[:20], 7, 8, 9], 21), ([*PROMPT[:12], 99], 10)):
        events = list(again.generate(prompt, ONE))
        assert events[-1].stats.cached_tokens == cached
        assert tokens_of(events) == tokens_of(make_model().generate(prompt, ONE))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_the_store_gave_up_goes_from_the_disk(tmp_path):
    model = filled()
    save(model.prefixes, model.session, tmp_path)
    model.prefixes.clear()
    assert save(model.prefixes, model.session, tmp_path) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "header", "noise"])
def test_a_damaged_file_is_left_out_and_removed(tmp_path, damage):
    model = filled()
    save(model.prefixes, model.session, tmp_path)
    path = max(tmp_path.iterdir(), key=lambda one: one.stat().st_size)
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "cut": data[:middle],
            "changed": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "empty": b"",
            "header": b"{}" + data[data.index(b"\n") :],
            "noise": b"\xff" * 100,
        }[damage]
    )
    again, count = restarted(tmp_path)
    assert count < 3
    assert not path.exists()
    assert tokens_of(again.generate(PROMPT, ONE)) == tokens_of(make_model().generate(PROMPT, ONE))


def test_a_store_without_room_reads_what_fits(tmp_path):
    model = filled()
    save(model.prefixes, model.session, tmp_path)
    again, count = restarted(tmp_path, budget=200)
    assert count == 1
    assert again.prefixes.stats().nbytes <= 200
    _, none = restarted(tmp_path, budget=0)
    assert none == 0


def test_a_store_evicts_leaves_first_and_what_is_pinned_last():
    model = make_model(prefix_bytes=900)
    model.prefixes = PrefixStore(900)
    list(model.generate(list(range(30)), ONE, snapshot_at=(20,), pin=20))
    for i in range(12):
        list(model.generate([*range(20), 50 + i, 1, 2, 3], ONE, snapshot_at=(22,)))
    kept = [entry.tokens for entry in model.prefixes.entries()]
    assert kept[0] == list(range(20)), "the shared beginning stays"
    assert kept[-1][-2:] == [61, 1], "and the newest"
    assert model.prefixes.stats().evicted > 0
