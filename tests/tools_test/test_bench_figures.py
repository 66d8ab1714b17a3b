"""The arithmetic of the benchmark: prompts, thread counting, ratios."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.bench_decode import same_tokens, summarize
from tests.bench.measure import busy_threads, prompt, status_kb, thread_ticks


def sample(decode: float, rss: int, tokens: list[int]) -> dict[str, Any]:
    keys = ("prefill_cpu_s", "prefill_s", "ttft_s", "load_s")
    memory = ("peak_rss_kb", "rss_loaded_kb", "rss_decode_kb", "rss_kb", "disk_kb")
    return {
        "decode_cpu_s": decode,
        "decode_s": decode,
        "tokens": tokens,
        **dict.fromkeys(keys, 1.0),
        **dict.fromkeys(memory, rss),
    }


def test_advantage_is_the_median_of_paired_ratios_and_above_one_is_better() -> None:
    ours = [sample(0.001, 1024, [1, 2]), sample(0.002, 1024, [1, 2]), sample(0.004, 1024, [])]
    theirs = [sample(0.002, 2048, [1, 3]), sample(0.004, 2048, []), sample(0.004, 2048, [])]
    samples = {"edgekit": ours, "xllamacpp": theirs}
    rows = {row["figure"]: row for row in summarize(samples)}
    decode = rows["decode, wall"]
    assert decode["edgekit"] == pytest.approx(500)
    assert decode["ranges"]["edgekit"] == pytest.approx([250, 1000])
    assert decode["advantage"] == pytest.approx({"xllamacpp": 2})
    assert rows["peak RSS"]["xllamacpp"] == pytest.approx(2)
    assert rows["peak RSS"]["advantage"] == pytest.approx({"xllamacpp": 2})
    assert same_tokens(samples) == {"xllamacpp": 1}


def test_prompts_differ_early_and_avoid_special_tokens() -> None:
    made = [tuple(prompt(number, 16, 4096)) for number in range(200)]
    assert len({ids[0] for ids in made}) == len(made)
    assert all(64 <= token < 4096 for ids in made for token in ids)


def test_busy_threads_ignores_the_idle() -> None:
    assert busy_threads({"1": 10, "2": 5}, {"1": 110, "2": 6, "3": 40}) == 2
    assert thread_ticks()
    assert status_kb("VmHWM") >= status_kb("VmRSS") > 0
