"""The correct shapes under real torch: they run, they scale, and scaling changes nothing.

Each fixture is run twice, once as it stands and once with every GradScaler disabled. A
correct protocol gives the same parameters both times, because the scales are powers of two;
a broken one raises, or ends elsewhere.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.incidents.projects import SILENT, open_project

#: Fixtures that cannot run here, and why.
NOT_RUN = {
    "21_accelerate_prepared/training_loop.py": "needs the third-party package accelerate",
}

#: Fixtures without a torch GradScaler: they run, but nothing is scaled by torch.
NO_TORCH_SCALER = {
    "12_not_torch_scaler/local_class.py": "its GradScaler is a class of the file",
}

Scaler = torch.amp.GradScaler


def entries() -> list[Path]:
    """One entry per fixture: a file of a shape's folder, or the `main.py` of a package."""
    files = [path for shape in sorted(SILENT.iterdir()) for path in sorted(shape.glob("*.py"))]
    packages = sorted(SILENT.glob("*/*/main.py"))
    return sorted(files + packages)


def name_of(entry: Path) -> str:
    return entry.relative_to(SILENT).as_posix()


RUNNABLE = [entry for entry in entries() if name_of(entry) not in NOT_RUN]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(entry: Path) -> list[torch.Tensor]:
    """Run a fixture and return the parameters of the model that it trained."""
    if entry.name == "main.py":
        with open_project(entry.parent) as project:
            model = project.run()
    else:
        model = _train_file(entry)
    parameters = [p.detach().float().clone() for p in model.parameters()]
    assert parameters
    return parameters


def _train_file(entry: Path) -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("silent_fixture", entry)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
        return module.main() if hasattr(module, "main") else module.model
    finally:
        sys.dont_write_bytecode = bytecode
        del sys.modules[spec.name]


@pytest.fixture
def scaled_steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The scale at every step that an enabled torch scaler takes."""
    steps: list[float] = []
    original = Scaler.step

    def step(self, optimizer, *args, **keywords):
        if self.is_enabled():
            steps.append(self.get_scale())
        return original(self, optimizer, *args, **keywords)

    monkeypatch.setattr(Scaler, "step", step)
    return steps


def disable_scalers(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Scaler.__init__

    def disabled(self, *args, **keywords):
        original(self, *args, **{**keywords, "enabled": False})

    monkeypatch.setattr(Scaler, "__init__", disabled)


@pytest.mark.parametrize("entry", RUNNABLE, ids=name_of)
def test_scaling_changes_nothing(
    entry: Path, scaled_steps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled = train(entry)
    assert all(torch.isfinite(parameter).all() for parameter in scaled)
    if name_of(entry) in NO_TORCH_SCALER:
        assert not scaled_steps
        return
    assert any(scale != 1.0 for scale in scaled_steps)

    disable_scalers(monkeypatch)
    plain = train(entry)
    for with_scaler, without in zip(scaled, plain, strict=True):
        torch.testing.assert_close(with_scaler, without, rtol=2e-2, atol=2e-4)


def test_exemptions_exist() -> None:
    names = {name_of(entry) for entry in entries()}
    assert set(NOT_RUN) | set(NO_TORCH_SCALER) <= names


def test_every_fixture_says_why_it_is_right() -> None:
    for file in SILENT.rglob("*.py"):
        docstring = ast.get_docstring(ast.parse(file.read_bytes())) or ""
        assert docstring.startswith("Right because "), file


def test_every_shape_has_a_fixture() -> None:
    shapes = sorted(int(path.name.split("_")[0]) for path in SILENT.iterdir())
    assert shapes == list(range(1, 27))
