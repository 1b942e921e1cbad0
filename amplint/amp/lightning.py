"""Lightning modules, and the precision of the Trainers that run them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.libraries import class_row
from amplint.amp.view import AmpView
from amplint.code.module import CallSite, Class, Module
from amplint.values.values import Value

MODULE = "lightning.pytorch.LightningModule"
TRAINER = "lightning.pytorch.Trainer"
#: With these a Trainer scales losses, on CUDA.
_SCALED = (16, "16", "16-mixed")


def is_lightning_module(view: AmpView, owner: Class) -> bool:
    """Whether a class derives from `LightningModule`, in whatever file."""
    rows = map(class_row, view.objects.base_names(owner))
    return any(row is not None and row.name == MODULE for row in rows)


def scaling_trainer(view: AmpView, owner: Class) -> tuple[CallSite, Value] | None:
    """The Trainer that scales the losses of a Lightning module, with its precision; the surest.

    It is looked for in the file of the class and in those that import it.
    """
    found = view.once(_scaling_trainers, owner)
    return max(found, key=lambda item: item[1].firmness, default=None)


def _scaling_trainers(view: AmpView, owner: Class) -> list[tuple[CallSite, Value]]:
    constructor = owner.methods.get("__init__")
    modules: list[Module] = [owner.module]
    if constructor is not None:
        modules += view.project.users(constructor)
    return [
        (site, value)
        for module in dict.fromkeys(modules)
        for site in module.calls
        if (row := class_row(site.dotted)) is not None and row.name == TRAINER
        if _may_run(view, site, owner)
        for value in _precisions(view, site)
    ]


def _may_run(view: AmpView, trainer: CallSite, owner: Class) -> bool:
    """Whether a Trainer may fit a module of a class: not where it is seen to fit only others."""
    fitted = [
        view.objects.class_of(site.node.args[0], site.function)
        for site in trainer.function.module.calls
        if site.method == "fit" and site.node.args and isinstance(site.node.func, ast.Attribute)
        if _comes_from(view, site.node.func.value, site, trainer)
    ]
    return not fitted or any(
        one is None or owner in view.objects.ancestry(one) or one in view.objects.ancestry(owner)
        for one in fitted
    )


def _comes_from(view: AmpView, receiver: ast.expr, site: CallSite, trainer: CallSite) -> bool:
    found = view.objects.origins.of(receiver, site.function)
    return any(origin.expression is trainer.node for origin in found.origins)


def _precisions(view: AmpView, trainer: CallSite) -> Iterator[Value]:
    for word in trainer.node.keywords:
        if word.arg == "precision":
            for value in view.values.of(word.value, trainer.function).values:
                if value.content in _SCALED and not isinstance(value.content, bool):
                    yield value


def precision_words(value: Value, trainer: ast.Call) -> str:
    """What has to hold for a Trainer to have a precision, as source text."""
    if value.origin.conditions:
        return " ".join(ast.unparse(value.origin.conditions[0].test).split())
    given = next(item.value for item in trainer.keywords if item.arg == "precision")
    text = " ".join(ast.unparse(given).split())
    return text if isinstance(given, ast.Constant) else f"{text} == {value.content!r}"
