# Two commands to know: make test, make demo. Both set up .venv by themselves.

PYTHON ?= python3
VENV ?= .venv
# One process per core; the cap keeps the memory of big machines free (about 1 GB per process).
JOBS ?= logical
PYTEST_ARGS ?=

BIN := $(VENV)/bin
RUN := $(BIN)/python -m
PYTEST := $(RUN) pytest -n $(JOBS) --maxprocesses 8 --dist worksteal
# One environment for everything: torch is nearly all of its size, and the tools add seconds.
EXTRAS := dev
STAMP := $(VENV)/.installed-$(EXTRAS)
DEPENDENCY_FILES := setup.cfg setup.py pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-slow coverage lint format docs build clean distclean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv and install the package with its extras

demo: $(STAMP) ## Compare memories on bundled data; prints a table and a figure's path
	$(RUN) benchmarks demo

test: $(STAMP) ## Run the test suite
	$(PYTEST) $(PYTEST_ARGS)

test-slow: $(STAMP) ## Run the tests that the everyday suite leaves out
	$(PYTEST) -m slow $(PYTEST_ARGS)

coverage: $(STAMP) ## Run the test suite and report the branches it misses
	$(PYTEST) --cov --cov-report=term $(PYTEST_ARGS)

lint: $(STAMP) ## Check style, format, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(RUN) mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## Build the documentation into docs/_build/html, without a network
	$(RUN) sphinx -W --keep-going -q -b html docs docs/_build/html

build: $(STAMP) ## Build the source distribution and the wheel into dist/
	$(RUN) build
	$(RUN) twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean: ## Remove caches and build products
	rm -rf build dist *.egg-info docs/_build docs/examples htmlcov .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environment too
	rm -rf $(VENV)

# The stamp is written last, so an interrupted installation is taken up again.
$(STAMP): $(DEPENDENCY_FILES) | $(BIN)/python
	$(RUN) pip install --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "No '$(PYTHON)' here: install Python 3.10 or later, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "$$($(PYTHON) --version 2>&1) is too old: name Python 3.10 or later: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "Python could not create $(VENV) (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
