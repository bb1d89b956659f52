# `make` lists the targets. Set PYTHON to choose the interpreter, PORT to choose where the page is served.

PYTHON ?= python3
PORT   ?=
ADDRESS := localhost

VENV := .venv
BIN  := $(VENV)/bin
RUN  := $(BIN)/python -m
PIP  := $(RUN) pip install --quiet --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help run test lint format types golden load audit lock calibrate prices bench latency chromium nginx clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.run ## Install what the page needs and serve it on this machine
	@$(RUN) streamlit run app.py --server.address $(ADDRESS) $(if $(PORT),--server.port $(PORT))

test: $(VENV)/.dev chromium nginx ## Install what the tests need, Chromium too, and run them all (ARGS="-k layers" for some)
	@$(RUN) pytest $(ARGS)

lint: $(VENV)/.dev ## Check style and formatting
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .

format: $(VENV)/.dev ## Reformat, and fix what can be fixed
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

types: $(VENV)/.dev ## Check types
	@$(RUN) mypy

golden: $(VENV)/.dev ## Write the golden answers anew; CHANGELOG.md says which numbers moved, and why
	@$(RUN) scripts.golden

load: $(VENV)/.dev ## Put people on the page, on this machine, and print how it bears them (two minutes)
	@$(RUN) scripts.load $(ARGS)

audit: $(VENV)/.audit ## Licences, versions and known vulnerabilities of what the page runs on (ARGS=--strict)
	@PYTHONPATH=$(VENV)/audit $(RUN) scripts.audit $(ARGS)

lock: $(VENV)/.audit ## Resolve requirements.txt anew into requirements.lock, with hashes
	@PYTHONPATH=$(VENV)/audit CUSTOM_COMPILE_COMMAND="make lock" $(RUN) piptools compile --quiet --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --allow-unsafe \
	  --output-file requirements.lock requirements.txt

calibrate: $(VENV)/.dev ## Fit the speed constants to catalogs/measurements again (two minutes)
	@$(RUN) scripts.calibrate
	@$(RUN) scripts.group_errors

prices: $(VENV)/.dev ## Compare the catalogue's prices with the list of today (ARGS=--write to take it over)
	@$(RUN) scripts.prices $(ARGS)

bench: $(VENV)/.dev ## Measure how fast plans are made, on one core (half a minute)
	@$(RUN) scripts.bench

latency: $(VENV)/.dev chromium ## Time from a slider to each redrawn tab, against the least app (three minutes, quiet machine)
	@$(RUN) scripts.latency

clean: ## Remove the environment, caches and what the tests left
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis test-artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian packages venv apart from python3; without it, virtualenv from a throw-away folder makes the same environment.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "parplan needs Python 3.11 or newer; set PYTHON")'
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  seed=$$(mktemp -d) && \
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check --target "$$seed" virtualenv && \
	  PYTHONPATH="$$seed" $(PYTHON) -m virtualenv --quiet --clear $(VENV) && \
	  rm -rf "$$seed"; }
	@touch $@

$(VENV)/.run: requirements.txt | $(VENV)/.python
	@echo "Installing $<"
	@$(PIP) -r $<
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.run
	@echo "Installing $<"
	@$(PIP) -r $<
	@touch $@

# Beside the environment, not in it: the auditors' own needs must not move the versions they look at.
$(VENV)/.audit: requirements-dev.txt $(VENV)/.dev
	@echo "Installing the auditors"
	@rm -rf $(VENV)/audit
	@$(PIP) --target $(VENV)/audit pip-audit==2.10.1 pip-tools==7.6.2
	@touch $@

# The browser tests prefer the system's Chromium; where there is none, Debian's package or Playwright's own build.
chromium: $(VENV)/.dev
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && grep -qs '^ID=debian' /etc/os-release; then \
	  echo "Installing chromium"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium \
	    </dev/null >/dev/null; \
	else $(RUN) playwright install chromium; fi

# One test puts two servers behind nginx, with the file of deploy/. Where there is none and it is not Debian, it is skipped.
nginx:
	@if ! command -v nginx >/dev/null && [ "$$(id -u)" = 0 ] && grep -qs '^ID=debian' /etc/os-release; then \
	  echo "Installing nginx"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
	    apt-get -qq install -y --no-install-recommends nginx-light </dev/null >/dev/null; \
	fi
