## make help        this list
## make env         creates .venv with the package in place and its tests' needs
## make train       the same, then the main job on built-in data; WORKDIR=DIR
## make lint        ruff and mypy
## make test        lint, then the tests: about 6 minutes on two cores, .venv included
## make test-slow   the checks that take minutes; writes docs/slow_tests.md
## make coverage    of plan, accounting and private; writes docs/coverage.md
## make accelerator DATA=DIR
##                  benchmarks, then Omniglot at the paper's size with and
##                  without privacy, on the devices that JAX sees (for a GPU
##                  .venv/bin/pip install -e '.[cuda,bench]' first);
##                  SCALE=smoke tries it
## make clean       removes .venv and what tools left
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKDIR ?= runs/glyphs

.PHONY: help env train test test-slow coverage lint accelerator clean

help:
	@sed -n 's/^## //p' Makefile

# The stamp is made anew when a dependency changes. Byte code is written by all
# cores, which pip does not; files that no Python of today reads are passed over.
$(VENV)/.installed: setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "episodic_dp needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile -e '.[test]'
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
	@touch $@

env: $(VENV)/.installed

train: env
	$(BIN)/python -m experiments.reproduce --target=glyphs --scale=cpu \
	  --workdir=$(WORKDIR)

lint: env
	$(BIN)/ruff check .
	$(BIN)/mypy

# The tests start many processes: byte code that one has made the next one loads.
unexport PYTHONDONTWRITEBYTECODE

# A file's tests share what they compile, so files go to the processes whole. The
# types are checked beside them, which keeps both cores busy to the end.
test: env
	$(BIN)/ruff check .
	@$(BIN)/mypy & types=$$!; \
	  $(BIN)/python -m pytest -n 2 --dist loadfile; tests=$$?; \
	  wait $$types && exit $$tests

# Recorded whether they pass or not.
test-slow: env
	$(BIN)/python -m pytest -m 'slow or optimized' -n 2 --dist loadfile \
	  --junitxml=build/slow_tests.xml; \
	  status=$$?; \
	  $(BIN)/python tests/record_slow.py build/slow_tests.xml docs/slow_tests.md; \
	  exit $$status

coverage: env
	$(BIN)/coverage run -m pytest tests/plan tests/accounting tests/private
	@{ printf '%s\n' '# Coverage of the tests' '' \
	    'Lines and branches of `plan`, `accounting` and `private` that the quick' \
	    'tests of these folders run, written by `make coverage`.' '' && \
	  $(BIN)/coverage report --format=markdown --sort=cover; } > docs/coverage.md
	@cat docs/coverage.md

DATA ?= data
OUT ?= runs/accelerator
SCALE ?= full
accelerator: env
	$(BIN)/python -m experiments.benchmarks --run=all --out=$(OUT) \
	  $(if $(filter smoke,$(SCALE)),--smoke)
	$(BIN)/python -m experiments.reproduce --target=omniglot --scale=$(SCALE) \
	  --workdir=$(OUT)/omniglot --data_dir=$(DATA) --out=$(OUT)

clean:
	rm -rf $(VENV) build *.egg-info .coverage .pytest_cache .ruff_cache .mypy_cache
