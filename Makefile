# The whole set-up. Needs make, Python 3.11 or 3.12 with its venv module, and pip; every target is safe to repeat.
SHELL := /bin/bash
PYTHON ?= python3
# The one choice of torch. 2.11 to 2.13 are allowed: TORCH='torch==2.11.*'. Install a CPU or a CUDA build as you like.
# Python 3.11 with torch 2.13.0 is the combination that the tests were run on; the others were not run.
TORCH ?= torch==2.13.0
VENV ?= .venv
MODEL ?= demo
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
empty :=
space := $(empty) $(empty)
clean_name = $(subst $(space),_,$(subst =,-,$(subst <,-,$(subst >,-,$(subst *,x,$(subst ;,-,$(subst /,-,$(1))))))))
TORCH_STAMP := $(VENV)/.stamp-$(call clean_name,$(TORCH))
RUN_STAMP := $(VENV)/.stamp-run
DEV_STAMP := $(VENV)/.stamp-dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test lint docs setup setup-dev clean

help:
	@echo 'make serve [PORT=8000] [MODEL=demo] [ARGS="--drafter eagle3"]   start the HTTP server'
	@echo 'make test                                                        lint, types, contracts, words, tests'
	@echo 'make lint                                                        the same without the tests'
	@echo 'make docs                                                        write docs/reference from the code'
	@echo 'make setup-dev                                                   install the tools for tests, docs and comparisons'
	@echo 'make clean                                                       remove what the tools left behind'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 13) else \
	    "Python %d.%d found, 3.11 or 3.12 needed: run make PYTHON=python3.12 ..." % v)'
	@echo 'creating $(VENV)'
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) \
	    && $(PYTHON) -m pip --python $(BIN)/python install pip; }

$(TORCH_STAMP): | $(BIN)/python
	@echo 'installing $(TORCH) (minutes the first time)'
	@$(PIP) install -qq '$(TORCH)'
	@rm -f $(VENV)/.stamp-*
	@touch $@

$(RUN_STAMP): $(TORCH_STAMP) pyproject.toml constraints.txt
	@echo 'installing slipstream'
	@$(PIP) install -qq -c constraints.txt -e .
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	@echo 'installing the tools for development'
	@$(PIP) install -qq -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(RUN_STAMP)
setup-dev: $(DEV_STAMP)

serve: $(RUN_STAMP)
	@exec $(BIN)/slipstream serve $(MODEL) --host $(HOST) --port $(PORT) $(ARGS)

lint: $(DEV_STAMP)
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/pyright --warnings
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/check_words.py

docs: $(DEV_STAMP)
	$(BIN)/python tools/make_reference_docs.py

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

clean:
	rm -rf build dist .ruff_cache .hypothesis .import_linter_cache .pytest_cache
	find src tests tools benchmarks recipes -name __pycache__ -type d -prune -exec rm -rf {} +
