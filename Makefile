# Each target installs what it needs: into the activated environment if there is one, else into .venv, made with $(PYTHON).
PYTHON ?= python3
ENV ?= $(or $(VIRTUAL_ENV),$(CONDA_PREFIX),.venv)
BIN := $(ENV)/bin
PIP := $(BIN)/python -m pip install --quiet -r requirements.txt
INSTALLED := $(ENV)/.simcse_pl-installed
TEST_READY := $(ENV)/.simcse_pl-test
DOCS_READY := $(ENV)/.simcse_pl-docs
DEV_READY := $(ENV)/.simcse_pl-dev
GPU_PYTHON := $(or $(wildcard $(BIN)/python),$(PYTHON))
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: help install run test claims commands findings gpu docs check lock dist

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

install: $(INSTALLED)  ## install the packages of requirements.txt, and simcse_pl as an editable package

run: $(INSTALLED)  ## train on the project's sample
	$(BIN)/python train.py

test: $(TEST_READY)  ## run the tests
	$(PYTEST)

claims: $(TEST_READY)  ## run the slow tests; those of the README's scores need SENTEVAL_DIR
	$(PYTEST) -m 'slow and not by_hand'

commands: $(TEST_READY)  ## run the commands of README and docs on small files
	$(BIN)/python docs/commands.py

findings: $(INSTALLED)  ## train the paper's tables on 2 cores, and write docs/findings.md (hours, prints an estimate, continues; needs SENTEVAL_DIR)
	$(BIN)/python -m benchmarks.findings
	$(BIN)/python docs/findings.py outputs/findings/mini.jsonl

gpu:  ## compare a GPU with the CPU, measure its speed, and write docs/gpu.md (16 minutes; installs nothing if the packages are there)
	@if $(GPU_PYTHON) -c 'import filelock, hydra, pyarrow, pydantic, pytorch_lightning, transformers' 2> /dev/null; \
	then $(GPU_PYTHON) -m benchmarks.gpu; \
	else $(MAKE) $(INSTALLED) && $(PIP) --editable '.[benchmarks]' && $(BIN)/python -m benchmarks.gpu; fi

docs: $(DOCS_READY)  ## build the documentation as a site, in site/
	$(BIN)/python -m mkdocs build --strict

check: $(DEV_READY)  ## check style, types and imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: $(DEV_READY)  ## pin all packages that requirements.txt needs, with hashes, in requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--custom-compile-command "make lock" requirements.txt --output-file requirements.lock

dist: $(DEV_READY)  ## build and check the wheel and the source archive, in dist/
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(ENV)

$(INSTALLED): requirements.txt pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(TEST_READY): $(INSTALLED)
	$(PIP) --editable '.[test]'
	@touch $@

$(DOCS_READY): $(INSTALLED)
	$(PIP) --editable '.[docs]'
	@touch $@

$(DEV_READY): $(INSTALLED)
	$(PIP) --editable '.[dev]'
	@touch $@
