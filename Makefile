# Everything runs in .venv, which is made when it is missing or pyproject.toml is newer. pip would compile all of
# torch and transformers; most is never imported, and the rest is compiled when it is. Not so in the sandbox,
# which writes nothing: what it imports is imported once here. Kept for the next process in any case: where a machine
# forbids it, each of the hundreds of processes of the tests compiles torch again.
unexport PYTHONDONTWRITEBYTECODE
# Each half of a target leaves a core idle now and then.
MAKEFLAGS += --jobs=2 --output-sync=line
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# vLLM for the CPU has an environment of its own: its pins are narrower than ours.
VLLM := .venv-vllm/bin
VLLM_READY := .venv-vllm/.ready

.PHONY: browser demo check test test-quick test-suite test-sandbox test-vllm test-trackio test-harness lint guard bench bench-vllm bench-trl clean

demo: $(READY)  ## the whole loop on this machine
	$(BIN)/vtune demo --out runs/demo

# As the command line has it: tensors in huge pages, where the kernel knows them (torch warns where it does not).
export THP_MEM_ALLOC_ENABLE ?= $(if $(wildcard /sys/kernel/mm/transparent_hugepage/hpage_pmd_size),1,0)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
# `make test SEED=7` runs the tests in the order that this seed draws.
ORDER := $(if $(SEED),--random-order --random-order-seed=$(SEED))

check: lint test-quick  ## what to run while you write: lint, and the tests that are quick

test: test-suite test-sandbox test-vllm  ## everything

test-quick: $(READY)
	$(PYTEST) -m "not slow"

test-suite: $(READY)
	$(PYTEST) $(ORDER) --ignore=tests/sandbox

# In a process of its own, which imports little: a fork of one that has imported torch takes ten times as long.
test-sandbox: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/sandbox $(ORDER)

test-vllm: $(VLLM_READY)  ## the engine on a real vLLM
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VLLM)/python -m pytest tests/vllm $(ORDER)

test-trackio: .venv-trackio/.ready  ## runs reported to trackio
	OMP_NUM_THREADS=1 .venv-trackio/bin/python -m pytest tests/metrics/test_trackers.py tests/runs/view/test_hostile.py -k trackio

# On top of .venv: trackio wants an older Pillow, and uvloop, on which the tests of servers would then run.
.venv-trackio/.ready: $(READY)
	$(PYTHON) -m venv .venv-trackio
	echo "import site; site.addsitedir('$$($(BIN)/python -c "import site; print(site.getsitepackages()[0])")')" \
	  > "$$(.venv-trackio/bin/python -c "import site; print(site.getsitepackages()[0])")/beneath.pth"
	.venv-trackio/bin/python -m pip install --no-compile "trackio>=0.40"
	touch $@

APT := apt-get install -y --no-install-recommends
browser: $(READY)  ## what the tests of `vtune view` need: Chromium by apt, Playwright, and axe, which finds what is not accessible
	command -v chromium || $(APT) chromium || (apt-get update && $(APT) chromium)
	command -v npm || $(APT) npm || (apt-get update && $(APT) npm)
	$(BIN)/python -m pip install --no-compile "playwright>=1.50"
	npm install --no-save --no-audit --no-fund --prefix .venv/browser axe-core@4

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy vtune cli

guard: build/guard.so  ## a CUDA device that computes nothing, for `tests/cuda` (LD_PRELOAD); needs a C++ compiler

build/guard.so: tests/cuda/guard.cpp $(READY)
	$(BIN)/python -m tests.cuda.guard $@

bench: $(READY)  ## speeds, printed; nothing passes or fails
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/bench -s -o python_files='bench_*.py' --ignore=tests/bench/bench_async.py

bench-vllm: $(VLLM_READY)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VLLM)/python -m pytest tests/bench/bench_async.py -s -o python_files='bench_*.py'

bench-trl: .venv-trl/.ready  ## samples a second against TRL, which has an environment of its own
	OMP_NUM_THREADS=1 .venv-trl/bin/python tests/bench/bench_trl.py

.venv-trl/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install -e . "trl==1.16.0"
	touch $@

test-harness: $(READY) .venv-harness/.ready  ## scorers of VLMEvalKit, lmms-eval and inspect on our exports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/harness

.venv-harness/.ready: tests/harness/requirements.txt
	$(PYTHON) -m venv .venv-harness
	.venv-harness/bin/python -m pip install --no-compile -r tests/harness/requirements.txt
	.venv-harness/bin/python -m pip install --no-compile --no-deps "ms-vlmeval==0.0.20" "lmms-eval==0.7.3"
	touch $@

.venv: $(READY)

# The torch of `TESTED` in vtune/runs/versions.py, with which the figures of the pages were measured.
$(READY): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --no-compile -e ".[dev]" torch==2.13.0
	$(BIN)/python -c "import vtune.sandbox.guest.runner"
	touch $@

.venv-vllm: $(VLLM_READY)

$(VLLM_READY): pyproject.toml tests/vllm/requirements.txt tests/vllm/install.py
	$(PYTHON) -m venv .venv-vllm
	$(VLLM)/python tests/vllm/install.py
	$(VLLM)/python -m pip install --no-compile --constraint tests/vllm/requirements.txt -e . pytest pytest-xdist pytest-random-order hypothesis beartype
	$(VLLM)/python -c "import vtune.sandbox.guest.runner"
	touch $@

clean:
	rm -rf .venv .venv-vllm .venv-trackio .venv-trl .venv-harness build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
