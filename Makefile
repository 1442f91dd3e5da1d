PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTS ?= -n 2
# The tests run in two processes: more threads in each would only get in the way.
test slow shapes browser faults gpu: export OMP_NUM_THREADS = 1
# Tests start many processes; each would compile all of las again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo_app bench gpu test check slow shapes browser docs faults clean

help: ## Show this list
	@grep -hE '^[a-z_]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## Create .venv and install las with its tools (pinned by constraints.txt)

# torch goes first and pinned: an open range would fetch gigabytes of CUDA libraries.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[synth,plots,slurm,joblib,dev]'
	@touch $@

demo: setup ## Synthesise a corpus, train, decode and score: the whole job in minutes; then transcribe a real recording
	$(BIN)/python scripts/demo.py
	$(BIN)/las transcribe model=an4 docs/examples/an4.flac

bench: setup ## Measure layers and a training step (minutes; let nothing else run), rewrite docs/performance.md
	$(BIN)/python scripts/benchmark.py suite=lstm output=docs/performance/lstm.jsonl
	$(BIN)/python scripts/benchmark.py suite=model output=docs/performance/model.jsonl page=docs/performance.md

gpu: setup ## Test and measure on a GPU, verdicts into docs/performance.md; without one the same on the CPU, in small
	$(BIN)/python tests/helpers/check_gpu.py

test: setup ## Run the tests
	$(BIN)/python -m pytest $(TESTS) -m 'not slow'

slow: setup ## Run the slow tests, which make test leaves out
	$(BIN)/python -m pytest $(TESTS) -m slow

shapes: setup ## Run the tests of tensors again, the types and shapes of every call checked
	$(BIN)/python -m pytest $(TESTS) -m 'not slow' --shapes tests/nn tests/decoding tests/hmm tests/lm tests/analysis tests/training

demo_app: setup ## Install what las demo_app needs (gradio)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo]'

browser: demo_app ## Attack the page of las demo_app, and test it in Chromium (installs gradio and Playwright)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt playwright
	$(BIN)/python -m pytest tests/cli/test_demo_app.py tests/cli/test_demo_app_server.py tests/cli/test_demo_app_browser.py

docs: setup ## Build the documentation site into build/docs (installs MkDocs)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

faults: setup ## Kill, starve and corrupt trainings thousands of times and print how many survived (hours)
	$(BIN)/python -m pytest $(TESTS) -m faults

check: setup ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## Remove .venv (data and runs stay)
	rm -rf $(VENV)
