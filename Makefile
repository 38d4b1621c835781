# Everything runs in .venv, which is made when it is missing or pyproject.toml is newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench clean

demo: $(READY)  ## the whole loop on this machine
	$(BIN)/vtune demo --out runs/demo

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy vtune cli

bench: $(READY)  ## speeds, printed; nothing passes or fails
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/bench -s -o python_files='bench_*.py'

.venv: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -e ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
