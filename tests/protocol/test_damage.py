"""The damage of each silent violation, measured again with torch.

Every number in a `Violation.damage` text has a small program here. Reference: a two-layer
network, mean squared error, SGD with lr 0.1 and an initial scale of 65536. The update
ratio is the size of the parameter change divided by that of the correct step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from amplint.protocol import VIOLATIONS

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\w)")
clip_grad_norm_ = torch.nn.utils.clip_grad_norm_
mse = torch.nn.functional.mse_loss


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def sgd_with_decay(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


class Training:
    """A network, its data, an optimizer and a CPU scaler; the same weights every time."""

    def __init__(self, make_optimizer=sgd, **scaler_options) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        )
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(16, 4, generator=generator)
        self.targets = torch.randn(16, 2, generator=generator)
        self.optimizer = make_optimizer(self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, **scaler_options)
        self.remember()

    def remember(self) -> None:
        """Measure changes from here on."""
        self.start = [p.detach().clone() for p in self.model.parameters()]

    def rewind(self) -> None:
        """Put the remembered weights back, so that the next step starts from them."""
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), self.start):
                parameter.copy_(value)

    def loss(self):
        return mse(self.model(self.inputs), self.targets)

    def backward(self, weight: float = 1.0) -> None:
        self.scaler.scale(self.loss() * weight).backward()

    def unscale(self) -> None:
        self.scaler.unscale_(self.optimizer)

    def clip(self, max_norm: float):
        return clip_grad_norm_(self.model.parameters(), max_norm)

    def step(self) -> None:
        self.scaler.step(self.optimizer)

    def update(self) -> None:
        self.scaler.update()

    def overflow(self) -> None:
        """Put an inf where an overflow of the scaled gradients would."""
        self.model[0].weight.grad[0, 0] = float("inf")

    @property
    def is_finite(self) -> bool:
        return all(bool(p.isfinite().all()) for p in self.model.parameters())

    @property
    def change(self) -> float:
        """Size of the parameter change since `remember`."""
        pairs = zip(self.start, self.model.parameters())
        return sum(((a - b.detach()).double() ** 2).sum().item() for a, b in pairs) ** 0.5


def correct_change(make_optimizer=sgd, max_norm: float | None = None) -> float:
    """Size of the correct step, computed without AMP."""
    training = Training(make_optimizer)
    training.loss().backward()
    if max_norm is not None:
        training.clip(max_norm)
    training.optimizer.step()
    return training.change


def step_on_zeros() -> float:
    t = Training(sgd_with_decay)
    t.backward()
    t.optimizer.zero_grad(set_to_none=False)
    t.step()
    return t.change / correct_change(sgd_with_decay)


def unscale_of_zeros() -> float:
    t = Training()
    t.backward()
    t.optimizer.zero_grad(set_to_none=False)
    t.unscale()
    t.backward()
    t.step()
    return t.change / correct_change()


def unscale_of_plain(make_optimizer=sgd) -> float:
    t = Training(make_optimizer)
    t.scaler.scale(t.loss())
    t.loss().backward()
    t.step()
    return t.change / correct_change(make_optimizer)


def unscale_again() -> float:
    t = Training()
    t.backward()
    t.unscale()
    t.update()
    t.step()
    return t.change / correct_change()


def stale_scale_grown() -> float:
    """update() before step, with the scale growing at that update()."""
    t = Training(growth_interval=1)
    t.backward()
    t.step()
    t.optimizer.zero_grad()
    t.rewind()
    t.backward()
    t.update()
    t.step()
    return correct_change() / t.change


def stale_scale_backed_off() -> float:
    t = Training()
    t.backward()
    t.overflow()
    t.step()
    t.optimizer.zero_grad()
    t.backward()
    t.update()
    t.step()
    return t.change / correct_change()


def step_on_spent() -> float:
    t = Training()
    t.backward()
    t.step()
    t.update()
    t.rewind()
    t.step()
    return t.change / correct_change()


def step_on_piled() -> float:
    def run(window_step: Callable[[Training], None]) -> float:
        training = Training()
        for _ in range(4):
            window_step(training)
        return training.change

    def with_scaler(training: Training) -> None:
        training.backward(1 / 4)
        training.step()
        training.update()

    def without_scaler(training: Training) -> None:
        (training.loss() / 4).backward()
        training.optimizer.step()

    return run(with_scaler) / run(without_scaler)


def step_on_mixed() -> float:
    t = Training()
    t.backward(1 / 2)
    (t.loss() / 2).backward()
    t.step()
    return t.change / correct_change()


def backward_after_unscale() -> float:
    t = Training()
    t.backward(1 / 2)
    t.unscale()
    t.backward(1 / 2)
    t.step()
    return t.change / correct_change()


def step_on_rescaled() -> float:
    t = Training()
    t.backward()
    t.unscale()
    t.optimizer.zero_grad()
    t.backward()
    t.step()
    return t.change / correct_change()


def clip_of_scaled(make_optimizer=sgd) -> float:
    t = Training(make_optimizer)
    t.backward()
    t.clip(1.0)
    t.step()
    return t.change / correct_change(make_optimizer, max_norm=1.0)


def clip_before_unscale_norm() -> float:
    """How many times smaller than max_norm the applied gradient is."""
    t = Training()
    t.backward()
    t.clip(1.0)
    t.unscale()
    return 1.0 / t.clip(float("inf")).item()


def clip_of_spent() -> float:
    t = Training()
    t.backward()
    t.step()
    t.clip(1e-4)
    return t.change / correct_change(max_norm=1e-4)


def optimizer_step_on_scaled(make_optimizer=sgd) -> float:
    t = Training(make_optimizer)
    t.backward()
    t.optimizer.step()
    return t.change / correct_change(make_optimizer)


def adam_moment_ratio() -> float:
    def first_moment(training: Training) -> float:
        training.optimizer.step()
        return training.optimizer.state[training.model[0].weight]["exp_avg"].norm().item()

    scaled, plain = Training(adam), Training(adam)
    scaled.backward()
    plain.loss().backward()
    return first_moment(scaled) / first_moment(plain)


def optimizer_step_twice() -> float:
    t = Training()
    t.backward()
    t.step()
    t.optimizer.step()
    return t.change / correct_change()


def optimizer_step_on_mixed() -> float:
    t = Training()
    t.backward(1 / 2)
    (t.loss() / 2).backward()
    t.optimizer.step()
    return t.change / correct_change()


@dataclass(frozen=True)
class Measurement:
    """A number of a damage text and the program that measures it."""

    slug: str
    number: str
    measure: Callable[[], float]


MEASUREMENTS = (
    Measurement("step-on-zeros", "0.34", step_on_zeros),
    Measurement("unscale-of-zeros", "65536", unscale_of_zeros),
    Measurement("unscale-of-plain", "1.5e-5", unscale_of_plain),
    Measurement("unscale-of-plain", "0.944", lambda: unscale_of_plain(adam)),
    Measurement("unscale-again", "1.5e-5", unscale_again),
    Measurement("stale-scale", "2", stale_scale_grown),
    Measurement("stale-scale", "2", stale_scale_backed_off),
    Measurement("step-on-spent", "1.5e-5", step_on_spent),
    Measurement("step-on-piled", "0.4", step_on_piled),
    Measurement("step-on-mixed", "0.5", step_on_mixed),
    Measurement("backward-after-unscale", "32768", backward_after_unscale),
    Measurement("step-on-rescaled", "65536", step_on_rescaled),
    Measurement("clip-of-scaled", "65536", clip_before_unscale_norm),
    Measurement("clip-of-scaled", "2.9e-5", clip_of_scaled),
    Measurement("clip-of-scaled", "0.96", lambda: clip_of_scaled(adam)),
    Measurement("clip-of-spent", "5294", clip_of_spent),
    Measurement("optimizer-step-on-scaled", "65536", optimizer_step_on_scaled),
    Measurement("optimizer-step-on-scaled", "65536", adam_moment_ratio),
    Measurement("optimizer-step-twice", "2", optimizer_step_twice),
    Measurement("optimizer-step-on-mixed", "32768", optimizer_step_on_mixed),
)
#: Numbers of the texts that are settings of the program, not results.
SETTINGS = {"clip-of-spent": {"1e-4"}}


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda m: f"{m.slug}-{m.number}")
def test_damage_is_as_large_as_the_text_says(measurement: Measurement) -> None:
    assert measurement.number in NUMBER.findall(VIOLATIONS[measurement.slug].damage)
    assert measurement.measure() == pytest.approx(float(measurement.number), rel=0.05)


def test_every_number_of_a_text_is_measured() -> None:
    written = {slug: set(NUMBER.findall(v.damage)) for slug, v in VIOLATIONS.items()}
    measured = {slug: set(SETTINGS.get(slug, ())) for slug in VIOLATIONS}
    for measurement in MEASUREMENTS:
        measured[measurement.slug].add(measurement.number)
    assert written == measured


def test_adam_hides_scaled_gradients() -> None:
    assert optimizer_step_on_scaled(adam) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("clear_first", [False, True])
def test_unscale_of_absent_gradients_fails_at_the_step(clear_first: bool) -> None:
    t = Training()
    t.scaler.scale(t.loss())
    if clear_first:
        t.backward()
        t.optimizer.zero_grad()
    slug = "unscale-after-zero-grad" if clear_first else "unscale-without-gradient"
    t.unscale()
    with pytest.raises(AssertionError) as raised:
        t.step()
    assert f"`AssertionError: {raised.value}`" in VIOLATIONS[slug].damage


def test_overflow_after_unscale_is_not_skipped() -> None:
    t = Training()
    t.backward()
    t.unscale()
    t.backward(float("inf"))
    t.step()
    assert "not skipped" in VIOLATIONS["backward-after-unscale"].damage
    assert not t.is_finite


def test_bypassing_step_lets_an_overflow_reach_the_weights() -> None:
    t = Training()
    t.backward()
    t.overflow()
    t.unscale()
    t.optimizer.step()
    assert "inf and NaN reach the weights" in VIOLATIONS["optimizer-step-bypass"].damage
    assert not t.is_finite


def test_second_step_applies_an_overflow_that_the_scaler_skipped() -> None:
    t = Training()
    t.backward()
    t.overflow()
    t.step()
    assert t.is_finite
    t.optimizer.step()
    assert "applied after all" in VIOLATIONS["optimizer-step-twice"].damage
    assert not t.is_finite


def test_every_silent_violation_is_measured() -> None:
    silent = {slug for slug, violation in VIOLATIONS.items() if not violation.raises}
    by_program = {"unscale-without-gradient", "unscale-after-zero-grad", "optimizer-step-bypass"}
    assert {measurement.slug for measurement in MEASUREMENTS} | by_program == silent
