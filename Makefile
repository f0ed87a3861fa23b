# make report   environment, notebooks, site             (PROFILE=smoke|cpu|gpu|full DEVICE=cpu|cuda SEEDS=n RESULTS=folder)
# make test     environment, linters, types, every test
# make serve    the built site at http://127.0.0.1:8000  (PORT=n)
# make bench    this machine: the training engine and the condition numbers beside plain code
# make reproduce PROFILE=gpu    every planned run afresh in a new folder, the site from it, the comparison  (RESULTS=folder)

PYTHON  ?= python3.11
PROFILE ?= cpu
DEVICE  ?= cpu
SEEDS   ?=
PORT    ?= 8000

# A smoke build trains everything afresh, away from the committed records.
FRESH   := .smoke
RESULTS ?= $(if $(filter smoke,$(PROFILE)),$(FRESH))

VENV    := .venv
BIN     := $(VENV)/bin
LOCKED  := $(VENV)/.locked
READY   := $(VENV)/.ready
STARTED := $(shell date +%s)
SINCE    = $$(( $$(date +%s) - $(STARTED) ))

OPTIONS := --profile $(PROFILE) --device $(DEVICE) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(RESULTS),--results $(RESULTS))

.DEFAULT_GOAL := report
.PHONY: report test bench reproduce lint format serve install clean clean-all

report: $(READY)
	@$(if $(filter $(FRESH),$(RESULTS)),rm -rf $(FRESH))
	@install=$(SINCE); $(BIN)/heads-for-depth build $(OPTIONS) && echo "         install $$install s, all $(SINCE) s"

test: $(READY)
	@echo "== install: $(SINCE) s"
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest $(PYTEST)

bench: $(READY)
	@$(BIN)/heads-for-depth bench $(BENCH)

# The gpu profile runs on a GPU unless DEVICE says otherwise; the records go to .reproduced/ unless RESULTS does.
reproduce: $(READY)
	@$(BIN)/heads-for-depth reproduce --profile $(PROFILE) \
		--device $(if $(filter gpu,$(PROFILE)),$(if $(filter file,$(origin DEVICE)),cuda,$(DEVICE)),$(DEVICE)) \
		--results $(or $(RESULTS),.reproduced) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(WORKERS),--workers $(WORKERS))

lint: $(READY)
	@echo "== ruff" && $(BIN)/ruff check .
	@echo "== mypy" && $(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

serve: $(READY)
	@$(BIN)/heads-for-depth serve --port $(PORT)

install: $(READY)

# The lock is installed when it changed, the package when its metadata changed; otherwise nothing is installed.
$(LOCKED): requirements.lock
	@echo "== environment: $(VENV) with the versions of requirements.lock (some 6 GB on Linux, a few minutes)"
	@$(PYTHON) -m venv $(VENV) || { echo "A Python 3.11 with venv is needed: apt-get install python3.11-venv," \
		"or make PYTHON=path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check --requirement requirements.lock
	@touch $@

$(READY): pyproject.toml $(LOCKED)
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf _build book/executed book/_generated $(FRESH)

clean-all: clean
	rm -rf $(VENV)
