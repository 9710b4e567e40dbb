# Everything a developer types. Needs only Python 3.11 or newer and make; the rest goes into .venv.

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that is there, runs and is new enough.
PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
ARGS ?=

.PHONY: help up test check bench chaos docs clean

help: ## Show this list.
	@sed -nE 's/^([a-z]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) \
		| while IFS='|' read -r target text; do printf '  make %-6s %s\n' "$$target" "$$text"; done

up: $(VENV)/.installed ## Start a broker on localhost:9092. Options: make up ARGS="--listen 127.0.0.1:9093"
	@exec $(BIN)/stratalog up $(ARGS)

# Three files of tests at a time: each has servers of its own, and waits much. In the order of their
# names, because those with few tests, which would come last otherwise, are the slow ones.
test: check ## Check style, types and layers, then run all tests.
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed ## Measure a broker beside librdkafka's mock cluster.
	@$(BIN)/stratalog bench $(ARGS)

chaos: $(VENV)/.installed-test ## Break brokers, and judge what clients saw. Options: make chaos ARGS="--seconds 600 --seed 7"
	@$(BIN)/python -m tests.faults.long_run $(ARGS)

docs: $(VENV)/.installed ## Write the generated pages and pictures of docs/.
	@$(BIN)/python tools/make_settings_page.py
	@$(BIN)/python tools/make_compatibility_page.py
	@$(BIN)/python tools/make_metrics_page.py
	@$(BIN)/python -m tools.draw_rooms
	@$(BIN)/python tools/draw_overview.py
	@$(BIN)/python tools/draw_strata.py

clean: ## Remove the environment and the caches. Data in stratalog-data stays.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { \
		echo "Stratalog needs Python 3.11 or newer, and none was found." >&2; \
		echo "Install it, or name one: make up PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Creating $(VENV) with $(PYTHON) …"
	@"$(PYTHON)" -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "Python's venv module is incomplete; Debian and Ubuntu keep it in python3-venv." >&2; \
		exit 1; }

# An editable install: the sources may change without another one, the dependencies may not.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Stratalog and what it needs into $(VENV) …"
	@$(PIP) install --editable '.[all]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml tools/install_test_tools.sh | $(VENV)/bin/python
	@echo "Installing Stratalog and what its tests need into $(VENV) …"
	@$(PIP) install --editable '.[test]'
	@tools/install_test_tools.sh $(BIN)/python
	@touch $(VENV)/.installed $@
