# The only doors: `make demo` shows it, `make test` tests it, `make check` is what a change must pass.
PYTHON ?= python3
TESTS ?=
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# A fresh venv's pip is too old for dependency groups.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv/bin/pip install --quiet --editable '.[dev]' --group dev
	@touch $@

.venv-stubs/ready: pyproject.toml
	$(PYTHON) -m venv .venv-stubs
	.venv-stubs/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-stubs/bin/pip install --quiet --group stubs
	@touch $@

demo: .venv/ready .venv-stubs/ready ## an order, crashes, retries: a tour with real processes
	.venv/bin/python -m demo --stubs-python .venv-stubs/bin/python

gen: .venv-stubs/ready ## make the Python stubs from proto/
	.venv-stubs/bin/python scripts/generate_stubs.py

fmt: .venv/ready ## format the code
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix --quiet . || true

check: .venv/ready .venv-stubs/ready ## lint, types, import contracts, fresh stubs, tidy tests
	.venv/bin/buf lint proto
	.venv-stubs/bin/python scripts/generate_stubs.py --check
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check --quiet .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/pytest -q tests/tidy

test: .venv/ready ## test everything but chaos and benchmarks (TESTS=path narrows it)
	.venv/bin/pytest $(TESTS)

.PHONY: help demo gen fmt check test
