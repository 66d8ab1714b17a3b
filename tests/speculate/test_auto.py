"""The measured draft length: costs, the choice, and what being wrong may cost."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from edgekit.cli.render import stats_line, stats_record
from edgekit.runtime.events import GenerationStats, SpeculationStats
from edgekit.runtime.speculate.auto import AutoLength, Costs, measure, measured_costs
from edgekit.runtime.speculate.ngram import NgramDrafter
from tests.runtime.fake_session import FakeSession

CHEAP = Costs((1.0, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4))
DEAR = Costs((1.0, 2.2, 2.4, 3.0, 3.2, 3.4, 3.6, 4.0))


def simulate(length, share, tokens, seed=0):
    """Speed relative to plain decoding when each drafted token is kept with this probability."""
    rng = np.random.default_rng(seed)
    made = seconds = 0.0
    while made < tokens:
        k = length.choose(7)
        kept = 0
        while kept < k and rng.random() < share:
            kept += 1
        if k:
            length.record(k, kept, kept < k)
        made += kept + 1
        seconds += length.costs.rounds[k]
    return made * length.costs.rounds[0] / seconds


@pytest.mark.parametrize("costs", [CHEAP, DEAR])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.95, 1.0])
def test_it_is_never_much_slower_than_plain_and_near_the_best_length(costs, share):
    gain = simulate(AutoLength(costs), share, 4000)
    best = max(
        sum(share**i for i in range(k + 1)) * costs.rounds[0] / costs.rounds[k] for k in range(8)
    )
    assert gain > 0.97
    assert gain > 0.9 * best


def test_it_turns_on_again_when_drafts_become_good():
    length = AutoLength(DEAR)
    simulate(length, 0.0, 2000)
    assert simulate(length, 0.98, 8000) > 1.2


def test_a_short_context_rules_widths_out():
    costs = measure(FakeSession(capacity=4), NgramDrafter())
    assert costs.rounds[2] < float("inf")
    assert costs.rounds[3:] == (float("inf"),) * 5
    assert AutoLength(costs).choose(7) <= 2


def test_measuring_leaves_a_fresh_session():
    session = FakeSession(capacity=20)
    measure(session, NgramDrafter())
    assert session.length == 0
    assert session.committed == []


def test_no_room_for_a_draft_is_a_plain_step():
    assert AutoLength(CHEAP).choose(0) == 0


def test_stats_say_what_was_drafted_and_kept():
    drafts = SpeculationStats("ngram", 4, 2, (4, 3), (3, 1), 0.1, 0.2, 0.05, "2 as asked")
    stats = GenerationStats(5, 0, 10, speculation=drafts)
    assert "ngram 2.00 tok a round · kept .75 .33 · drafts 2 as asked" in stats_line(stats)
    record = stats_record(stats)["speculation"]
    assert record["accepted"] == [3, 1]
    assert record["tokens_per_round"] == 2.0
    assert "ngram" not in stats_line(GenerationStats(5, 0, 10))
    assert stats_record(GenerationStats(5, 0, 10))["speculation"] is None


def test_costs_are_measured_once(tmp_path, monkeypatch):
    bundle = SimpleNamespace(manifest=SimpleNamespace(files={}, versions={"a": "1"}, executor="x"))
    session = FakeSession(capacity=20)

    def costs(folder, threads=1, name="ngram"):
        return measured_costs(session, NgramDrafter(), name, bundle, threads, folder)

    first = costs(tmp_path / "costs")
    session.fail_after = 0  # measuring again would end here
    assert costs(tmp_path / "costs") == first
    for other in ({"threads": 2}, {"name": "another"}):
        with pytest.raises(KeyboardInterrupt):
            costs(tmp_path / "costs", **other)
    session.fail_after = None
    (file,) = (tmp_path / "costs").iterdir()
    for damaged in ("", "[1, 2]", "{}", "[0, 1, 1, 1, 1, 1, 1, 1]"):
        file.write_text(damaged)
        assert len(costs(tmp_path / "costs").rounds) == 8
    assert len(costs(file / "no folder").rounds) == 8
