# Everything runs in .venv, which is made when it is missing or pyproject.toml is newer.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench bench-trl clean

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

bench-trl: .venv-trl/.ready  ## samples a second against TRL, which has an environment of its own
	OMP_NUM_THREADS=1 .venv-trl/bin/python tests/bench/bench_trl.py

.venv-trl/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install -e . "trl==1.16.0"
	touch $@

.venv: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-trl build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
