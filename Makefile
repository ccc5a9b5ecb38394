# Two commands matter: `make up` and `make test`. Both install what they need from requirements.lock.
SHELL := /bin/bash -o pipefail
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Where tests keep their files: in memory, where there is room for them and programs in it may run.
# A disk takes two milliseconds to rename a file, and states are renamed into place thousands of times.
SCRATCH = $(shell [ -w /dev/shm ] && ! grep -q '^[^ ]* /dev/shm .*noexec' /proc/mounts && \
  [ "$$(df -Pk /dev/shm | awk 'END {print $$4}')" -gt 4000000 ] && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

.DEFAULT_GOAL := help
.PHONY: help up down preview test test-long test-machine check mutants bench schema docs policy protos goldens lock clean

help:  ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The environment is made anew when the lock file changes. uv comes from the lock file too: its
# own lines, hashes included, are all that pip gets to see.
$(READY): requirements.lock pyproject.toml engine/pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: Python 3.11 or newer is needed ($(PYTHON) is $$($(PYTHON) --version 2>&1)); install one or call 'make PYTHON=/path/to/python3'" >&2; exit 2; }
	@echo "installing the locked packages into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/^[^ ]/{/^uv==/p;/^ *--hash/p}' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.txt
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . --editable engine --editable lab
	@$(BIN)/python -m compileall -q caas components engine gpuclusters lab stacks
	@touch $(READY)

up: $(READY)  ## A whole caas cluster on this machine; again: changes nothing
	@$(BIN)/gpu-clusters up

preview: $(READY)  ## What `make up` would change
	@$(BIN)/gpu-clusters preview

down: $(READY)  ## Remove everything that `make up` made
	@$(BIN)/gpu-clusters down

test: $(READY)  ## Every test that needs neither cloud nor GPU, real nodes or minutes
	@PYTEST_DEBUG_TEMPROOT=$(SCRATCH) $(BIN)/pytest -m 'not (gpu or cloud or long or real_node or machine)'

test-long: $(READY)  ## The others: labs that are killed and broken, and real nodes (Linux with root)
	@$(BIN)/pytest -m '(long or real_node) and not (gpu or cloud or machine)'

test-machine: $(READY)  ## On a real machine: Debian under QEMU, made in minutes, once (Linux with root and apt)
	@$(BIN)/python -m lab.machine >/dev/null
	@$(BIN)/python -m lab.tools kubelet containerd containerd-shim-runc-v2 runc >/dev/null
	@$(BIN)/pytest tests/machine -m machine -n 2

check: $(READY) docs  ## Format, lint, types, layers, shell scripts, imports of the bench, the site
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@git ls-files -z '*.sh' .ci/run | xargs -0 -r $(BIN)/shellcheck
	@$(BIN)/pytest bench --collect-only --quiet -n 0 >/dev/null

mutants: $(READY)  ## Break the product in recorded ways: a test has to notice each
	@$(BIN)/python -m tests.mutants

bench: $(READY)  ## Timings, as ratios within one run
	@$(BIN)/pytest bench -n 0

schema: $(READY)  ## The JSON Schema of stack files, made from the code
	@$(BIN)/python -m docs.schema

policy/.venv/.ready: $(READY) policy/requirements.lock
	@$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python policy/.venv
	@$(BIN)/uv pip sync --quiet --python policy/.venv/bin/python --require-hashes policy/requirements.lock
	@touch $@

policy: policy/.venv/.ready  ## The environment of the Pulumi policy pack

docs: $(READY)  ## The documents as a site, in build/docs; a warning is an error
	@$(BIN)/python -m sphinx -q -W -E --keep-going -b html docs build/docs
	@echo "the site is in build/docs/index.html"

protos: $(READY)  ## Python of the kubelet's protocols, from caas/kubelet_api/*.proto
	@for user in caas/kubelet_api lab/kubelet_api; do \
	  $(BIN)/python -m grpc_tools.protoc --proto_path=caas/kubelet_api --python_out=$$user --pyi_out=$$user caas/kubelet_api/*.proto; \
	done

goldens: $(READY)  ## What committed stack files declare, written down anew
	@$(BIN)/pytest -n 0 --quiet tests/stacks --snapshot-update

lock: $(READY)  ## Lock the newest allowed versions
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group caas --group dev --group docs --group bootstrap --output-file requirements.lock pyproject.toml engine/pyproject.toml lab/pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group caas --constraint requirements.lock --output-file caas/requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --output-file policy/requirements.lock policy/requirements.in

clean:  ## Remove the environment and caches of tools (not the tools of the lab)
	@rm -rf $(VENV) build/docs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
