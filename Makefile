# Thin targets; what they run is in pyproject.toml and the packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
READY := $(VENV)/ready
SOURCES := $(shell find msgq visionipc -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' -o -name '*.h')
C := $(shell find msgq visionipc tests tools examples -name '*.h' -o -name '*.c' -o -name '*.cpp')
PIP := $(BIN)/python -m pip install --disable-pip-version-check
BUILD := $(BIN)/python setup.py --quiet build_ext --inplace
# What is worth a line of what pip says: downloads of more than 10 MB, what is built, and the end.
STEPS := -e 's/^ *Downloading \([^ ]*\) (\([0-9]\{2,\}\.[0-9]* [MG]B\).*/  downloading \1, \2/p' \
  -e 's/^ *Building wheel for \([^ ]*\) .*started.*/  building \1/p' -e 's/^Installing collected packages:.*/  installing/p'

PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup
# Reports what a step took: `$(call timed,NAME,COMMAND)`.
SHELL := /bin/bash
timed = @TIMEFORMAT='$(1): %0R s, %0U + %0S s of processor time'; time $(2)

.PHONY: help demo test ci nightly random-tests mutants pythons bench lint format dist clean

help:
	@echo "make demo    set up, then show this machine's telemetry flowing between processes"
	@echo "make test    set up, then run the tests of every day: less than 3 minutes on two cores"
	@echo "make ci      set up, then run the linters and what a change must pass: less than 15 minutes"
	@echo "make nightly set up, then run everything, with random seeds, coverage, mutants and each Python there is: hours"
	@echo "make bench   set up, then measure against ZeroMQ, kickmsg, iceoryx2, POSIX queues, pipes"
	@echo "make lint    set up, then run the linters and type checkers"
	@echo "make format  set up, then write the layout of Python and C files"
	@echo "make dist    set up, then make the archive and the wheel, and test them in an environment of their own"
	@echo "make clean   remove what the targets made"

# Packages are installed anew when their list changes; when a source changes, what is made of it is compiled.
$(INSTALLED): pyproject.toml
	@echo "set-up, 1 of 4: a virtual environment in $(VENV), with what compiles the extension modules"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --quiet 'setuptools>=77' 'cython>=3.3'
	@echo "set-up, 2 of 4: the extension modules, about two minutes on two cores"
	@$(BUILD)
	@echo "set-up, 3 of 4: the packages that tests and tools need, about 1 GB; later from pip's cache"
	@mkdir -p build
	@$(PIP) --no-build-isolation --editable '.[dev]' > build/pip.log 2>&1 & pip=$$!; \
	  tail --pid=$$pip --lines=+1 --follow build/pip.log 2>/dev/null | sed --unbuffered --quiet $(STEPS); \
	  wait $$pip || { tail -n 20 build/pip.log; exit 1; }
	@echo "set-up, 4 of 4: the first start of Spark, after which others are faster"
	@$(BIN)/python -c 'from msgq.spark import session; session("local[1]").range(1).count()'
	@touch $@

$(READY): $(INSTALLED) setup.py setup.cfg $(wildcard tools/building/*.py) $(SOURCES)
	@$(BUILD)
	@touch $@

demo: $(READY)
	rm -rf build/demo
	$(BIN)/msgq demo --output build/demo/recording --report build/demo/report.html

test: $(READY)
	$(call timed,make test,$(PYTEST) -m "not ci and not nightly")

ci: $(READY)
	$(call timed,make lint,$(MAKE) --no-print-directory lint)
	@$(MAKE) --no-print-directory test
	$(call timed,tests marked ci,$(PYTEST) -m "ci and not nightly")

# Everything, also when one of the steps fails.
nightly: $(READY)
	@$(MAKE) --no-print-directory --keep-going lint random-tests mutants pythons

random-tests: $(READY)
	rm -rf build/coverage
	$(call timed,all tests,MSGQ_TEST_SEED=random $(BIN)/python -m coverage run -m pytest -n auto --dist loadgroup)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report > build/coverage/report.txt
	head -n 22 build/coverage/report.txt
	@! grep ' 0%$$' build/coverage/report.txt || { echo "no test runs these modules"; exit 1; }

mutants: $(READY)
	$(call timed,mutants,$(BIN)/python -m tools.mutate --most 60 --seconds 3000)

pythons: $(READY)
	tools/pythons.sh

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m tools.bench

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/clang-format --dry-run -Werror $(C)
	$(BIN)/cppcheck --quiet --error-exitcode=1 --std=c11 --language=c --inline-suppr \
	  --enable=warning,performance,portability -Imsgq/impl -Imsgq/include -Imsgq/recording -Ivisionipc/impl $(filter %.h,$(SOURCES))
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint msgq visionipc
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C)

# The archive of the sources, the wheel made of it, and the fast tests on that wheel, away from this folder.
dist: $(READY)
	rm -rf dist build/away
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	mkdir -p build/away && tar -xzf dist/*.tar.gz -C build/away --strip-components=1
	rm -rf build/away/msgq build/away/visionipc
	$(PYTHON) -m venv build/away/.venv
	build/away/.venv/bin/python -m pip install --quiet dist/*.whl 'pytest>=8,<9.2'
	cd build/away && .venv/bin/python -m pytest -q -p no:cacheprovider tests/unit/test_naming.py tests/unit/test_ring_reader.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
