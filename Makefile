# Everything runs in .venv, which needs nothing but Python 3.11 or newer: `make PYTHON=python3.12 setup` picks another one.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SOURCES := crdt replica scripts tests

.DEFAULT_GOAL := help
.PHONY: help setup protos docs check format test soak demo run clean moved

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv with everything for running and developing

# The stamp is the last thing written and the first removed, so an environment whose making was interrupted is made anew.
# It holds the folder it was made for: an environment that was moved or copied points at the old place.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(READY): moved
endif

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Ricordo needs Python 3.11 or newer, and '$(PYTHON)' is not: $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }
	@if [ "$$(cat $@ 2>/dev/null)" = "$(CURDIR)" ]; then rm -f $@; else $(PYTHON) -m venv --clear $(VENV); fi
	@echo "Installing into $(VENV): a minute or two, once."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@echo "$(CURDIR)" > $@

protos: $(READY) ## generate replica/wire from proto/
	$(BIN)/python scripts/protos.py

docs: $(READY) ## write the pages and diagrams that are made from the code
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/manual.py
	$(BIN)/python scripts/diagrams.py

check: $(READY) ## lint, formatting, types, and whether the generated stubs are current
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy --strict
	$(BIN)/python scripts/protos.py --check

format: $(READY) ## format the sources and mend what the linter can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

# Temporary folders live in memory where there is room for them, and go when the run ends.
test: $(READY) ## run the tests (PYTEST_ARGS="tests/test_x.py -x" narrows them)
	@roomy=$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 1000000 { print "/dev/shm" }'); \
	folder=$$(mktemp -d "$${roomy:-$${TMPDIR:-/tmp}}/ricordo-tests.XXXXXX") || exit 1; \
	trap 'rm -rf "$$folder"' EXIT; trap 'exit 130' INT TERM; \
	TMPDIR="$$folder" $(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

# Every fault of docs/faults.md, at random, for MINUTES (30): nightly. SOAK_ARGS="--seed 7" repeats the faults of a run.
MINUTES ?= 30

soak: $(READY) ## let faults strike real replicas for half an hour, and see that nothing is lost
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) --replicas 3..5 $(SOAK_ARGS)

demo: $(READY) ## three replicas on this machine, and a tour of what they do
	$(BIN)/python -m replica.demo

run: $(READY) ## serve one replica on an embedded store
	$(BIN)/ricordo serve

clean: ## remove .venv and every cache
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
