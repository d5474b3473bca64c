# Every habit of the house. Each target does its own set-up: it needs Python 3.10 or later, gcc and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/demo
READY := $(VENV)/ready

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-throttle demo-sft demo-sweep demo-ddp demo-cpp demo-replay test test-long lint check zoo faults soak gpu-check fuzz bench clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(READY)  ## Make the virtual environment with everything in it

# What the demos need comes alone: who only wants to see one shall not wait for what tests need.
# torch comes first and by its pin: named by another package alone, pip would take the newest build with CUDA.
# An editable install has no bytecode yet: compiled here, the first start is as quick as every other one.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	$(BIN)/python -m compileall -q monitor trainhooks
	@touch $(DEMO)

$(READY): $(DEMO)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,dev]'
	@touch $(READY)

demo: $(DEMO)  ## Watch a real reinforcement-learning run on code
	$(BIN)/trainmon run --name demo -- $(BIN)/python demo/rl_code.py

demo-throttle: $(DEMO)  ## Watch a GPU overheat in mid-training (the GPU is simulated)
	$(BIN)/python demo/throttle.py

demo-sft: $(DEMO)  ## Watch a fine-tune with Hugging Face's Trainer that knows nothing of trainmon
	$(BIN)/trainmon run --name demo-sft -- $(BIN)/python demo/sft_trainer.py

demo-sweep: $(DEMO)  ## Run a learning-rate sweep: each rate a run of its own; watch with trainmon attach
	$(BIN)/python demo/lr_sweep.py

demo-ddp: $(DEMO)  ## Watch two ranks under torchrun, of which one has more to do
	$(BIN)/trainmon run --name demo-ddp -- $(BIN)/torchrun --standalone --nproc-per-node 2 demo/ddp.py --uneven

demo-cpp: $(DEMO)  ## Watch a C++ training that tells its exact phases through one header
	$(MAKE) -C demo/cpp BUILD=$(CURDIR)/build/demo-cpp
	$(BIN)/trainmon run --name demo-cpp -- build/demo-cpp/trainer-native $(wildcard monitor/*.py monitor/*/*.py)

demo-replay: $(DEMO)  ## Play the recordings that come with trainmon: q goes on to the next one
	for each in demo/recordings/*.jsonl; do $(BIN)/trainmon replay --speed 4 $$each || exit; done

# Most tests wait for processes of their own, so four at a time share two cores well.
TESTS := -m pytest -n 4 --dist loadfile --no-loadscope-reorder --ignore tests/faults
test: $(READY)  ## Run the tests, in some minutes
	$(BIN)/python $(TESTS) -m "not long"

test-long: $(READY)  ## Run the tests that take longest: frameworks, compilers and demos from end to end
	$(BIN)/python $(TESTS) -m long

lint: $(READY)  ## Lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## Everything that must be green before a commit

# Some twenty minutes. `make zoo ONLY="input gan"` runs the scripts whose names hold one of the words.
zoo: $(READY)  ## Run every sick and healthy training script, and see what the reports say of each
	$(BIN)/python -m tests.zoo $(ONLY)

faults: $(READY)  ## Inject every fault there is, and print what became of the training and its events (SHORT=1: quickly)
	$(BIN)/python -m tests.faults $(if $(SHORT),--short)

MINUTES ?= 10
soak: $(READY)  ## Run for MINUTES=10 under random faults: losses, memory over time, frame times
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

# The environment's own torch may be built without CUDA: PYTHON_GPU is a Python that has both, that and trainmon's needs.
PYTHON_GPU ?= $(BIN)/python
RECORDING ?= build/gpu-sft.jsonl
TABLE ?= build/gpu-check.md
# Some MINUTES=10; fifteen are enough for every script. ONLY=cost,scripts runs these sections, and PROGRAMS="a;b" such
# programs bare and watched: docs/gpu-check.md.
gpu-check: $(READY)  ## Check readings, clocks, costs and findings on a real NVIDIA GPU (PYTHON_GPU=, ONLY=, MINUTES=)
	PROGRAMS='$(PROGRAMS)' $(PYTHON_GPU) -m tests.gpu_check --minutes $(MINUTES) --only '$(ONLY)' --out $(RECORDING) --table $(TABLE)

INPUTS ?= 1000000
fuzz: $(READY)  ## Feed a million foreign inputs to all that reads them (INPUTS=N: more)
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

bench: $(READY)  ## Measure what trainmon costs, as ratios side by side
	$(BIN)/python -m tests.bench

clean:  ## Remove what the targets made
	rm -rf $(VENV) build dist *.egg-info snapshot_report.html .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
