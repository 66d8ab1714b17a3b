# Two commands: `make chat` talks, `make test` checks. Both set up what they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: chat test check slow bench clean

chat: $(VENV)/.cpu
	$(BIN)/edgekit run nano

test: $(VENV)/.dev check
	$(BIN)/pytest -n auto --dist loadfile

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

bench: $(VENV)/.dev
	$(BIN)/edgekit build nano --name nano-bench --context 2048 --draft none --force
	$(BIN)/python -m tests.bench.bench_decode nano-bench --checkpoint recipes/nano/checkpoint

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "edgekit needs Python 3.11 or newer; this is $$($(PYTHON) --version)." >&2; \
	  echo "Give another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.cpu: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[cpu]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.cpu

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache
