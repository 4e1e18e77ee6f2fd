# Every verb works on a fresh machine: it makes .venv and installs what is pinned, once.

PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/ready
STATIC := src/perdure/server/static/index.html
PAGE   := $(shell find page -type f -not -path 'page/node_modules/*' -not -path 'page/dist/*' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help serve test test-agents check crash bench page requirements

help:  ## list these verbs
	@sed -n 's/^\([a-z-]*\):.*## */\1\t/p' Makefile | awk -F '\t' '{ printf "make %-13s %s\n", $$1, $$2 }'

serve: $(READY) $(STATIC)  ## start the server on ./perdure-data and print the page's address
	@exec $(BIN)/perdure serve $(ARGS)

test: $(READY) $(STATIC)  ## run the tests, 20 crashes among them
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-agents: $(READY) $(STATIC)  ## run real command-line agents from npm against a provider mock
	@$(BIN)/python -m tests.agents.install
	$(BIN)/python -m pytest tests/agents/suite.py $(ARGS)

check: $(READY)  ## lint, format, types, imports, and what is committed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python hatch_build.py check
	$(BIN)/python .ci/committed.py

crash: $(READY) $(STATIC)  ## kill the server and the library at 200 random moments; every fault
	PERDURE_CRASH_ROUNDS=200 $(BIN)/python -m pytest tests/crash tests/faults $(ARGS)

bench: $(READY)  ## run every benchmark in bench/, in under ten minutes
	$(BIN)/python -m bench $(ARGS)

page: $(READY)  ## build the page into the package
	@$(BIN)/python hatch_build.py

requirements: $(READY)  ## pin the development packages anew
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --extra server --extra models --extra runtimes --extra acp --extra openai-agents --extra metrics --extra otel --output-file requirements-dev.txt pyproject.toml requirements-dev.in

$(READY): requirements-dev.txt pyproject.toml hatch_build.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(STATIC): $(PAGE) | $(READY)
	@$(MAKE) --no-print-directory page
	@touch $@
