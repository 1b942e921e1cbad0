"""Runs programs under torch and says what they did: what they raise, and what they train.

A run is the `main()` of a program, the model that it leaves at its top, or one of its functions
whose parameters are the usual ones. What is compared: the calls of the scaler and of the optimizers
in their order, what is returned or raised, and the final parameters, bit by bit.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from restyling.judging import Fixture, fixtures, write
from restyling.program import Program, arguments_of
from tests.incidents.projects import open_project

#: What a function of the fixtures may ask for, and what it gets.
_GIVEN = ("model", "loader", "optimizer", "scaler", "optimiser", "opt", "batches", "data", "net")
#: Scaler and optimizer methods whose calls are recorded.
_RECORDED = ("scale", "unscale_", "step", "update")


@dataclass(frozen=True)
class Outcome:
    """What a run did; equal for two that did the same."""

    calls: tuple[str, ...]
    result: str
    parameters: tuple[bytes, ...]

    def __str__(self) -> str:
        return f"{len(self.calls)} calls, {self.result}"


def differences(fixture: Fixture, program: Program) -> tuple[int, list[str]]:
    """How many runs were compared, and what differs in each that does."""
    notes = []
    entries = list(runs(fixture))
    for entry in entries:
        before, after = _before(fixture.name, entry), outcome(program, entry)
        if before != after:
            notes.append(f"{entry.module}.{entry.name}: {before} became {after}")
    return len(entries), notes


@dataclass(frozen=True)
class Entry:
    """A function to run, `parameters` as the original calls them; no name: the module's model."""

    module: str
    name: str
    parameters: tuple[str, ...] = ()


def runs(fixture: Fixture) -> Iterator[Entry]:
    """What of a fixture can be run on its own."""
    names = [name for name in fixture.program.texts if name.endswith(".py")]
    for file in ["main.py"] if "main.py" in names else sorted(names):
        if "/" in file:
            continue
        tree = ast.parse(fixture.program.texts[file])
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            required = _required(function)
            if function.name == "main" and not required:
                yield Entry(file.removesuffix(".py"), "main")
            elif required and set(required) <= set(_GIVEN) and not _generates(function):
                yield Entry(file.removesuffix(".py"), function.name, required)
        if fixture.name.startswith("silent/") and not any(f.name == "main" for f in functions):
            yield Entry(file.removesuffix(".py"), "")


def _required(function: ast.FunctionDef) -> tuple[str, ...]:
    """Parameters without a default; a name that nobody can fill where they are not plain."""
    given = function.args
    if given.kwonlyargs or given.vararg or given.kwarg or given.posonlyargs:
        return ("?",)
    names = [one.arg for one in arguments_of(function)]
    return tuple(names[: len(names) - len(given.defaults)])


def _generates(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function))


@cache
def _before(name: str, entry: Entry) -> Outcome:
    (fixture,) = (one for one in fixtures(name) if one.name == name)
    return outcome(fixture.program, entry)


def outcome(program: Program, entry: Entry) -> Outcome:
    """What a run of a program does."""
    import torch

    with tempfile.TemporaryDirectory(prefix="restyled") as folder:
        root = Path(folder).resolve()
        write(program, root)
        calls: list[str] = []
        with _quiet(root), _recorded(calls), open_project(root) as project:
            _reset()
            given = _arguments(entry.parameters)
            try:
                module = project.module(entry.module)
                result = getattr(module, entry.name)(*given) if entry.name else module.model
                said = _said(result)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- what a program raises is compared
                result, said = None, f"{type(error).__name__}: {error}"
        found = [one for one in [*given, result] if isinstance(one, torch.nn.Module)]
        parameters = [p.detach() for one in found for p in one.parameters()]
        return Outcome(
            tuple(calls),
            said.replace(str(root), ""),
            tuple(p.cpu().contiguous().view(torch.uint8).numpy().tobytes() for p in parameters),
        )


def _reset() -> None:
    """What another run may have left switched in this process."""
    import torch

    torch.manual_seed(0)
    random.seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    torch.clear_autocast_cache()


def _said(result: object) -> str:
    import torch

    if isinstance(result, torch.Tensor):
        return repr(result.tolist())
    if isinstance(result, (int, float, str, bool, type(None))):
        return repr(result)
    return type(result).__name__


def _arguments(names: tuple[str, ...]) -> list[Any]:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    generator = torch.Generator().manual_seed(0)
    batches = [
        (torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator))
        for _ in range(4)
    ]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=1)
    values = {"model": model, "net": model, "scaler": scaler}
    values |= dict.fromkeys(("loader", "batches", "data"), batches)
    values |= dict.fromkeys(("optimizer", "optimiser", "opt"), optimizer)
    return [values[name] for name in names]


@contextlib.contextmanager
def _recorded(calls: list[str]) -> Iterator[None]:
    """Write every call of a scaler and every step of an SGD or Adam into a list."""
    import torch

    patched = [(torch.amp.GradScaler, name) for name in _RECORDED]
    patched += [(torch.optim.Optimizer, "zero_grad"), (torch.Tensor, "backward")]
    originals = [(owner, name, getattr(owner, name)) for owner, name in patched]

    def recording(name: str, original):
        def record(*args, **keywords):
            calls.append(name)
            return original(*args, **keywords)

        return record

    for owner, name, original in originals:
        setattr(owner, name, recording(name, original))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """Nothing printed, no warnings, no command line, and files are written below `folder`."""
    arguments, sys.argv = sys.argv, ["train.py"]
    before = Path.cwd()
    os.chdir(folder)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(before)
        sys.argv = arguments
