# Needs Python 3.10 or newer and make, nothing else: everything is installed into .venv, and the
# libraries of test-libraries, which need Python 3.11, into .venv-libraries.
# Another interpreter: make test PYTHON=python3.12; one process of tests instead of two: WORKERS=1

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
LIBRARIES := .venv-libraries
VENVS := $(VENV) $(LIBRARIES)
BIN := $(VENV)/bin
PIP = $(@D)/bin/python -m pip --quiet --disable-pip-version-check
PINS := requirements/constraints.txt
# Each file lists all that it needs, with hashes: a file that is not one of these is refused.
HASHED := --require-hashes --no-deps

.PHONY: help demo test test-all test-long test-coverage test-wheel test-libraries test-torch test-python bench bench-full docs shots lint format pins clean

help:
	@echo "make demo            install zerograd into .venv and let it find the bugs in examples/"
	@echo "make test            install everything pinned, then lint, type-check and run the fast tests"
	@echo "make test-all        the same with all tests: random programs, ranks, browser, layouts"
	@echo "make test-long       only those that make test leaves out"
	@echo "make test-coverage   every line and branch of core and rules is tested; part of test-all"
	@echo "make test-wheel      build the wheel, and run the tests that do not read the source tree against it"
	@echo "make test-libraries  run the training loops of real libraries, in .venv-libraries"
	@echo "make test-torch VERSION=2.6.0  run the runtime and rank tests on another torch, in .venv-torch, which is deleted after"
	@echo "make test-python VERSION=3.13  run the tests of the static half on another Python, in .venv-python, without torch"
	@echo "make bench           measure what fits into 20 minutes, and write docs/benchmarks.md"
	@echo "make bench-full      measure the rest; it downloads packages, and can be resumed"
	@echo "make docs            build the documentation into build/site, links checked"
	@echo "make shots           take pictures of the page, the lessons and the site, into build/shots"
	@echo "make lint            the first half of make test: ruff and mypy"
	@echo "make format          let ruff format and repair what it can"
	@echo "make pins            write requirements/*.txt, with hashes, from requirements/*.in and constraints.txt"
	@echo "make clean           remove .venv, .venv-libraries and every cache"

demo: $(VENV)/.zerograd
	@$(BIN)/python docs/demo.py

test: lint
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --tier fast

test-all: lint test-coverage
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

test-long: $(VENV)/.dev
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --tier long

# Their own tests, without those that run torch, execute every line and branch of core and rules.
test-coverage: $(VENV)/.dev
	$(BIN)/coverage run -m pytest -q --tier fast tests/core tests/rules/test_edges.py tests/rules/test_selection.py tests/rules/test_unused_allow.py tests/rules/test_which_rules.py
	$(BIN)/coverage report

# The wheel where there is no source tree, with the tests that do not read it.
test-wheel: $(VENV)/.dev
	$(BIN)/python tests/support/installed.py -n $(WORKERS) --tier fast

test-libraries: $(LIBRARIES)/.libraries $(LIBRARIES)/.zerograd
	$(LIBRARIES)/bin/pytest -q -n $(WORKERS) tests/libraries

# Another torch than the pinned one: several gigabytes, so not a part of any other target.
test-torch: $(VENV)/.dev
	@test -n "$(VERSION)" || { echo "which torch? make test-torch VERSION=2.6.0" >&2; exit 1; }
	rm -rf .venv-torch && $(PYTHON) -m venv .venv-torch
	sed '1,/^$$/d' $(PINS) > .venv-torch/pins.txt  # without torch and what it needs, the first paragraph
	.venv-torch/bin/python -m pip --quiet --disable-pip-version-check --no-cache-dir install -c .venv-torch/pins.txt torch==$(VERSION) numpy
	.venv-torch/bin/python -m pip --quiet --disable-pip-version-check install -c .venv-torch/pins.txt -e . -r requirements/dev.in
	.venv-torch/bin/pytest -q -n $(WORKERS) --tier fast tests/runtime tests/stepper tests/fold tests/launch
	.venv-torch/bin/pytest -q -n $(WORKERS) --tier long tests/runtime/ranks tests/stepper/test_stepper_ranks.py
	rm -rf .venv-torch

# The half that reads source, on another Python and without torch. PYTHON names an interpreter that is not on the path.
STATIC := core rules explore static check cli fix report
test-python:
	@test -n "$(VERSION)" || { echo "which Python? make test-python VERSION=3.13" >&2; exit 1; }
	rm -rf .venv-python && $(if $(filter file,$(origin PYTHON)),python$(VERSION),$(PYTHON)) -m venv .venv-python
	.venv-python/bin/python -c 'import platform; assert f"{platform.python_version()}.".startswith("$(VERSION)."), platform.python_version()'
	.venv-python/bin/python -m pip --quiet --disable-pip-version-check install $(HASHED) -r requirements/build.txt -r requirements/dev.txt
	.venv-python/bin/python -m pip --quiet --disable-pip-version-check install --no-build-isolation --no-deps -e .
	.venv-python/bin/pytest -q -n $(WORKERS) --tier fast $(STATIC:%=tests/%)
	rm -rf .venv-python

# REPOS is a folder of checkouts for the known bugs, which bench/wild.py --help describes.
bench: $(VENV)/.dev
	$(BIN)/python bench/measure.py $(REPOS:%=--repos %)

bench-full: $(VENV)/.bench
	$(BIN)/python bench/measure.py --full --resume

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

shots: docs
	$(BIN)/python docs/shots.py
	@echo "look at build/shots"

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Needed after a change of requirements/*.in or constraints.txt.
pins: .venv-pins/.uv
	grep -v '^torch==' $(PINS) > .venv-pins/constraints.txt
	for name in build base dev; do $(COMPILE) --python-version 3.10 requirements/$$name.in -o requirements/$$name.txt || exit; done
	for name in bench docs libraries; do $(COMPILE) --python-version 3.11.7 --no-deps requirements/$$name.in -o requirements/$$name.txt || exit; done

COMPILE := .venv-pins/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-emit-index-url \
	--custom-compile-command "make pins" -c .venv-pins/constraints.txt

.venv-pins/.uv: $(PINS)
	$(PYTHON) -m venv .venv-pins
	$(PIP) install -c $(PINS) uv
	@touch $@

clean:
	rm -rf $(VENVS) .venv-pins .venv-torch .venv-python build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A stamp is newer than what it was made from, so that a second run installs nothing.
$(VENVS:%=%/.python):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "zerograd needs Python 3.10 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	@touch $@

# torch comes first: with its exact pin pip takes the build that fits this machine.
$(VENVS:%=%/.torch): %/.torch: %/.python $(PINS) requirements/build.txt requirements/base.txt
	@echo "installing torch (once; it is large)"
	$(PIP) install $(HASHED) -r requirements/build.txt -r requirements/base.txt
	$(PIP) install -c $(PINS) torch
	@touch $@

$(VENVS:%=%/.zerograd): %/.zerograd: %/.torch pyproject.toml src/zerograd/__init__.py
	$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.zerograd requirements/dev.txt
	$(PIP) install $(HASHED) -r requirements/dev.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dev requirements/bench.txt
	$(PIP) install $(HASHED) -r requirements/bench.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.dev requirements/docs.txt
	$(PIP) install $(HASHED) -r requirements/docs.txt
	@touch $@

$(LIBRARIES)/.libraries: $(LIBRARIES)/.torch requirements/libraries.txt
	@echo "installing the libraries (once; they are large)"
	$(PIP) install $(HASHED) -r requirements/libraries.txt
	@touch $@
