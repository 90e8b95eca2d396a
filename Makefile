# Everything starts from a bare checkout with Python 3.11, pip and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test lint bench figures clean

quickstart: .venv/run
	$(BIN)/fastap quickstart --out quickstart --force

test: .venv/dev lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: .venv/dev
	$(BIN)/fastap bench

figures: .venv/dev
	$(BIN)/fastap reproduce environments --out docs/figures --force

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[smax]'
	touch $@

.venv/dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .cache
