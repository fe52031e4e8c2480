# The only doors: `make demo` shows it, `make test` tests it, `make check` is what a change must pass.
PYTHON ?= python3
TESTS ?=
# On a Redis of yours one after the other: some tests fill its memory, or cut its connections.
JOBS ?= $(if $(REDFLOW_TEST_REDIS_URL),0,5)
SECONDS ?= 600
SEED ?=
EXAMPLES ?=
SCENARIO ?=
OPERATIONS ?=
PEER ?=
.DEFAULT_GOAL := help
# Without compiled files each process of the tests would compile all of them anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# $(call environment,folder): with nothing in it of one that was made in part, or by another Python.
define environment
	@$(PYTHON) -c '$(CHECK_VERSION)' $(or $(firstword $(MAKECMDGOALS)),demo)
	$(PYTHON) -m venv --clear $(1)
endef
CHECK_VERSION = import sys; v = sys.version_info; v >= (3, 11) or sys.exit( \
	"redflow needs Python 3.11 or newer, and $(PYTHON) is " + ".".join(map(str, v[:3])) \
	+ "; say: make " + sys.argv[1] + " PYTHON=python3.11")

# A fresh venv's pip is too old for dependency groups.
.venv/ready: pyproject.toml
	$(call environment,.venv)
	.venv/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv/bin/pip install --quiet --editable '.[dev]' --group dev
	@touch $@

.venv-stubs/ready: pyproject.toml
	$(call environment,.venv-stubs)
	.venv-stubs/bin/pip install --quiet --upgrade 'pip>=25.1'
	.venv-stubs/bin/pip install --quiet --group stubs
	@touch $@

.venv/docs-ready: .venv/ready
	.venv/bin/pip install --quiet --group docs
	@touch $@

demo: .venv/ready .venv-stubs/ready ## an order, crashes, retries: a tour with real processes
	.venv/bin/python -m demo --stubs-python .venv-stubs/bin/python

dev: .venv/ready ## a gateway with its own store, for trying things
	.venv/bin/redflow dev

gen: .venv-stubs/ready ## make the Python stubs from proto/
	.venv-stubs/bin/python scripts/generate_stubs.py

# What cannot be fixed is for `make check` to refuse.
fmt: .venv/ready ## format the code, put links in documents on their lines
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix --exit-zero --quiet .
	.venv/bin/python scripts/relink_docs.py

# From nothing each time: what a page no longer has is gone from the site. It fails with a warning or a dead link.
docs: .venv/docs-ready ## build the documentation in build/docs, and follow its links
	rm -rf build/docs build/doctrees
	.venv/bin/sphinx-build --quiet --builder html --fail-on-warning --conf-dir docs/site --doctree-dir build/doctrees \
		. build/docs
	.venv/bin/python docs/site/check_links.py

check: .venv/ready .venv-stubs/ready docs ## lint, types, import contracts, fresh stubs, documentation, tidy tests
	.venv/bin/buf lint proto
	.venv-stubs/bin/python scripts/generate_stubs.py --check
	.venv/bin/ruff format --check --quiet .
	.venv/bin/ruff check --quiet .
	.venv/bin/mypy
	.venv/bin/mypy tests/typing
	.venv/bin/basedpyright
	.venv/bin/lint-imports
	.venv/bin/pytest -q tests/tidy

# What is not here has its own target: `tests/tidy` is run by `check`, and faults want the machine for themselves.
test: .venv/ready ## run the tests (TESTS=path narrows it, JOBS=0 runs them serially)
	.venv/bin/pytest -n $(JOBS) --dist worksteal \
		$(or $(TESTS),tests --ignore=tests/tidy --ignore=tests/chaos/short)

rounds: .venv/ready ## a few rounds of kills and outages, one scenario after the other
	.venv/bin/pytest tests/chaos/short

chaos: .venv/ready ## faults of every kind under load, for SECONDS, as the SEED draws them
	.venv/bin/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

leaks: .venv/ready ## whether memory, tasks, descriptors or keys grow (OPERATIONS=n, SCENARIO=name)
	.venv/bin/python -m tests.leaks $(SCENARIO) $(if $(OPERATIONS),--operations $(OPERATIONS))

# A failure says by which seed it is played again: SEED=that EXAMPLES=1.
oracle: .venv/ready ## random calls against the store and a model of it, for SECONDS, from SEED
	.venv/bin/python -m tests.oracle --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) \
		$(if $(EXAMPLES),--examples $(EXAMPLES))

# PEER=bullmq adds what that one does of the same work; it is installed below .venv-peers.
bench: .venv/ready ## speed and memory, as benchmarks/README.md has it (PEER=name compares)
	.venv/bin/python -m benchmarks all $(if $(PEER),--peer $(PEER))

.PHONY: help demo dev gen fmt docs check test rounds chaos leaks oracle bench
