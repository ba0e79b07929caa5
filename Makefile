# gradmux: each target sets up .venv by itself; on a fresh clone only GNU make and Python 3.11 or newer are needed.
# Another interpreter: make test PYTHON=/path/to/python3.12     Other pytest arguments: make test ARGS="-k schemes -x"

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests often wait, for delays and for processes: half as many again as there are cores keep the cores busy.
JOBS ?= $(shell echo $$(( ($$(nproc 2>/dev/null || echo 2) * 3 + 1) / 2 )))
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo test check format bench soak peers aws-test docs clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

install: $(STAMP) ## Set up .venv with everything (done by the other targets when needed)

$(STAMP): pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" bash scripts/setup_venv.sh $(VENV)
	@touch $@

demo: $(STAMP) ## Train four models on emulated Lambda workers under six schemes and compare (no account needed)
	@$(BIN)/gradmux demo $(ARGS)

test: $(STAMP) ## Run all tests
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

check: $(STAMP) ## Check format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## Run the benchmarks: our figure beside the peer's, in one run
	$(BIN)/python -m benchmarks $(ARGS)

soak: $(STAMP) ## Train for 20 minutes under all faults at once, killing and resuming; other lengths: ARGS="--minutes 5"
	$(BIN)/python -m benchmarks.soak $(ARGS)

peers: $(STAMP) ## Try gradmux's assumptions on an S3 that is not ours (needs Node; says so where it is missing)
	@$(BIN)/python -m scripts.peers

aws-test: $(STAMP) ## Deploy into your AWS account, try everything, run a job, destroy: asks first, under 0.50 dollars
	@$(BIN)/python -m scripts.aws_test

docs: $(STAMP) ## Write docs/cli.md, schemes.md, job-file.md and adding-a-backend.md anew from help texts, registry, schema, example
	@$(BIN)/python -m scripts.cli_docs
	@$(BIN)/python -m scripts.scheme_docs
	@$(BIN)/python -m scripts.job_docs
	@$(BIN)/python -m scripts.backend_docs

clean: ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
