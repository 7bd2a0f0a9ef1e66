# Needs only Python 3.11 or newer, git and make. Everything goes into .venv.

PYTHON ?= python3
PY := .venv/bin/python
WORKERS ?= 2

.PHONY: help run test test-all soak docs clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ' *## *' '/^[a-z-]+:.*##/ { sub(":.*", "", $$1); printf "make %-8s %s\n", $$1, $$2 }' Makefile
	@echo "PYTHON=python3.12 make clean run   makes .venv with another Python than python3"

run: ## Set everything up, then train on every GPU, or on two CPU processes
	@$(bootstrap)
	$(PY) multigpu.py 50 10

test: ## Set everything up, then run the quick tests, some of every part
	@$(bootstrap) test
	$(PY) -m pytest -m quick -n $(WORKERS) --dist worksteal

test-all: ## Set everything up, then run all tests except make soak's and the site's
	@$(bootstrap) test
	$(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

soak: ## Set everything up, then run the long tests: hundreds of runs, dozens of kills
	@$(bootstrap) test
	$(PY) -m pytest -m soak -rs

docs: ## Set everything up, then build the site in docs/_build/html
	@$(bootstrap) docs
	$(PY) -m tools.pages build
	@echo "Open it with:  python3 -m http.server -d docs/_build/html"

clean: ## Remove caches, the site, and the .venv if make made it; checkpoints stay
	@[ ! -e .venv/made-by-make ] || rm -rf .venv
	@find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .pytest_cache .ruff_cache docs/_build docs/series

bootstrap = command -v "$(PYTHON)" >/dev/null || { \
	echo "No $(PYTHON) here: install Python 3.11 or newer, or name another, as in  PYTHON=python3.12 make run" >&2; \
	exit 2; }; exec "$(PYTHON)" tools/bootstrap.py
