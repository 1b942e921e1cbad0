PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INCIDENTS := fixtures/incidents/*/before

.PHONY: demo test clean

## demo: install amplint, show what it finds in the recorded incidents, and let the probe run them.
# Exit status 1 means findings, which is what the demo is about; anything else is a failure.
demo: $(VENV)/.installed
	@echo '$$ amplint check $(INCIDENTS)'
	@$(BIN)/amplint check --isolated --output-format full $(INCIDENTS); status=$$?; \
	if [ $$status -ne 1 ]; then \
		echo "demo: amplint exited with status $$status, expected 1 (findings)" >&2; exit 1; \
	fi
	@if $(BIN)/python -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))'; then \
		echo '$$ amplint check --probe $(INCIDENTS)'; \
		$(BIN)/amplint check --isolated --probe --probe-timeout 60 --output-format concise \
			$(INCIDENTS); status=$$?; \
		if [ $$status -ne 1 ]; then \
			echo "demo: the probe exited with status $$status, expected 1 (findings)" >&2; exit 1; \
		fi; \
	else \
		echo 'To execute these functions and confirm the findings, the probe needs torch:'; \
		echo "  $(BIN)/python -m pip install 'amplint[probe]'   (or: make test, which installs it)"; \
	fi

## test: run the whole suite.
test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -q

## clean: remove the environment and everything built.
clean:
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# torch goes first and alone: its build (CPU or CUDA) is then settled before anything else.
$(VENV)/.dev-installed: requirements-dev.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt --editable .
	touch $(VENV)/.installed $@
