"""Nothing is confirmed about correct code, whatever rule is asked about at whatever call.

A part of what `scripts/probe_corpus.py` does with all correct fixtures: those that have
fooled the probe before, and the recorded repairs.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from amplint.probe.process import Worker
from tests.budget import THOROUGH, budget

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"
FOOLED = (
    "AMP102/good_other_optimizer.py",  # optimizers that share invented parameters
    "AMP105/good_single_step.py",  # a scaler for each call, and the probe calls three times
    "AMP110/good_loss_scaler.py",  # a helper, called twice
    "AMP112/good_sparse.py",  # sparse gradients, unscaled and stepped by hand
    "AMP114/good_uses.py",  # gradients that are handed to backward
    "AMP115/good_helper.py",  # an unknown object that owns the scaler
    "AMP123/good_branches.py",  # a scaler that is None for no reason
    "AMP123/good_curiosity/train.py",  # a loss that is passed in, and hangs on nothing
    "AMP123/good_one_of_each.py",  # optimizers that no backward feeds
    "AMP123/good_two_outputs.py",  # graphs that only the stand-in shares
    "silent/13_extended_scaler/own_amp_support.py",  # an optimizer that unscales by itself
    "AMP302/good_copies.py",  # a parameter that belongs to an unknown object
    "AMP401/good_adapters.py",  # a filter of parameters that keeps all of a stand-in's
    "AMP501/good_outside.py",  # gradients that nobody clears
)
#: As long as all others together: every call of it is asked about every rule.
LONG = ("AMP401/good_casts.py",)  # half weights that are meant


@pytest.fixture(scope="module")
def corpus() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "probe_corpus", ROOT / "scripts" / "probe_corpus.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["probe_corpus"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", (*FOOLED, *(LONG if THOROUGH else ())))
def test_nothing_is_confirmed(corpus: ModuleType, worker: Worker, name: str) -> None:
    path = FIXTURES / name
    asked = corpus.ask(corpus.Job(path, str(path.parent)), worker, 4, 30.0, insist=budget(16, 150))
    assert asked is not None
    assert asked.runs > 0
    assert asked.confirmed == ()
