# Every target sets itself up. It needs Python 3.10 or later, gcc and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/demo
READY := $(VENV)/ready

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-throttle demo-sft demo-grpo demo-ppo demo-sweep demo-ddp demo-cpp demo-replay test test-long lint check snapshots zoo hangs faults harmless probes programs soak gpu-check fuzz bench versions manual clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(READY)  ## Make the virtual environment with everything in it

# The demos install only what they need, so that a first look does not wait for the test dependencies.
# torch comes first and pinned: as another package's dependency, pip would take the newest build with CUDA.
# An editable install has no bytecode yet: compiled here, the first start is as quick as the next.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	$(BIN)/python -m compileall -q monitor trainhooks
	@touch $(DEMO)

$(READY): $(DEMO)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,dev,integrations]'
	@touch $(READY)

demo: $(DEMO)  ## Watch a real reinforcement-learning run on code
	$(BIN)/trainmon run --name demo -- $(BIN)/python demo/rl_code.py

demo-throttle: $(DEMO)  ## Watch a GPU overheat during training (the GPU is simulated)
	$(BIN)/python demo/throttle.py

demo-sft: $(DEMO)  ## Watch an unmodified fine-tune with Hugging Face's Trainer
	$(BIN)/trainmon run --name demo-sft -- $(BIN)/python demo/sft_trainer.py

demo-grpo: $(DEMO)  ## Watch TRL's GRPO teach a small model to add, from rewards alone
	$(BIN)/trainmon run --name demo-grpo -- $(BIN)/python demo/grpo_arithmetic.py

demo-ppo: $(DEMO)  ## Watch PPO learn CartPole: rollouts in environments, then epochs of minibatches
	$(BIN)/trainmon run --name demo-ppo -- $(BIN)/python demo/ppo_cartpole.py

demo-sweep: $(DEMO)  ## Run a learning-rate sweep, a run for each rate; watch with trainmon attach
	$(BIN)/python demo/lr_sweep.py

demo-ddp: $(DEMO)  ## Watch two ranks under torchrun, one with more work
	$(BIN)/trainmon run --name demo-ddp -- $(BIN)/torchrun --standalone --nproc-per-node 2 demo/ddp.py --uneven

demo-cpp: $(DEMO)  ## Watch a C++ training with exact phases through one header
	$(MAKE) -C demo/cpp BUILD=$(CURDIR)/build/demo-cpp
	$(BIN)/trainmon run --name demo-cpp -- build/demo-cpp/trainer-native $(wildcard monitor/*.py monitor/*/*.py)

demo-replay: $(DEMO)  ## Play the recordings that come with trainmon; q goes to the next
	for recording in demo/recordings/*.jsonl; do $(BIN)/trainmon replay --speed 4 $$recording || exit; done

# Most tests wait for child processes, so four at a time share two cores well.
TESTS := -m pytest -n 4 --dist loadfile --no-loadscope-reorder --ignore tests/faults
# They can lose a race with a busy machine: what failed is run once more, one by one, and fails if it fails again.
AGAIN := -m pytest --last-failed --last-failed-no-failures none --ignore tests/faults
test: $(READY)  ## Run the tests (some ten minutes on two cores)
	$(BIN)/python $(TESTS) -m "not long" || $(BIN)/python $(AGAIN) -m "not long"

test-long: $(READY)  ## Run the slow tests: frameworks, compilers and demos from end to end
	$(BIN)/python $(TESTS) -m long || $(BIN)/python $(AGAIN) -m long

lint: $(READY)  ## Check style, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## Run all that must be green before a commit

snapshots: $(READY)  ## Renew the snapshots of the screens; look at the differences before you commit
	$(BIN)/python -m pytest tests/tui/test_tui_snapshots.py tests/tui/test_tui_walks.py -n 2 --snapshot-update

# Some twenty-five minutes. `make zoo ONLY="input gan"` runs the scripts whose names hold one of the words.
zoo: $(READY)  ## Run every sick and healthy training script and compare the findings
	$(BIN)/python -m tests.zoo $(ONLY)

# Some ten minutes; SHORT=1 some three. `make hangs ONLY="fifo ranks"` runs those whose names hold one of the words.
hangs: $(READY)  ## Run programs that stand still, and slow healthy ones; compare what is said of them (SHORT=1: a few)
	$(BIN)/python -m tests.hangs $(if $(SHORT),--short) $(ONLY)

faults: $(READY)  ## Inject every known fault and print its effect on training and events (SHORT=1: quickly)
	$(BIN)/python -m tests.faults $(if $(SHORT),--short)

# Some eight minutes. `make harmless WORDS="exit output"` takes families or parts of names.
harmless: $(READY)  ## Run over a hundred programs bare and under trainmon; list differences (SHORT=1: quickly)
	$(BIN)/python -m tests.harmless $(if $(SHORT),--short) $(if $(LIST),--table $(LIST)) $(WORDS)

# Some ten minutes; writes the tables of docs/probes-system.md and docs/probes-torch.md.
probes: $(READY)  ## Ask hundreds of small questions of a program, bare and under trainmon; write the tables
	$(BIN)/python -m tests.harmless --probes system --table docs/probes-system.md
	$(BIN)/python -m tests.harmless --probes torch --table docs/probes-torch.md

# Packages are installed beside those of the environment; what cannot be is left out, and its programs are not run.
PROGRAMS_VENV := build/programs/venv
build/programs/ready: $(READY) tests/programs/requirements.txt
	$(PYTHON) -m venv $(PROGRAMS_VENV)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(PROGRAMS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
	-$(PROGRAMS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt -r tests/programs/requirements.txt
	$(PROGRAMS_VENV)/bin/python tests/programs/cpu_torchvision.py
	@touch build/programs/ready

# Some fifteen minutes. SOURCES=DIR: git copies of the repositories; ONLY="word word": programs whose names hold a word.
programs: build/programs/ready  ## Run public programs unmodified, bare and under trainmon; judge the reports
	$(BIN)/python -m tests.programs --python $(PROGRAMS_VENV)/bin/python $(if $(SOURCES),--sources $(SOURCES)) \
		--table docs/programs.md $(ONLY)

MINUTES ?= 10
soak: $(READY)  ## Run MINUTES=10 under random faults: losses, memory over time, frame times
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

# The environment's torch may be built without CUDA: PYTHON_GPU is a Python with CUDA and trainmon's dependencies.
PYTHON_GPU ?= $(BIN)/python
RECORDING ?= build/gpu-sft.jsonl
TABLE ?= build/gpu-check.md
# Fifteen minutes are enough for every script. ONLY=cost,scripts runs these sections, PROGRAMS="a;b" your own programs:
# docs/gpu-check.md.
gpu-check: $(READY)  ## Check readings, clocks, costs and findings on a real NVIDIA GPU (PYTHON_GPU=, ONLY=, MINUTES=)
	PROGRAMS='$(PROGRAMS)' $(PYTHON_GPU) -m tests.gpu_check --minutes $(MINUTES) --only '$(ONLY)' --out $(RECORDING) --table $(TABLE)

INPUTS ?= 1000000
fuzz: $(READY)  ## Feed a million malformed inputs to every reader (INPUTS=N: more)
	$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

bench: $(READY)  ## Measure what trainmon costs, side by side
	$(BIN)/python -m tests.bench

# A few minutes an interpreter, some fifteen for Python 3.13, which also runs the short form of `make harmless`.
# python3.9 to python3.14 on PATH and those of pyenv; ONLY=3.10,3.13 tries these.
versions: $(READY)  ## Try the oldest and the newest dependencies on every Python of this machine
	$(BIN)/python -m tests.versions $(if $(ONLY),--only $(ONLY))

manual: $(READY)  ## Renew the manual page, docs/trainmon.1, from the options of the commands
	$(BIN)/python -c 'from monitor.cli import cli; from monitor.commands.manual import page; print(page(cli), end="")' \
		> docs/trainmon.1

clean:  ## Remove what the targets made
	rm -rf $(VENV) build dist *.egg-info snapshot_report.html .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
