"""The random checkpoint writer produces what transformers and safetensors accept as NemotronH."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.tools.hf_reference import HfReference, hf_greedy, hf_logits
from tests.tools.nemotron_layout import Dims, tensors
from tests.tools.random_checkpoint import write_random_checkpoint

IDS = [3, 17, 42, 5, 200, 1, 9]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("key_style", ["hybrid_override_pattern", "layers_block_type"])
@pytest.mark.parametrize(
    ("pattern", "groups", "shards"),
    [("MEM*E-", (1, 1), 1), ("*ME", (4, 2), 3), ("M-*", (1, 1), 2)],
)
def test_transformers_loads_every_tensor(
    tmp_path: Path, pattern: str, groups: tuple[int, int], shards: int, key_style: str, dtype: str
) -> None:
    folder = write_random_checkpoint(
        tmp_path,
        pattern=pattern,
        n_group=groups[0],
        topk_group=groups[1],
        shards=shards,
        key_style=key_style,  # type: ignore[arg-type]
        dtype=dtype,  # type: ignore[arg-type]
    )
    model = HfReference(folder)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not model.loading_info.get(kind), kind
    logits = model.logits(IDS)
    assert logits.shape == (len(IDS), 256)
    assert logits.dtype == np.float32
    assert 0.5 < logits.std() < 10


def test_values_do_not_depend_on_sharding(tmp_path: Path) -> None:
    one = write_random_checkpoint(tmp_path / "one", seed=3)
    three = write_random_checkpoint(tmp_path / "three", seed=3, shards=3)
    other = write_random_checkpoint(tmp_path / "other", seed=4)
    np.testing.assert_array_equal(hf_logits(one, IDS), hf_logits(three, IDS))
    assert np.abs(hf_logits(one, IDS) - hf_logits(other, IDS)).max() > 0.1

    index = json.loads((three / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == {spec.name for spec in tensors(Dims())}
    assert len(set(index["weight_map"].values())) == 3
    for name, file in index["weight_map"].items():
        with safe_open(three / file, "np") as shard:
            assert name in shard.keys()  # noqa: SIM118 - not a mapping


def test_cached_steps_follow_the_full_forward(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path)
    tokens = hf_greedy(folder, IDS, 8)
    full = hf_logits(folder, IDS + tokens)
    assert tokens == full[len(IDS) - 1 : -1].argmax(-1).tolist()


def test_impossible_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown layer kinds"):
        Dims(pattern="MX")
    with pytest.raises(ValueError, match="multiple of n_groups"):
        Dims(mamba_num_heads=6, n_groups=4)
