# Thin targets; what they run is in pyproject.toml and the packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamp files: a step touches its file when it is done.
TOOLS := $(VENV)/tools
COMPILED := $(VENV)/compiled
LINKED := $(VENV)/linked
LIGHT := $(VENV)/light
SPARK := $(VENV)/spark
INSTALLED := $(VENV)/installed
STARTED := $(VENV)/started
READY := $(VENV)/ready
DELTA_SPARK := build/delta-spark/ready
SOURCES := $(shell find msgq visionipc -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' -o -name '*.pyi' -o -name '*.h')
C := $(shell find msgq visionipc tests tools examples -name '*.h' -o -name '*.c' -o -name '*.[ch]pp')
BUILDS := setup.py setup.cfg $(wildcard tools/building/*.py) $(SOURCES)
PIP := $(BIN)/python -m pip --disable-pip-version-check
ALONGSIDE := $(MAKE) --no-print-directory --silent --jobs=2
TOGETHER := $(MAKE) --no-print-directory --jobs=2 --output-sync=target
# Python keeps all bytecode in this folder and compiles only the modules that it imports. pip compiles no bytecode.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache

# The lines of pip to show: downloads of more than 10 MB, builds, and the end.
STEPS := -e 's/^ *Downloading \([^ ]*\) (\([0-9]\{2,\}\.[0-9]* [MG]B\).*/  downloading \1, \2/p' \
  -e 's/^ *Building wheel for \([^ ]*\) .*started.*/  building \1/p' -e 's/^Installing collected packages:.*/  unpacking/p'
# Installs the packages of extras and shows progress: `$(call install,EXTRAS)`.
install = @mkdir -p build; log=build/pip-$(notdir $@).log; needed=$$($(BIN)/python tools/requirements.py $(1)) || exit; \
  $(PIP) install --no-compile --requirement /dev/stdin <<< "$$needed" > $$log 2>&1 & pip=$$!; \
  trap 'kill $$pip 2> /dev/null' EXIT INT TERM; \
  tail --pid=$$pip --lines=+1 --follow=name --retry $$log 2>/dev/null | sed --unbuffered --quiet $(STEPS); \
  wait $$pip || { tail -n 20 $$log; exit 1; }

# A crashed process ends the run: pytest-xdist would wait for it without end. The mode `loadgroup` looks at all earlier
# tests after each test, which takes a minute for 13,000 tests. It is for the tests marked `ci`, whose groups share Spark.
RUN := timeout --foreground --signal=INT --kill-after=60
PYTEST := -m pytest --max-worker-restart 0 -n auto
FAST := --dist worksteal -m "not ci and not nightly and not style"
# The versions of Python that `make nightly` tests; the letter t: without the GIL.
PYTHONS := 3.11 3.12 3.13 3.14 3.15 3.13t
# The parts of `make nightly`, and the time limit of each.
PARTS := lint fast ci spark delta slow coverage sanitized headers modules $(PYTHONS:%=python%) dist
LIMIT := 60m
# The parts of `make lint`, which run side by side: the longest first.
LINTERS := lint-types lint-style lint-c lint-layout
# Reports what a step took: `$(call timed,NAME,COMMAND)`.
SHELL := /bin/bash
timed = @TIMEFORMAT='$(1): %0R s, %0U + %0S s of processor time'; time $(2)

.PHONY: help demo test ci docs nightly $(PARTS:%=nightly-%) nightly-versions delta-spark bench lint $(LINTERS) format dist clean

help:
	@echo "make demo    set up, then show this machine's telemetry flowing between processes"
	@echo "make test    set up, then run the fast tests: less than 3 minutes on two cores"
	@echo "make ci      set up, then run all checks that a change must pass: less than 15 minutes on two cores"
	@echo "make nightly set up, then run all tests with random seeds, mutants, and each version of Python: hours"
	@echo "make nightly-PART  one part of it, at most an hour: $(PARTS)"
	@echo "make delta-spark  set up, then download delta-spark for its tests in make ci and make nightly: 500 MB"
	@echo "make bench   set up, then measure against ZeroMQ, kickmsg, iceoryx2, POSIX queues, pipes"
	@echo "make docs    set up, then write the documentation site to build/site"
	@echo "make lint    set up, then run the linters, the type checkers and the rules for names and texts"
	@echo "make format  set up, then write the layout of Python and C files"
	@echo "make dist    set up, then make the archive and the wheel, and test them in an environment of their own"
	@echo "make dist PYTHONS='3.11 3.12'  the same, with a wheel for each of these versions"
	@echo "make clean   remove what the targets made"

$(TOOLS): pyproject.toml
	@echo "set-up: a virtual environment in $(VENV), with Cython"
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(call install)
	@touch $@

$(COMPILED): $(TOOLS) $(BUILDS)
	@echo "set-up: the extension modules"
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# The mode `compat` adds this folder to the path. With other modes, each Python process starts 20 ms later.
$(LINKED): pyproject.toml | $(COMPILED)
	@$(PIP) --quiet install --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

$(LIGHT): pyproject.toml | $(TOOLS)
	@echo "set-up: the packages of the demo's processes"
	$(call install,cli frames record)
	@touch $@

$(SPARK): pyproject.toml | $(LIGHT) $(LINKED)
	@echo "set-up: Spark, about 450 MB; later from pip's cache"
	$(call install,demo)
	@$(BIN)/python -c 'from msgq.spark.runtime.java import find_java; find_java()' 2> /dev/null \
	  || { echo "set-up: a Java runtime"; \
	    $(PIP) --quiet install --no-compile $$($(BIN)/python tools/requirements.py spark-jdk); }
	@touch $@

$(INSTALLED): pyproject.toml | $(TOOLS)
	@echo "set-up: the packages of tests and tools, about 1 GB; later from pip's cache"
	$(call install,dev)
	@touch $@

$(STARTED): $(INSTALLED) | $(LINKED)
	@echo "set-up: the first start of Spark and the compilation of the tests, which make later runs faster"
	@$(BIN)/python -c 'from msgq.spark import session; session("local[1]").range(1).count()'
	@# Otherwise, each process of the first run compiles all tests: 12 s of processor time each.
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null
	@touch $@

# Packages are downloaded while the modules are compiled.
$(READY): pyproject.toml $(BUILDS)
	@$(ALONGSIDE) $(STARTED) $(COMPILED) $(LINKED)
	@touch $@

# Spark is installed while the demo's processes run, because only the report needs it.
demo:
	@$(ALONGSIDE) $(LIGHT) $(COMPILED) $(LINKED)
	@rm -rf build/demo && mkdir -p build/demo
	@nice $(MAKE) --no-print-directory $(SPARK) > build/demo/spark.log 2>&1 & spark=$$!; \
	  trap 'kill $$spark 2> /dev/null' EXIT INT TERM; \
	  $(BIN)/msgq demo --full --output build/demo/recording || exit; \
	  echo "the report: as soon as Spark is installed"; \
	  tail --pid=$$spark --lines=+1 --follow build/demo/spark.log; \
	  wait $$spark && $(BIN)/msgq lake report build/demo/recording --output build/demo/report.html

test: $(READY)
	$(call timed,make test,$(RUN) 20m $(BIN)/python $(PYTEST) $(FAST))

ci: $(READY)
	$(call timed,make lint docs,$(TOGETHER) $(LINTERS) docs)
	@$(MAKE) --no-print-directory test
	$(call timed,tests marked ci,$(RUN) 50m $(BIN)/python $(PYTEST) --dist loadgroup -m "(ci and not nightly) or listed")

# Runs all parts, also if one of them fails. SIGTERM ends a part that takes longer than LIMIT.
nightly: $(READY)
	rm -rf build/coverage build/pythons/results
	@$(MAKE) --no-print-directory --keep-going $(PARTS:%=nightly-%) nightly-versions

nightly-versions:
	@$(BIN)/python tools/pythons.py --results $(PYTHONS)

COVERED := env MSGQ_TEST_SEED=random $(BIN)/python -m coverage run $(PYTEST)
SPARK_TESTS := tests/spark tests/lake tests/report
DELTA_TESTS := tests/delta_spark
OTHER_TESTS := $(SPARK_TESTS:%=--ignore %) --ignore $(DELTA_TESTS)
nightly-lint: PART = $(MAKE) --no-print-directory lint
nightly-fast: PART = $(COVERED) $(FAST)
nightly-ci: PART = $(COVERED) --dist loadgroup -m "ci and not nightly" $(OTHER_TESTS)
nightly-spark: PART = $(COVERED) --dist loadgroup $(SPARK_TESTS)
nightly-delta: PART = $(COVERED) --dist loadgroup $(DELTA_TESTS)
nightly-slow: PART = $(COVERED) --dist loadgroup -m nightly $(OTHER_TESTS)
nightly-coverage: PART = tools/coverage.sh
nightly-sanitized: PART = tools/sanitized.sh
nightly-headers: PART = $(BIN)/python -m tools.mutate.headers --seconds 3300
nightly-modules: PART = $(BIN)/python -m tools.mutate --most 60 --seconds 3300
nightly-python%: PART = tools/test_with_python.sh $*
nightly-dist: PART = $(MAKE) --no-print-directory dist

nightly-delta: $(DELTA_SPARK)
$(PARTS:%=nightly-%): nightly-%: $(READY)
	$(call timed,$@,timeout --foreground --kill-after=60 $(LIMIT) $(PART))

delta-spark: $(DELTA_SPARK)
$(DELTA_SPARK): tools/delta_spark.sh | $(READY)
	@echo "set-up: delta-spark and the Spark that it supports, about 500 MB"
	@tools/delta_spark.sh

bench: $(READY)
	$(call install,bench)
	$(BIN)/python -m tools.bench

# A broken link, a missing page, an unknown name or a fault of a built page (tools/site/built_pages.py) fails.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: $(READY)
	@$(TOGETHER) $(LINTERS)

$(LINTERS): $(READY)
lint-types:
	$(BIN)/mypy
lint-style:
	$(RUN) 10m $(BIN)/python $(PYTEST) -q -m style tests/meta
# One analysis of each header would read most headers ten times, as parts of others.
lint-c:
	mkdir -p build/cppcheck
	$(BIN)/cppcheck --quiet --error-exitcode=1 --std=c11 --language=c --inline-suppr --cppcheck-build-dir=build/cppcheck \
	  --enable=warning,performance,portability -Imsgq/impl -Imsgq/include -Imsgq/recording -Ivisionipc/impl \
	  $$($(BIN)/python tools/top_headers.py $(filter %.h,$(SOURCES)))
lint-layout:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/clang-format --dry-run -Werror $(C)
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint msgq visionipc

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C)

# Makes the source archive, and from it a wheel for each version of PYTHONS. Outside of this folder, the fast
# tests then run on the first wheel (without tests/meta, which reads the sources) and on the archive, which replaces it.
AWAY := $(CURDIR)/build/away
ELSEWHERE := $(AWAY)/.venv/bin/python $(PYTEST) -q -p no:cacheprovider $(FAST)
dist: PYTHONS = $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
dist: $(TOOLS)
	$(call install,dist)
	rm -rf dist $(AWAY)
	mkdir -p $(AWAY) && $(BIN)/python -m build --sdist --outdir dist > $(AWAY)/build.log || { tail -n 20 $(AWAY)/build.log; exit 1; }
	mkdir $(AWAY)/archive && tar -xzf dist/*.tar.gz -C $(AWAY)/archive --strip-components=1
	@# Without these files, Python imports the packages of the wheel. The headers remain for tests that compile C.
	cp -r $(AWAY)/archive $(AWAY)/wheel && rm $(AWAY)/wheel/{msgq,visionipc}/__init__.py $(AWAY)/wheel/p*_msgq*.py
	PATH="$(CURDIR)/$(BIN):$$PATH" tools/wheels.sh $(AWAY) $(PYTHONS)
	$(BIN)/python -m twine check --strict dist/*
	$(AWAY)/.venv/bin/python -m pip install --quiet --no-compile "$$(cat $(AWAY)/first-wheel)[test]"
	cd $(AWAY)/wheel && $(ELSEWHERE) --ignore tests/meta
	cd $(AWAY)/archive && $(AWAY)/.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation \
	  --config-settings editable_mode=compat --editable . && $(ELSEWHERE)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
