"""Lightning modules, and the precision of the Trainers that run them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.libraries import class_row
from amplint.amp.view import AmpView
from amplint.code.arguments import written_argument
from amplint.code.module import CallSite, Class, Function, Module
from amplint.values.provenance import Origin
from amplint.values.values import Value

MODULE = "lightning.pytorch.LightningModule"
TRAINER = "lightning.pytorch.Trainer"
#: With these a Trainer scales losses, on CUDA.
_SCALED = (16, "16", "16-mixed")
#: Plugins that own the scaler of a Trainer, by their names in all versions, and where they lie.
_MIXED = frozenset(("MixedPrecision", "MixedPrecisionPlugin", "NativeMixedPrecisionPlugin"))
_PLUGINS = ("lightning.pytorch.plugins", "pytorch_lightning.plugins")
#: Arguments of a Trainer that bring a precision of their own, and those that are not in sight.
_OTHER_PRECISION = frozenset(("plugins", "amp_backend", "amp_level", None))


def is_lightning_module(view: AmpView, owner: Class) -> bool:
    """Whether a class derives from `LightningModule`, in whatever file."""
    rows = map(class_row, view.objects.base_names(owner))
    return any(row is not None and row.name == MODULE for row in rows)


@dataclass(frozen=True, slots=True, eq=False)
class ScalingTrainer:
    """A Trainer that scales losses, on CUDA.

    Args:
        site: its constructor call.
        given: the argument that is its precision, or that of a plugin which it gets.
        precision: what that is.
    """

    site: CallSite
    given: ast.expr
    precision: Value

    @property
    def words(self) -> str:
        """What has to hold for it to have this precision, as source text."""
        if self.precision.origin.conditions:
            return " ".join(ast.unparse(self.precision.origin.conditions[0].test).split())
        is_said = isinstance(self.given, ast.Constant)
        text = "precision" if is_said else " ".join(ast.unparse(self.given).split())
        return f"{text} == {self.precision.content!r}"


def scaling_trainer(view: AmpView, owner: Class) -> ScalingTrainer | None:
    """The Trainer that scales the losses of a Lightning module; the surest.

    It is looked for in the file of the class and in those that import it.
    """
    found = view.once(_scaling_trainers, owner)
    return max(found, key=lambda item: item.precision.firmness, default=None)


def _scaling_trainers(view: AmpView, owner: Class) -> list[ScalingTrainer]:
    return [
        ScalingTrainer(site, given, value)
        for site in _trainers(view, owner)
        for given, value in _precisions(view, site)
        if value.content in _SCALED and not isinstance(value.content, bool)
    ]


def _trainers(view: AmpView, owner: Class) -> list[CallSite]:
    """The Trainers that may run a Lightning module, or one that derives from it."""
    modules: list[Module] = []
    for each in (owner, *view.objects.subclasses(owner)):
        modules.append(each.module)
        constructor = each.methods.get("__init__")
        if constructor is not None:
            modules += view.project.users(constructor)
    return [
        site
        for module in dict.fromkeys(modules)
        for site in module.calls
        if (row := class_row(site.dotted)) is not None and row.name == TRAINER
        if _may_run(view, site, owner)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class PlainTrainer:
    """A Trainer that scales no loss.

    Args:
        site: its constructor call.
        fits: whether it is seen to fit the module in question.
    """

    site: CallSite
    fits: bool


def plain_trainer(view: AmpView, owner: Class) -> PlainTrainer | None:
    """A Trainer that runs a Lightning module, where none in sight scales its losses."""
    sites = _trainers(view, owner)
    if not all(_is_plain(view, site) for site in sites):
        return None
    found = (PlainTrainer(site, any(_fitted(view, site, owner))) for site in sites)
    return max(found, key=lambda item: item.fits, default=None)


def _is_plain(view: AmpView, trainer: CallSite) -> bool:
    """Whether a Trainer surely has no scaler: a precision of 32 bits, bfloat16, or none at all."""
    given = {word.arg: word.value for word in trainer.node.keywords}
    if trainer.node.args or not given.keys().isdisjoint(_OTHER_PRECISION):
        return False
    if "precision" not in given:
        return True
    possible = view.values.of(given["precision"], trainer.function)
    return possible.always(lambda content: content not in _SCALED)


def _may_run(view: AmpView, trainer: CallSite, owner: Class) -> bool:
    """Whether a Trainer may fit a module of a class: not where it is seen to fit only others."""
    fitted = list(_fitted(view, trainer, owner))
    return not fitted or any(one is not False for one in fitted)


def _fitted(view: AmpView, trainer: CallSite, owner: Class) -> Iterator[bool | None]:
    """Of each module that a Trainer fits whether it is of a class; None where nobody knows."""
    for site in trainer.function.module.calls:
        if site.method != "fit" or not site.node.args:
            continue
        callee = site.node.func
        if isinstance(callee, ast.Attribute) and _comes_from(view, callee.value, site, trainer):
            one = view.objects.class_of(site.node.args[0], site.function)
            yield None if one is None else _are_kin(view, one, owner)


def _are_kin(view: AmpView, one: Class, other: Class) -> bool:
    return other in view.objects.ancestry(one) or one in view.objects.ancestry(other)


def _comes_from(view: AmpView, receiver: ast.expr, site: CallSite, trainer: CallSite) -> bool:
    found = view.objects.origins.of(receiver, site.function)
    return any(origin.expression is trainer.node for origin in found.origins)


def _precisions(view: AmpView, trainer: CallSite) -> Iterator[tuple[ast.expr, Value]]:
    """The arguments that give a Trainer its precision, with what each may be."""
    for word in trainer.node.keywords:
        if word.arg == "precision":
            for value in view.values.of(word.value, trainer.function).values:
                yield word.value, value
        elif word.arg == "plugins":
            for plugin in _plugins(view, word.value, trainer.function):
                yield from _of_plugin(view, plugin)


def _plugins(view: AmpView, given: ast.expr, function: Function) -> Iterator[Origin]:
    """What a Trainer gets as its plugins: a single one, or those of a list, all of which count."""
    origins = view.values.origins
    for origin in origins.of(given, function).origins:
        display = origin.expression
        if not isinstance(display, (ast.List, ast.Tuple)):
            yield origin
            continue
        for item in display.elts:
            for inner in origins.of(item, origin.function, origin.activation).origins:
                yield inner.then(origin.firmness, origin.steps, origin.conditions)


def _of_plugin(view: AmpView, plugin: Origin) -> Iterator[tuple[ast.expr, Value]]:
    """What a plugin for mixed precision gets as its precision."""
    call = plugin.expression
    if not isinstance(call, ast.Call) or not _is_mixed(plugin.function.module.resolve(call.func)):
        return
    given = written_argument(call, "precision", 0)
    if given is None:
        return
    for value in view.values.of(given, plugin.function, plugin.activation).values:
        origin = value.origin.then(plugin.firmness, plugin.steps, plugin.conditions)
        yield given, Value(value.content, min(value.firmness, plugin.firmness), origin)


def _is_mixed(dotted: str | None) -> bool:
    package, _, name = (dotted or "").rpartition(".")
    return name in _MIXED and package.startswith(_PLUGINS)
