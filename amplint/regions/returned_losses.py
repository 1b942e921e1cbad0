"""Losses of an autocast region that a Lightning module returns, for its Trainer to run backward.

In automatic optimization the precision plugin of the Trainer does so. That of full precision calls
`loss.backward()` (lightning, pytorch/plugins/precision/precision.py, `Precision.backward`), whatever
autocast the module has opened by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.lightning import PlainTrainer, is_lightning_module, plain_trainer
from amplint.amp.view import AmpView
from amplint.code.dataflow import constant_of
from amplint.code.definitions import returned
from amplint.code.module import Class, Function, enclosing_class
from amplint.regions.callers import Callers
from amplint.regions.plain_losses import results_of, scaled_on_the_way
from amplint.regions.regions import Region

#: Methods of a module in whose place the Trainer runs no backward of its own, or not only that.
_TAKES_OVER = frozenset(("backward", "manual_backward", "optimizer_step"))


@dataclass(frozen=True, slots=True, eq=False)
class ReturnedLoss:
    """A loss that a Trainer runs a plain backward on.

    Args:
        function: the `training_step` that returns it.
        loss: the expression.
        owner: the Lightning module.
        trainer: the Trainer.
    """

    region: Region
    function: Function
    loss: ast.expr
    owner: Class
    trainer: PlainTrainer


def returned_losses(view: AmpView, callers: Callers, region: Region) -> Iterator[ReturnedLoss]:
    """What a region computes, and a Lightning module returns as the loss of a training step."""
    for results, _ in results_of(view, callers, region):
        function = results.function
        owner = enclosing_class(function)
        if function.name != "training_step" or owner is None or _runs_its_own(view, owner):
            continue
        trainer = plain_trainer(view, owner)
        if trainer is None:
            continue
        for value in map(_loss, returned(function)):
            if results.hold(value) and not scaled_on_the_way(view, results, value):
                yield ReturnedLoss(region, function, value, owner, trainer)


def _runs_its_own(view: AmpView, owner: Class) -> bool:
    """Whether a class is no Lightning module, or says itself how it is optimized."""
    if not is_lightning_module(view, owner):
        return True
    every = view.objects.ancestry(owner)
    return any(
        not _TAKES_OVER.isdisjoint(each.methods) or "automatic_optimization" in each.module.source
        for each in every
    )


def _loss(value: ast.expr) -> ast.expr:
    """The loss in what a training step returns: that, or what a dict has under "loss"."""
    if not isinstance(value, ast.Dict):
        return value
    found = (item for key, item in zip(value.keys, value.values) if constant_of(key) == "loss")
    return next(found, value)
