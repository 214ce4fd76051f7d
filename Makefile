# Two commands do everything: `make demo` and `make test`. Only Python >= 3.11 and make are needed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-long bench lint conformance clean

demo: $(STAMP)
	$(BIN)/mmu demo

test: $(STAMP) lint
	$(BIN)/python -m pytest -n auto
	$(BIN)/python -m unittest -q tests/test_ipcf_conformance.py

# Crashes at every call, 500 kills, 8 writers and 4 readers, long random histories: some ten minutes.
test-long: $(STAMP)
	MMU_LONG=1 $(BIN)/python -m pytest -n auto tests/store/test_crash.py tests/store/test_processes.py tests/harness/test_any_history.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m pytest tests/bench -o python_files='bench_*.py' -p no:xdist -s

conformance: $(STAMP)
	$(BIN)/mmu conformance

# The environment is rebuilt when the list of packages changes.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "prompt-mmu needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

# What the scan is measured beside.
$(VENV)/.bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
