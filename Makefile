# The whole set-up. Needs make, Python 3.11 or 3.12 with its venv module, and pip; every target is safe to repeat.
SHELL := /bin/bash
PYTHON ?= python3
# The one choice of torch. 2.11 to 2.13 are allowed: TORCH='torch==2.11.*'. Install a CPU or a CUDA build as you like.
# Python 3.11 with torch 2.13.0 is the combination that the tests were run on; the others were not run.
TORCH ?= torch==2.13.0
# The version that kernels are written for, as CUDA builds of torch 2.11 bring it.
TRITON ?= triton==3.6.0
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
# Client programs that tests run against the server, apart from the project's own packages.
CLIENTS := tests/clients
CLIENTS_VENV := .venv.clients
CLIENTS_STAMP := $(CLIENTS_VENV)/.stamp
NODE_MODULES := $(CLIENTS)/node/node_modules
NODE_STAMP := $(NODE_MODULES)/.stamp
NODE_MAJOR := 20

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve test check-browser check-node lint docs setup setup-dev setup-clients clean distclean

help:
	@echo 'make serve [PORT=8000] [MODEL=demo] [ARGS="--drafter eagle3"]   start the HTTP server'
	@echo 'make test                                                        lint, types, contracts, words, tests'
	@echo 'make lint                                                        the same without the tests'
	@echo 'make docs                                                        write docs/reference from the code'
	@echo 'make setup                                                       install what serving needs'
	@echo 'make setup-dev                                                   install the tools for tests, docs and comparisons'
	@echo 'make setup-clients                                               install client programs that tests run (Node.js 20)'
	@echo 'make clean                                                       remove what the tools left behind'
	@echo 'make distclean                                                   remove what was installed, too'

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
	@# A CUDA build of torch brings a Triton of its own; beside a CPU build the kernels are compiled and interpreted.
	@$(BIN)/python -c 'import triton' 2>/dev/null || $(PIP) install -qq '$(TRITON)'
	@touch $@

$(CLIENTS_STAMP): $(CLIENTS)/requirements.txt | $(DEV_STAMP)
	@echo 'installing client programs for tests'
	@rm -rf $(CLIENTS_VENV)
	@$(BIN)/python -m venv --without-pip $(CLIENTS_VENV)
	@$(PIP) --python $(CLIENTS_VENV)/bin/python install -qq --no-deps -r $(CLIENTS)/requirements.txt
	@touch $@

$(NODE_STAMP): $(CLIENTS)/node/package.json $(CLIENTS)/node/package-lock.json | check-node
	@echo 'installing npm clients for tests'
	@cd $(CLIENTS)/node && npm ci --no-audit --no-fund --ignore-scripts --omit=optional --omit=peer --loglevel=error
	@touch $@

setup: $(RUN_STAMP)
setup-dev: $(DEV_STAMP)
setup-clients: check-node $(CLIENTS_STAMP) $(NODE_STAMP)

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

check-browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	    echo 'the tests of the page need Chromium; on Debian: apt-get update && apt-get install -y chromium' >&2; exit 1; }

# Before anything is installed: what is missing should be known at once.
check-node:
	@found=$$(node --version 2>/dev/null || echo none); npm=$$(command -v npm || echo none); \
	major=$${found#v}; major=$${major%%.*}; \
	if ! [ "$$major" -ge $(NODE_MAJOR) ] 2>/dev/null || [ "$$npm" = none ]; then \
	    echo "the tests of clients need Node.js $(NODE_MAJOR) or later with npm; found: node $$found, npm $$npm." \
	        'Debian 13 has 20 (apt-get update && apt-get install -y nodejs npm); elsewhere take that of nodejs.org' >&2; \
	    exit 1; fi

test: check-browser check-node setup-clients lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

clean:
	rm -rf build dist .ruff_cache .hypothesis .schemathesis .import_linter_cache .pytest_cache
	find src tests tools benchmarks recipes -name __pycache__ -type d -not -path '*/node_modules/*' -prune -exec rm -rf {} +
	@echo 'kept: $(VENV), $(CLIENTS_VENV) and $(NODE_MODULES); make distclean removes them'

distclean: clean
	rm -rf $(VENV) $(CLIENTS_VENV) $(NODE_MODULES)
