# Everything needs only python3 (3.11 to 3.13) with venv and pip; each target sets itself up first.
#   make run      the console             ARGS="--config FILE ..."
#   make test     all tests               ARGS="-k words tests/fleet ..."  JOBS=2 in two processes
#   make check    format, lint, types, imports between the rooms
#   make bench    measured figures beside their aims
#   make dist     the wheel and the source archive, in dist/
#   make lock     resolve the dependencies anew into the two lock files
# Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv-$(VERSION)
READY := $(VENV)/ready
BIN := $(VENV)/bin

.PHONY: run test check format bench dist lock clean

run: $(READY)
	@$(BIN)/dflash-console $(ARGS)

test: $(READY)
	$(BIN)/pytest $(if $(JOBS),-n $(JOBS) --dist loadfile) $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	@$(BIN)/python -m tests.bench $(ARGS)

dist: $(READY)
	$(BIN)/python -m hatchling build --directory dist

$(READY): requirements-dev.lock pyproject.toml
	@test -n "$(VERSION)" || { echo "There is no '$(PYTHON)' here. Install Python 3.11 to 3.13, or name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "$(PYTHON) is Python $(VERSION); the console needs 3.11 to 3.13. Name another: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module with pip. On Debian and Ubuntu: apt install python$(VERSION)-venv" >&2; exit 2; }
	@echo "setting up $(VENV): the console, and what its tests and checks need; once, about a minute ..." >&2
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# uv resolves for every platform and Python at once, which pip can not.
COMPILE = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"

lock:
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install -qq --disable-pip-version-check uv
	$(COMPILE) pyproject.toml --output-file requirements.lock
	$(COMPILE) --constraints requirements.lock pyproject.toml --group dev --output-file requirements-dev.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv-* dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
