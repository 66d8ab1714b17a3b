"""One thread, and property tests that find the same examples on every run."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything loads a BLAS

from hypothesis import settings

settings.register_profile("edgekit", deadline=None, derandomize=True, database=None)
settings.load_profile("edgekit")
