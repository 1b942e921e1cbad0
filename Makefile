PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INCIDENTS := fixtures/incidents/*/before

.PHONY: demo test clean

## demo: install amplint and torch, show what is found in the recorded incidents, and run them.
# Exit status 1 means findings, which is what the demo is about; anything else is a failure.
demo: $(VENV)/.installed $(VENV)/.torch
	@$(call expect_findings,--output-format full)
	@$(call expect_findings,--output-format concise --probe --probe-timeout 60)

define expect_findings
echo '$$ amplint check $(1) $(INCIDENTS)'; \
$(BIN)/amplint check --isolated $(1) $(INCIDENTS); status=$$?; \
if [ $$status -ne 1 ]; then \
	echo "demo: amplint exited with status $$status, expected 1 (findings)" >&2; exit 1; \
fi
endef

## test: run the whole suite, a process for each processor, and say why anything is skipped.
test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -q -rs --numprocesses auto --dist worksteal

## clean: remove the environment and everything built.
clean:
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# torch goes first and alone: its build (CPU or CUDA) is then settled before anything else.
$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -m pip install --quiet torch==2.13.0
	touch $@

$(VENV)/.dev-installed: requirements-dev.txt pyproject.toml $(VENV)/.torch
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt --editable .
	touch $(VENV)/.installed $@
