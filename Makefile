# make train   creates the environment and runs the main job on built-in data
# make test    creates the environment and runs linter, types and tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKDIR ?= runs/glyphs

.PHONY: help env train test test-slow lint accelerator clean

help:
	@sed -n 's/^# //p' Makefile

# The stamp is made anew when a dependency changes.
$(VENV)/.installed: setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "episodic_dp needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e '.[test]'
	@touch $@

env: $(VENV)/.installed

train: env
	$(BIN)/python -m experiments.main_job --workdir=$(WORKDIR)

lint: env
	$(BIN)/ruff check .
	$(BIN)/mypy

# A file's tests share what they compile, so files go to two processes whole.
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

# test-slow  the checks that take minutes
test-slow: env
	$(BIN)/python -m pytest -m slow

# make accelerator DATA=DIR   benchmarks, then Omniglot at the paper's size with
#             and without privacy, on the devices that JAX sees (for a GPU first
#             .venv/bin/pip install -e '.[cuda,bench]'); SCALE=smoke tries it
DATA ?= data
OUT ?= runs/accelerator
SCALE ?= full
accelerator: env
	$(BIN)/python -m experiments.benchmarks --run=all --out=$(OUT) \
	  $(if $(filter smoke,$(SCALE)),--smoke)
	$(BIN)/python -m experiments.reproduce --target=omniglot --scale=$(SCALE) \
	  --workdir=$(OUT)/omniglot --data_dir=$(DATA) --out=$(OUT)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache
