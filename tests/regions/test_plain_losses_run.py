"""Which losses of float16 regions go backward as they are: the fixtures of AMP206, run by torch."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

FIXTURES = Path(__file__).parents[2] / "fixtures" / "AMP206"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"amp206_{name}", FIXTURES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Watch:
    """Notes each backward of what float16 layers computed: whether a scaler has scaled it."""

    def __init__(self) -> None:
        self.scaled: list[bool] = []
        self._halves: set[Any] = set()
        self._results: set[int] = set()
        self._kept: list[torch.Tensor] = []

    def layer(self, inputs: int = 3, outputs: int = 1) -> torch.nn.Linear:
        """A layer whose results are watched."""
        made = torch.nn.Linear(inputs, outputs)
        made.register_forward_hook(self._note)
        return made

    def _note(self, module: object, given: object, result: torch.Tensor) -> None:
        if result.dtype is torch.float16 and result.grad_fn is not None:
            self._halves.add(result.grad_fn)

    @contextmanager
    def running(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Watch all scalers and backwards."""
        scale, backward = torch.amp.GradScaler.scale, torch.Tensor.backward

        def scaling(scaler: Any, loss: Any) -> Any:
            result = scale(scaler, loss)
            self._results.add(id(result))
            self._kept.append(result)
            return result

        def passing(loss: torch.Tensor, *args: Any, **words: Any) -> None:
            if self._is_half(loss):
                self.scaled.append(id(loss) in self._results)
            backward(loss, *args, **words)

        with monkeypatch.context() as patch:
            patch.setattr(torch.amp.GradScaler, "scale", scaling)
            patch.setattr(torch.Tensor, "backward", passing)
            yield

    def _is_half(self, loss: torch.Tensor) -> bool:
        pending, seen = [loss.grad_fn], set()
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            pending += (item[0] for item in node.next_functions)
        return bool(seen & self._halves)


def _loader() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(2)]


def _scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=8.0)


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def _step(trainer: Callable[..., Any]) -> Callable[[_Watch], object]:
    """One step of a trainer that is made of a model."""
    return lambda watch: trainer(watch.layer()).step(*_loader()[0])


def _gan(gan: Callable[..., Any]) -> Callable[[_Watch], object]:
    return lambda watch: gan(watch.layer(3, 3), watch.layer()).optimize(*torch.randn(2, 4, 3))


class _Enlarging:
    def enlarge(self, loss: torch.Tensor, scaler: torch.amp.GradScaler) -> torch.Tensor:
        return scaler.scale(loss)


def _scale_and_step(loss: torch.Tensor, optimizer: Any, parameters: Any) -> None:
    scaler = _scaler()
    scaler.scale(loss).backward()
    scaler.step(optimizer)


OTHER, ELSEWHERE = _load("bad_other_loss"), _load("bad_scaler_elsewhere")
HELPER, DTYPE = _load("bad_helper_for_another"), _load("bad_dtype_option")
CLOSURE = _load("bad_closure")
PATH, HANDED = _load("bad_step_of_the_path"), _load("bad_scaler_by_factory/rounds")
WRONG: dict[str, Callable[[_Watch], object]] = {
    "adversarial": lambda w: OTHER.adversarial(w.layer(3, 3), w.layer(), _loader(), _scaler()),
    "two_phases": lambda w: OTHER.two_phases(w.layer(), _loader(), _scaler()),
    "actor_and_critic": lambda w: OTHER.actor_and_critic(
        w.layer(), w.layer(), _loader(), _scaler()
    ),
    "logged": lambda w: OTHER.logged(w.layer(), _loader(), _scaler(), []),
    "finetuning": _step(ELSEWHERE.Finetuning),
    "saved": _step(ELSEWHERE.Saved),
    "main": lambda w: ELSEWHERE.main(w.layer(), _loader()),
    "finetune": lambda w: HELPER.finetune(w.layer(), _loader(), _scaler()),
    "distill": lambda w: HELPER.distill(w.layer(), w.layer(), _loader()),
    "gan": _gan(HELPER.Gan),
    "by_command_line": lambda w: DTYPE.by_command_line(w.layer(), _loader()),
    "by_config": lambda w: DTYPE.by_config(w.layer(), _loader(), DTYPE.Config()),
    "learner": lambda w: DTYPE.Learner(w.layer(), DTYPE.Config()).step(*_loader()[0]),
    "by_parameter": lambda w: DTYPE.by_parameter(w.layer(), _loader()),
    "closure_of_model": lambda w: CLOSURE.by_model(w.layer(), _loader()),
    "closure": lambda w: CLOSURE.Fitting(w.layer()).step(*_loader()[0]),
    "path_of_windows": lambda w: PATH.windows(w.layer(), _loader(), None, True),
    "path_of_stages": lambda w: PATH.stages(w.layer(), _loader(), True),
    "handed": lambda w: HANDED.adapt(model := w.layer(), _sgd(model), _loader(), _scaler()),
}
GOOD_OTHER, GOOD_ELSEWHERE = _load("good_other_loss"), _load("good_scaler_elsewhere")
GOOD_HELPER, GOOD_DTYPE = _load("good_helper_for_another"), _load("good_dtype_option")
GOOD_BRANCH, GOOD_PATH = _load("good_other_branch"), _load("good_step_of_the_path")
GOOD_CLOSURE = _load("good_closure")
GOOD_HANDED = _load("good_scaler_by_factory/rounds")
RIGHT: dict[str, Callable[[_Watch], object]] = {
    "adversarial": lambda w: GOOD_OTHER.adversarial(w.layer(3, 3), w.layer(), _loader(), _scaler()),
    "two_phases": lambda w: GOOD_OTHER.two_phases(w.layer(), _loader(), _scaler(), True),
    "two_phases_off": lambda w: GOOD_OTHER.two_phases(w.layer(), _loader(), _scaler(), False),
    "renamed": lambda w: GOOD_OTHER.renamed(w.layer(), _loader(), _scaler()),
    "either": lambda w: GOOD_OTHER.either(w.layer(), _loader(), _scaler(), True),
    "either_off": lambda w: GOOD_OTHER.either(w.layer(), _loader(), None, False),
    "chosen": lambda w: GOOD_OTHER.chosen(w.layer(), _loader(), _scaler(), True),
    "chosen_off": lambda w: GOOD_OTHER.chosen(w.layer(), _loader(), _scaler(), False),
    "main": lambda w: GOOD_ELSEWHERE.main(w.layer(), _loader()),
    "out_of_sight": lambda w: GOOD_ELSEWHERE.out_of_sight(
        model := w.layer(), _sgd(model), _loader(), _Enlarging(), _scaler()
    ),
    "called_by_library": lambda w: GOOD_ELSEWHERE.called_by_library(
        model := w.layer(), _sgd(model), _loader(), _scale_and_step
    ),
    "distill": lambda w: GOOD_HELPER.distill(w.layer(), w.layer(), _loader()),
    "returned": lambda w: GOOD_HELPER.returned(w.layer(), _loader()),
    "gan": _gan(GOOD_HELPER.Gan),
    "with_scaler": lambda w: GOOD_DTYPE.with_scaler(w.layer(), _loader()),
    "other_branch": lambda w: GOOD_BRANCH.Trainer(w.layer(), torch.nn.MSELoss(), True, True).train(
        _loader()
    ),
    "other_branch_off": lambda w: GOOD_BRANCH.Trainer(
        w.layer(), torch.nn.MSELoss(), False, False
    ).train(_loader()),
    "two_tests": lambda w: GOOD_BRANCH.two_tests(w.layer(), _loader(), True),
    "two_tests_off": lambda w: GOOD_BRANCH.two_tests(w.layer(), _loader(), False),
    "warmed_up": lambda w: GOOD_BRANCH.warmed_up(w.layer(), _loader(), True),
    "tested": lambda w: GOOD_DTYPE.tested(w.layer(), _loader(), GOOD_DTYPE.Config()),
    "closure_outside": lambda w: GOOD_CLOSURE.outside(w.layer(), _loader()),
    "closure_scaled": lambda w: GOOD_CLOSURE.scaled(w.layer(), _loader()),
    "closure_wide": lambda w: GOOD_CLOSURE.wide(w.layer(), _loader()),
    "path_of_windows": lambda w: GOOD_PATH.windows(w.layer(), _loader(), _scaler(), True),
    "path_of_windows_off": lambda w: GOOD_PATH.windows(w.layer(), _loader(), None, True),
    "path_of_stages": lambda w: GOOD_PATH.stages(w.layer(), _loader(), False),
    "path_of_warm_stages": lambda w: GOOD_PATH.stages(w.layer(), _loader(), True),
    "handed": lambda w: GOOD_HANDED.adapt(model := w.layer(), _sgd(model), _loader(), _scaler()),
    "handed_none": lambda w: GOOD_HANDED.adapt(model := w.layer(), _sgd(model), _loader(), None),
}


@pytest.fixture(autouse=True)
def _no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda parser: parse(parser, []))


@pytest.mark.parametrize("name", WRONG)
def test_a_loss_of_float16_layers_goes_backward_as_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = _Watch()
    with watch.running(monkeypatch):
        WRONG[name](watch)
    assert False in watch.scaled


@pytest.mark.parametrize("name", RIGHT)
def test_each_loss_of_float16_layers_is_scaled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = _Watch()
    with watch.running(monkeypatch):
        RIGHT[name](watch)
    assert False not in watch.scaled
