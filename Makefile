# Every target works from a fresh clone with Python 3.11, pip, make and git; `make` alone lists them.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# More words for the command of one target, none by default: PYTEST_ARGS, CRASH, CHAOS, UPGRADE, ISOLATION, SEEDS, MUTANTS.

.DEFAULT_GOAL := help
.PHONY: help setup demo test drift crash chaos upgrade isolation simulate mutants model interleave \
	real fairness kill migrate-drill bench-small lint format types imports check lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the locked packages and pushlink itself

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## push a small CRM to a small remote on this machine and show what happened
	$(BIN)/python examples/demo/run.py

test: $(STAMP) ## run every test, PostgreSQL included, and write build/rules.json
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

drift: $(STAMP) ## make every change of the drift matrix and show what was observed beside what is expected
	PYTHONPATH=tests $(BIN)/python -m drift.show

crash: $(STAMP) ## let processes die, and fail, at every statement, commit and socket step, and judge what is left
	PYTHONPATH=tests $(BIN)/python -m proof.crash --write $(CRASH)

chaos: $(STAMP) ## kill, stop, cut and starve real workers, hosts and databases while they push 10,000 records
	PYTHONPATH=tests $(BIN)/python -m proof.chaos --write $(CHAOS)

upgrade: $(STAMP) ## let workers and hosts of two releases push side by side while the schema is upgraded
	PYTHONPATH=tests $(BIN)/python -m proof.upgrade --write $(UPGRADE)

isolation: $(STAMP) ## run the behaviour tests on PostgreSQL at every isolation level, of hosts and workers alike
	PYTHONPATH=tests $(BIN)/python -m proof.isolation --write $(ISOLATION)

simulate: $(STAMP) ## simulate deployments in which everything fails, out of SEEDS=2000 seeds, and judge each step
	PYTHONPATH=tests PYTHONHASHSEED=0 $(BIN)/python -m proof.simulate $(SEEDS)

mutants: $(STAMP) ## switch off every closing rule of the protocol, one at a time, and show what notices (MUTANTS="--rules FENCE")
	PYTHONPATH=tests PYTHONHASHSEED=0 $(BIN)/python -m proof.mutants $(MUTANTS)

model: $(STAMP) ## check the model of the protocol with SPIN (needs spin and gcc): every rule on, each one off
	PYTHONPATH=tests $(BIN)/python -m proof.model.check

interleave: $(STAMP) ## weave workers, saves, leases and an operator in all orders, put workers to sleep, and judge what is left
	PYTHONPATH=tests $(BIN)/python -m proof.interleave

real: $(STAMP) ## push real data to a real server that nobody here wrote, and compare
	$(BIN)/python examples/real/run.py

fairness: $(STAMP) ## give one tenant of ten 100,000 rows and see how long the others' rows wait
	FAIRNESS_ROWS=100000 $(BIN)/python -m pytest -n 0 tests/flows/test_fairness.py

kill: $(STAMP) ## kill a worker with requests in flight, start another, and count what the remote got
	$(BIN)/python examples/kill/run.py

migrate-drill: $(STAMP) ## adopt 100,000 legacy records with trouble among them, upgrade a pack under live links, and compare
	$(BIN)/python examples/real/migrate_drill.py

bench-small: $(STAMP) ## measure pushes per second beside a job queue that does the same requests
	$(BIN)/python -m benchmarks.small

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy, strict, over src
	$(BIN)/python -m mypy

imports: $(STAMP) ## import-linter: imports go one way
	$(BIN)/lint-imports --no-cache

check: lint types imports ## all that the machine argues about

lock: ## write requirements.lock anew from pyproject.toml
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet -e '.[postgres,speed,dev,real,bench]' hatchling editables
	{ sed -n '/^#/p' requirements.lock; build/lock/bin/python -m pip freeze --exclude-editable; } > build/requirements.lock
	mv build/requirements.lock requirements.lock
	rm -rf build/lock

clean: ## remove what builds and runs left, the virtual environment included
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
