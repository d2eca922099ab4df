# make demo   sets everything up and runs the main job
# make test   sets everything up and passes the tests
PYTHON ?= python3.11
VENV ?= .venv
# The newest torch that the tests ran with. On Linux the default build brings CUDA along; a CPU build is enough.
TORCH ?= torch==2.13.0
BIN = $(VENV)/bin
WORKERS ?= 2

.PHONY: help setup demo demo-rngd test test-rngd check format bench serve clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train a few steps on two nodes with graphs from one service (first run: compiles them)"
	@echo "make demo-rngd  the same with graphs of the real RNGD compiler (DEMO_RNGD=--real-size: a layer of the real size)"
	@echo "make test       run the tests"
	@echo "make test-rngd  run the tests of the RNGD toolchain with the real compiler"
	@echo "make check      lint, types, import contracts"
	@echo "make bench      every benchmark, one table each"
	@echo "make serve      a service on 127.0.0.1:8750 with its data in .data"
	@echo "make clean      remove the environment and the demo's data"

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[dev]' $(TORCH)
	touch $@

demo: setup
	$(BIN)/python -m graphcache_runtime.demo $(DEMO)

demo-rngd:
	scripts/demo_rngd.sh $(DEMO_RNGD)

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) -m "not rngd" tests

test-rngd:
	scripts/test_rngd.sh

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=client:service:runtime $(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	for name in serve stampede scale experts step cold; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

serve: setup
	$(BIN)/graphcache serve --data-dir .data

clean:
	rm -rf $(VENV) .demo .data
