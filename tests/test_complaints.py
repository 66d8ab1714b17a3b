"""Every test that docs/complaints.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_named_tests_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "complaints.md").read_text()))
    assert len(named) > 20
    there = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there |= set(re.findall(r"def (test_\w+)\(", path.read_text()))
    assert named - there == set()
