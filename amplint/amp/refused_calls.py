"""Calls that raise wherever they run: on a scaler of torch, or of what its AMP modules do not have."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from difflib import get_close_matches

from amplint.amp import names
from amplint.amp.scaler_calls import expects_error
from amplint.amp.signatures import METHODS, no_method, refusal
from amplint.amp.view import AmpView
from amplint.code.arguments import Passed, passed
from amplint.code.dataflow import constant_of
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, Module
from amplint.code.tree import TRIES, walk

_ONLY_OF_SCALERS = frozenset(("scale", "unscale_", "get_scale"))


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """Why a call raises; one of three.

    Args:
        words: of the `TypeError`, for arguments that the method does not take.
        kind: type of the constant that `update` gets as a new scale.
        meant: methods with nearly the name that no method has; None where one has it.
    """

    words: str = ""
    kind: str = ""
    meant: tuple[str, ...] | None = None


def refused_call(view: AmpView, site: CallSite) -> RefusedCall | None:
    """Why torch refuses a call on a scaler that is built in sight; None for all other calls."""
    callee = site.node.func
    if not isinstance(callee, ast.Attribute):
        return None
    found = _refused(view, site)
    if found is None or not _is_built_scaler(view, callee.value, site.function):
        return None
    return None if expects_error(view, site) else found


def no_member(view: AmpView, site: CallSite) -> tuple[str, ...] | None:
    """The names that a call may mean which torch's AMP module does not have; None for others."""
    module, _, name = (site.dotted or "").rpartition(".")
    members = names.MEMBERS.get(module)
    if members is None or name in members or name.startswith("_"):
        return None
    around = layout_of(site.function).ancestors(site.node)
    is_tried = any(isinstance(outer, TRIES) and getattr(outer, "handlers", ()) for outer in around)
    if is_tried or expects_error(view, site):
        return None
    is_asked = name in site.function.module.once(_texts)
    is_plain = site.function.module.imported_once(site.node.func)
    return tuple(get_close_matches(name, members, n=1)) if is_plain and not is_asked else None


def _refused(view: AmpView, site: CallSite) -> RefusedCall | None:
    """What is wrong with a call if it is one on a scaler."""
    if site.method not in METHODS:
        return _misnamed(view, site)
    arguments = passed(site.node)
    words = refusal(site.method, arguments)
    if words:
        return RefusedCall(words)
    kind = _kind_of_scale(view, arguments, site.function) if site.method == "update" else ""
    return RefusedCall(kind=kind) if kind else None


def _misnamed(view: AmpView, site: CallSite) -> RefusedCall | None:
    """What is wrong with a call of no method, made where the file has a scaler."""
    assert isinstance(site.node.func, ast.Attribute)
    module = site.function.module
    if path_text(site.node.func.value) not in module.once(_places):
        return None
    meant = no_method(site.method)
    return None if meant is None or _may_exist(view, site) else RefusedCall(meant=meant)


def _places(module: Module) -> frozenset[str | None]:
    """Where a file puts a scaler that it builds, and what it asks for what only scalers have."""
    used = (
        path_text(site.node.func.value)
        for site in module.calls
        if site.method in _ONLY_OF_SCALERS and isinstance(site.node.func, ast.Attribute)
    )
    built = (
        path_text(target)
        for node in module.nodes()
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        if any(
            isinstance(part, ast.Call) and module.resolve(part.func) in names.GRAD_SCALERS
            for part in walk(node.value)
        )
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )
    return frozenset((*used, *built)) - {None}


def _kind_of_scale(view: AmpView, arguments: Passed, function: Function) -> str:
    """The type of a constant that `update` gets and cannot take; "" for all others."""
    given = [*arguments.positional, *arguments.named.values()]
    value = view.values.of(given[0], function).only() if len(given) == 1 else ...
    is_right = value is None or value is ... or isinstance(value, float)
    return "" if is_right else type(value).__name__


def _may_exist(view: AmpView, site: CallSite) -> bool:
    """Whether a file asks for an attribute by its name first, or something stores one."""
    module = site.function.module
    named = site.method in module.once(_texts)
    return named or bool(view.objects.outside_stores(module, site.method))


def _texts(module: Module) -> frozenset[str]:
    """The strings of a file's functions."""
    values = (node.value for node in module.nodes() if isinstance(node, ast.Constant))
    return frozenset(value for value in values if isinstance(value, str))


def _is_built_scaler(view: AmpView, scaler: ast.expr, function: Function) -> bool:
    """Whether an expression is what torch's own class has built, wherever it comes from."""
    found = view.objects.origins.of(scaler, function)
    made = [item for item in found.origins if constant_of(item.expression) is not None]
    return (
        found.complete
        and bool(made)
        and all(
            isinstance(item.expression, ast.Call)
            and item.function.module.resolve(item.expression.func) in names.GRAD_SCALERS
            and item.function.module.imported_once(item.expression.func)
            for item in made
        )
    )
