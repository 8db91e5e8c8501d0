# make run: train on the project's sample.  make test: the tests.
# make claims: train what the README gives scores of, and check them (10 minutes).  make check: style and types.
# Each sets up what it needs: an activated environment is used as it is, else .venv is made with $(PYTHON).
PYTHON ?= python3
ENV := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX),.venv)
BIN := $(ENV)/bin
READY := $(ENV)/.simcse_pl-requirements
CHECKS_READY := $(ENV)/.simcse_pl-checks

.PHONY: run test claims check

run: $(READY)
	$(BIN)/python train.py

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist worksteal

claims: $(READY)
	@test -n "$$SENTEVAL_DIR" || { echo "error: set SENTEVAL_DIR to the folder data/downstream of a SentEval bundle"; exit 2; }
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'slow and not by_hand'

check: $(CHECKS_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(ENV)

$(READY): requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -r requirements.txt
	@touch $@

$(CHECKS_READY): pyproject.toml $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
