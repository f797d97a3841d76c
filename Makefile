# Thin targets; what they run is in pyproject.toml and the packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: help demo test bench lint clean

help:
	@echo "make demo    set up, then show this machine's telemetry flowing between processes"
	@echo "make test    set up, then run all tests"
	@echo "make bench   set up, then measure against ZeroMQ, kickmsg, iceoryx2, POSIX queues, pipes"
	@echo "make lint    set up, then run the linters and type checkers"
	@echo "make clean   remove what the targets made"

$(READY): pyproject.toml setup.cfg $(wildcard msgq/impl/*.pyx msgq/impl/*.pxd msgq/impl/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -c 'from msgq.spark import session; session("local[1]").range(1).count()'  # later ones start faster
	touch $@

demo: $(READY)
	rm -rf build/demo
	$(BIN)/msgq demo --output build/demo/recording --report build/demo/report.html

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m tools.bench

lint: $(READY)
	$(BIN)/ruff check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint msgq
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info msgq/impl/*.so .pytest_cache .mypy_cache .ruff_cache
