"""Arguments for the functions of the fixtures, by the names of parameters: small and real.

A model takes rows of eight numbers, an optimizer holds the model that its name speaks of, a loader
has six batches. `OWN` has what a function needs beside that to do what it says.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

BATCHES = 6


class Net(nn.Module):
    """Takes and gives rows of eight numbers, of whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any, *_args: Any, **_kwargs: Any) -> Any:
        return self.second(functional.relu(self.first(x.float())))


class World:
    """The objects of one call: models by their part of the name, optimizers over them.

    Args:
        names: the parameters of the function.
        widths: how many values a batch of a loader has where a loop takes it apart, by its name.
    """

    #: A word in a parameter's name, and the model that it belongs to.
    _PARTS = (
        ("gen", r"gen|(?<![a-z])g(?![a-z])|actor"),
        ("disc", r"disc|(?<![a-z])d(?![a-z])|critic"),
        ("teacher", r"teacher|ema"),
        ("backbone", r"backbone|encoder|features"),
        ("head", r"head|decoder"),
        ("first", r"first"),
        ("second", r"second"),
    )

    def __init__(self, names: list[str], widths: dict[str, int]) -> None:
        self._models: dict[str, Net] = {}
        self._widths = widths
        models = [n for n in names if re.search(_MODEL, n) and "opt" not in n]
        self._parts = {self._part(name) for name in models}
        self._optimizers = [name for name in names if re.search(r"opt", name)]

    def _part(self, name: str) -> str:
        return next((part for part, words in self._PARTS if re.search(words, name)), "net")

    def model(self, name: str) -> Net:
        return self._models.setdefault(self._part(name), Net())

    def optimizer(self, name: str) -> torch.optim.Optimizer:
        """Over the model that its name speaks of, if the function has that; else over a share."""
        if self._part(name) in self._parts - {"net"}:
            return torch.optim.SGD(self.model(name).parameters(), 0.01)
        net = self.model("net" if "net" in self._parts or not self._parts else min(self._parts))
        alike = [n for n in self._optimizers if self._part(n) not in self._parts - {"net"}]
        if len(alike) == 1:
            return torch.optim.SGD(net.parameters(), 0.01)
        half = net.second if alike.index(name) % 2 else net.first
        return torch.optim.SGD(half.parameters(), 0.01)

    def halves(self) -> list[torch.optim.Optimizer]:
        net = self.model("net")
        return [torch.optim.SGD(half.parameters(), 0.01) for half in (net.first, net.second)]

    def batches(self, name: str) -> list[Any]:
        made = torch.Generator().manual_seed(0)
        width = self._widths.get(name, 1)
        many = [[torch.randn(4, 8, generator=made) for _ in range(width)] for _ in range(BATCHES)]
        return [tuple(each) if width > 1 else each[0] for each in many]

    def value(self, name: str) -> Any:
        """An argument for a parameter with this name.

        Raises:
            LookupError: no idea.
        """
        for words, make in _VALUES:
            if re.search(words, name):
                return make(self, name)
        raise LookupError(name)


_MODEL = r"model|net|module|coder|backbone|head|policy|gen|disc|teacher|student|critic|actor|base"
_VALUES: tuple[tuple[str, Callable[[World, str], Any]], ...] = (
    (r"^optimizers$|^opts$", lambda w, _: w.halves()),
    (r"sched", lambda w, n: torch.optim.lr_scheduler.StepLR(w.optimizer(n), 100)),
    (r"opt", lambda w, n: w.optimizer(n)),
    (r"scaler", lambda _w, _n: torch.amp.GradScaler("cpu", init_scale=1024.0)),
    (
        r"loader|batches|data|iterator|dataset|samples|pages|recordings|sounds|held_out",
        lambda w, n: w.batches(n),
    ),
    (
        _MODEL,
        lambda w, n: w.model(n),
    ),
    (r"batch$|^x$|input|image|^real|target|^y$|label", lambda _w, _n: torch.randn(4, 8)),
    (r"criterion|loss_f|objective", lambda _w, _n: functional.mse_loss),
    (r"epoch|accum|every|interval|^k$|^n$|window|micro|steps|count", lambda _w, _n: 2),
    (r"max_norm|clip|limit|threshold|grad_norm", lambda _w, _n: 1.0),
    (r"device", lambda _w, _n: "cpu"),
    (r"dtype", lambda _w, _n: torch.float16),
    (r"amp|fp16|enabled|mixed|half|use_|is_", lambda _w, _n: True),
    (r"lr|rate|weight|alpha|lambda|eps|scale", lambda _w, _n: 0.1),
    (r"param", lambda w, n: list(w.model(n).parameters())),
    (
        r"log|writer",
        lambda _w, _n: types.SimpleNamespace(
            info=lambda *_a: None, log=lambda *_a, **_k: None, add_scalar=lambda *_a: None
        ),
    ),
)


# -- arguments of single functions ---------------------------------------------------------------


_RANDOM = torch.Generator().manual_seed(0)


def _some(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_RANDOM)


class From:
    """An argument that is made of the other objects of the call."""

    def __init__(self, make: Callable[[World], Any]) -> None:
        self.make = make


def _pairs(count: int = BATCHES, width: int = 8, targets: int = 8) -> list[Any]:
    return [(_some(4, width), _some(4, targets)) for _ in range(count)]


def _classes(classes: int = 2) -> list[Any]:
    return [
        (_some(4, 8), torch.randint(0, classes, (4,), generator=_RANDOM)) for _ in range(BATCHES)
    ]


def _broken(value: float) -> list[Any]:
    """The third batch holds a value that is not finite."""
    batches = _pairs()
    batches[2][0][0, 0] = value
    return batches


def _options(**values: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**values)


@dataclasses.dataclass
class _Options:
    low: bool = False


def _scaled(_world: World) -> torch.amp.GradScaler:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))
    return scaler


def _scalar(world: World) -> Callable[[Any], Any]:
    model = world.model("model")
    return lambda batch: model(batch).mean()


def _with_loss(world: World) -> Any:
    model = world.model("model")
    model.loss = lambda: model(torch.ones(4, 8)).square().mean()
    return model


def _over(name: str) -> From:
    """An optimizer over a whole model."""
    return From(lambda world: torch.optim.SGD(world.model(name).parameters(), 0.01))


def _growing(_world: World) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)


def _rest(world: World) -> list[Any]:
    parameters = list(world.model("model").second.parameters())
    return [torch.optim.SGD([each], 0.01) for each in parameters]


#: File, or file and function: arguments with which it does what it says.
OWN: dict[str, dict[str, Any]] = {
    "AMP101/bad_conditional_backward.py:train_skipping_broken_losses": {
        "loader": _broken(float("inf"))
    },
    "AMP101/bad_reset_then_flush.py": {"ema": _options(update=lambda _model: None)},
    "AMP102/bad_nan_guard.py": {"loader": _broken(float("nan"))},
    "AMP103/bad_count_from_anywhere.py": {"batches": _pairs(5), "begin": 0, "done": 0},
    "AMP103/bad_duplicated_flush.py": {"loader": _pairs(5)},
    "AMP103/bad_flush_without_update.py": {"loader": _pairs(5)},
    "AMP103/bad_last_batch_flushed_twice.py": {"loader": _pairs(5)},
    "AMP104/bad_filled_dict.py": {"args": _options(train=True)},
    "AMP105/bad_called_for_its_value.py": {
        "hook": From(lambda world: world.model("model")),
        "callback": functional.mse_loss,
        "listener": lambda _loss: "step",
    },
    "AMP105/bad_entry_by_batch.py": {"tables": [_some(4, 8)] * 3, "keys": range(3)},
    "AMP105/bad_guarded_update.py": {"verbose": False},
    # Empty batches raise, and are caught.
    "AMP106/bad_caught_raise.py": {"loader": [_some(4, 8), _some(0, 8)]},
    "AMP106/bad_switches.py": {
        "body": _over("model"),
        "head": _over("head"),
        "options": _options(ready=False),
        "turns": _options(),
        "loader": _broken(float("nan")),
    },
    "AMP107/bad_more_optimizers.py": {
        "optimizer": From(lambda w: torch.optim.SGD(w.model("model").first.parameters(), 0.01)),
        "others": From(_rest),
        "scaler": From(_growing),
    },
    "AMP107/bad_rotated.py": {"first_batch": _pairs()[0]},
    "AMP107/bad_two_optimizers.py": {
        "center_criterion": From(lambda world: world.model("head")),
        "optimizer": _over("model"),
        "optimizer_center": _over("head"),
        "scaler": From(_growing),
    },
    "AMP108/bad_dropped_batch.py": {"loader": _broken(float("inf"))},
    "AMP110/bad_guarded.py": {"config": _options(fp16=True, clip_norm=1.0)},
    # No norm here is above it: a limit that skips every step is what a run has to tell.
    "AMP111/good_unscaled_norm.py": {"limit": 1000.0},
    "AMP111/bad_penalty.py": {"fake": _some(4, 8)},
    "AMP112/bad_branch.py": {"distributed_backend": "ring"},
    "AMP112/bad_gradient_shared.py": {
        "body": From(lambda world: world.model("body")),
        "labels": torch.randint(0, 4, (4,), generator=_RANDOM),
    },
    "AMP114/bad_scaler_passed.py": {"tables": [_some(4, 8)] * 3},
    "AMP114/bad_stored_no_call_inside.py": {
        "rule": _over("net"),
        "guard": True,
    },
    "AMP115/bad_next_scale.py": {"log": lambda *_words: None},
    "AMP115/bad_only_with_amp.py": {"bar": _options(set_description=lambda _words: None)},
    "AMP117/bad_recreated.py": {"unfreeze_at": 1},
    "AMP117/bad_two_scalers.py": {"noise_loader": [_some(4, 8)] * 3},
    "AMP118/bad_positional.py": {"model": From(_with_loss)},
    "AMP119/bad_passed_on.py": {"loader": _pairs(3)},
    "AMP121/bad_method.py": {"schedulers": []},
    "AMP123/bad_placed_layers.py": {"scenes": [_some(4, 6)]},
    "AMP123/bad_twice.py": {"verbose": True},
    "AMP123/bad_gan.py": {"loader": [[_some(4, 8)] * 4] * 3},
    "AMP124/bad_frozen.py": {"loader": _classes()},
    "AMP124/bad_replaced_model.py": {"width": 8},
    "AMP124/bad_unused_model.py": {"loader": _classes()},
    "AMP125/bad_other_model.py": {"loader": [(_some(4, 8), None)]},
    "AMP125/bad_update_outside.py": {
        "loader": [(_some(4, 8), _some(4, 8), torch.zeros(4, dtype=torch.bool))]
    },
    "AMP125/bad_zeros.py": {
        "loader": [(_some(4, 8), _some(4, 8), count == 0) for count in range(3)]
    },
    "AMP129/bad_ends.py": {"loader": _broken(float("inf"))},
    "AMP130/bad_no_step.py:Scheduled.finish": {"schedule": lambda _step: 1.0},
    "AMP201/bad_plain_step.py": {"use_scaler": False},
    "AMP201/bad_unscale.py": {"mixed_precision": False},
    "AMP201/bad_update.py": {"use_amp": False},
    "AMP202/bad_absent.py": {"use_amp": False, "config": _options(mixed_precision=False)},
    "AMP202/bad_checkpoint.py": {"use_amp": False, "path": "/dev/null"},
    "AMP202/bad_conditional_expression.py": {
        "use_amp": False,
        "config": _options(mixed_precision=False),
    },
    "AMP202/bad_partly_guarded.py": {"use_amp": False},
    "AMP202/bad_copied_options.py": {
        "options": _options(low=False, fast=True, round=_options(low=False)),
        "model": From(_scalar),
        "optimizer": From(lambda world: world.optimizer("optimizer")),
        "ask": lambda: True,
        "low": True,
    },
    "AMP202/bad_copied_options.py:train_by_changed_copy": {"options": _Options()},
    "AMP203/bad_constant_switch.py": {"recordings": _classes()},
    "AMP202/bad_attributes_of_another_branch.py": {"settings": _options(rate=0.1, low=True)},
    "AMP202/bad_raises_here.py": {
        "options": _options(sharded=True, restore=True, rate=0.1, low=False),
        "saved": {"updater": torch.optim.SGD([torch.zeros(1)]).state_dict(), "scaler": {}},
        "wrap": lambda *_things: _options(load_state_dict=lambda _state: None),
    },
    "AMP204/bad_always_autocast.py": {"config": _options(scale_loss=False)},
    "AMP204/bad_defaults_of_options.py": {"pages": _classes()},
    "AMP204/bad_narrower.py": {"args": _options(amp=True, dynamic_scale=False)},
    "AMP204/bad_negated.py": {"args": _options(amp=True)},
    # It is right for bfloat16.
    "AMP204/good_bfloat16.py": {"amp_dtype": torch.bfloat16},
    "AMP206/bad_one_branch.py": {
        "loader": [(_some(4, 8), torch.randint(0, 8, (4,), generator=_RANDOM), torch.ones(4))] * 3
    },
    "AMP201/bad_flag_and_scaler.py": {"config": _options(mixed_precision=False)},
    "AMP209/bad_property.py": {"options": _options(amp_type=True, use_amp_of=True)},
    "AMP209/bad_types.py": {"args": _options(amp_enabled=True)},
    "AMP301/bad_parts_of_a_factory.py": {"width": 8, "classes": 8},
    "AMP301/bad_parts_of_a_factory.py:fit_pair": {"batches": _pairs(6, 12, 1)},
    "AMP304/bad_loop_inside.py:train_epochs": {"loader": _classes()},
    "AMP304/bad_adversarial.py": {
        "generator": From(lambda _world: torch.nn.Conv2d(3, 3, 1)),
        "noise": _some(2, 3, 8, 8),
        "real": _some(2, 3, 8, 8),
    },
    "AMP306/bad_recursion.py": {
        "layers": [functional.relu] * 2,
        "depth": 2,
        "x": _some(2, 4),
    },
    "AMP401/bad_casts.py": {"loader": _pairs(6, 4, 1), "args": _options(fp16=True)},
    "AMP402/bad_by_option.py": {
        "resume": False,
        "settings": _options(scale_gradients=True),
        "plan": _options(scaled=True),
        "numbers": "brain",
        "criterion": lambda out, targets: ({"all": (out - targets).square()}, None),
    },
    "AMP402/bad_dtypes.py": {"precision": "bf16", "amp": "bf16"},
    "AMP402/bad_switch_behind_a_star.py": {"observe": lambda _model: None},
    "AMP402/bad_same_branch.py": {
        "word": "brain",
        "options": _options(brain=True),
        "settings": {"reduced": True},
        "kind": "bfloat16",
    },
    "AMP403/bad_weights.py": {"loader": _pairs(6, 4, 1)},
    "AMP501/bad_branch_of_another_switch.py": {"debug": False, "full": False},
    "AMP504/bad_adam.py": {"loader": _pairs(6, 4, 1)},
    "AMP507/bad_step_in_block.py:apply_gradients": {"scaler": From(_scaled)},
    "AMP606/bad_hooks.py": {"clip": lambda *_args: None, "count": lambda *_args: None},
    "AMP801/bad_kinds_of_use.py": {"options": _options(ready=True)},
}


def own(file: str, function: str) -> dict[str, Any]:
    """What a function needs beside what its names say."""
    return {**OWN.get(file, {}), **OWN.get(f"{file}:{function}", {})}
