"""Test tools: checkpoint writers, reference runners and peers. Nothing here ships in the wheel."""
