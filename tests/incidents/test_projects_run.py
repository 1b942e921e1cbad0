"""The two-file fixtures under real torch: what the marked functions do, and that the others train.

Every `train_...` function of the listed projects is run with a scaler that is on and with one that
is off. A function whose name ends in `right` gives the same parameters and the same value both
times; all others raise, or give something else.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.incidents.projects import FIXTURES, open_project

NO_INF_CHECKS = "No inf checks were recorded for this optimizer."
#: Functions that raise: (project, function) -> the exception and how its text begins.
RAISES = {
    ("scaled_loss_returned", "train_not_called"): (AssertionError, NO_INF_CHECKS),
    ("order_split_over_files", "train_backward_last"): (AssertionError, NO_INF_CHECKS),
    ("closure_elsewhere", "train_second_order"): (TypeError, "LBFGS.step() missing 1 required"),
}
#: Functions whose value or parameters differ with the scaler.
DIFFERS = (
    ("scaled_loss_returned", "train_dropped"),
    ("scaled_loss_returned", "train_method_dropped"),
    ("scaled_loss_returned", "train_logged"),
    ("scaled_loss_returned", "train_scaled_again"),
    ("scaled_loss_handed_on", "train_scaled_twice"),
    ("scaled_loss_handed_on", "train_recorded"),
    ("gradient_norm_in_utils", "train"),
    ("gradient_norm_in_utils", "train_split"),
    ("step_in_helper", "train"),
    ("step_in_helper", "train_flag"),
    ("closure_elsewhere", "train_closure"),
    ("order_split_over_files", "train_rotated"),
    ("order_split_over_files", "train_window"),
    ("other_optimizer_clipped", "train_crossed"),
    ("plain_backward_of_object", "train_function"),
    ("plain_backward_of_object", "train_method"),
    ("scaled_loss_passed", "train_plain"),
)
RIGHT = (
    ("scaled_loss_returned", "train_right"),
    ("scaled_loss_returned", "train_method_right"),
    ("scaled_loss_handed_on", "train_right"),
    ("scaled_loss_handed_on", "train_counted_right"),
    ("gradient_norm_in_utils", "train_right"),
    ("gradient_norm_in_utils", "train_unscaled_first_right"),
    ("gradient_norm_in_utils", "train_finite"),
    ("step_in_helper", "train_right"),
    ("step_in_helper", "train_every_batch_right"),
    ("closure_elsewhere", "train_right"),
    ("order_split_over_files", "train_right"),
    ("order_split_over_files", "train_update_first_right"),
    ("order_split_over_files", "train_window_right"),
    ("other_optimizer_clipped", "train_right"),
    ("plain_backward_of_object", "train_right"),
    ("plain_backward_of_object", "train_plain_right"),
    ("scaled_loss_passed", "train_right"),
    ("errors_around_helper", "train_right"),
    ("errors_around_helper", "train_broken_batch_right"),
)
Data = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def data() -> Data:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator))
        for _ in range(4)
    ]


def run(
    project: str,
    name: str,
    scaler: torch.amp.GradScaler,
    model: torch.nn.Module | None = None,
    loader: Data | None = None,
) -> tuple[object, list[torch.Tensor]]:
    """What a function of a project's `train.py` returns, and the parameters it leaves."""
    torch.manual_seed(0)
    model = model or torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    with open_project(FIXTURES / "projects" / project) as opened:
        train: Callable[..., object] = getattr(opened.module("train"), name)
        given: dict[str, Any] = {"model": model, "loader": loader or data(), "scaler": scaler}
        if "optimizer" in inspect.signature(train).parameters:
            given["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
        value = train(**given)
    return value, [parameter.detach().clone() for parameter in model.parameters()]


def same(project: str, name: str) -> bool:
    """Whether a function does the same with a scaler that is on and one that is off."""
    on, off = (
        run(project, name, torch.amp.GradScaler("cpu", growth_interval=1, enabled=enabled))
        for enabled in (True, False)
    )
    return on[0] == off[0] and all(
        torch.allclose(first, second, rtol=1e-4, atol=1e-6)
        for first, second in zip(on[1], off[1], strict=True)
    )


@pytest.mark.parametrize(("project", "name"), RAISES)
def test_raises(project: str, name: str) -> None:
    error, text = RAISES[project, name]
    with pytest.raises(error) as caught:
        run(project, name, torch.amp.GradScaler("cpu"))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(("project", "name"), DIFFERS)
def test_scaling_changes_the_training(project: str, name: str) -> None:
    assert not same(project, name)


@pytest.mark.parametrize(("project", "name"), RIGHT)
def test_scaling_changes_nothing(project: str, name: str) -> None:
    assert same(project, name)


class FirstWithoutGradient(torch.nn.Module):
    """The first batch's loss does not depend on the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 1:
            return torch.zeros(len(inputs), 1, requires_grad=True)
        return self.inner(inputs)


def test_the_handler_misses_the_error() -> None:
    with pytest.raises(AssertionError, match="No inf checks"):
        run(
            "errors_around_helper",
            "train_missed",
            torch.amp.GradScaler("cpu"),
            FirstWithoutGradient(),
        )


def test_swallowing_the_error_stops_the_training() -> None:
    model = FirstWithoutGradient()
    before = copy.deepcopy(list(model.parameters()))
    _, after = run("errors_around_helper", "train_swallowed", torch.amp.GradScaler("cpu"), model)
    assert all(torch.equal(first, second) for first, second in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("name", "sees_the_skip"),
    [
        ("train_update_elsewhere", False),
        ("train_test_elsewhere", False),
        ("train_right", True),
        ("train_told_right", True),
    ],
)
def test_an_overflow_is_seen(name: str, sees_the_skip: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    skipped, _ = run("skip_test_in_helper", name, scaler, torch.nn.Linear(4, 1))
    assert isinstance(skipped, int)
    assert (skipped > 0) is sees_the_skip
    assert scaler.get_scale() < 2.0**127
