"""Which tests are about AMP itself: they read what switches a scaler or an autocast on.

That AMP is on is what the linter is about, so such a test is no option that a finding needs. What
makes a place a switch is where its value goes, not what it is called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.amp import names
from amplint.amp.roles import roles_of
from amplint.code.by_name import read_by_name
from amplint.code.module import CallSite, Function, Module
from amplint.values.assumptions import definition_of, name_of
from amplint.values.conditions import conditions_at

_DEPTH = 4
#: Constructors -> the position of `enabled`.
_ENABLED = {
    **dict.fromkeys(names.AUTOCASTS, 2),
    **dict.fromkeys(names.DEVICE_AUTOCASTS, 0),
    **dict.fromkeys(names.GRAD_SCALERS | names.SHARDED_GRAD_SCALERS, 5),
    **dict.fromkeys(names.DEVICE_GRAD_SCALERS, 4),
}


def is_switch(test: ast.expr, function: Function, modules: Iterable[Module]) -> bool:
    """Whether a test reads a place that decides in one of the modules whether AMP is on."""
    read = set(_places_of(test, function))
    return any(not read.isdisjoint(switches(module)) for module in modules)


def asked_for_its_switch(call: ast.expr) -> ast.expr | None:
    """`scaler` of `scaler.is_enabled()`, also where that method is looked up with a default."""
    if not isinstance(call, ast.Call):
        return None
    if isinstance(call.func, ast.Attribute):
        return call.func.value if call.func.attr == "is_enabled" else None
    named = read_by_name(call.func)
    return named[0] if named is not None and named[1] == "is_enabled" else None


def switches(module: Module) -> frozenset[str]:
    """The last names of what decides in a file whether AMP is on."""
    return module.once(_switches)


def _switches(module: Module) -> frozenset[str]:
    """The places that are given as `enabled`, or asked around a scaler, its use or an autocast."""
    roles, found = roles_of(module), set[str]()
    for site in module.calls:
        callee = site.node.func
        if site.dotted not in _ENABLED and not (
            isinstance(callee, ast.Attribute)
            and site.method == "scale"
            and roles.is_scaler(callee.value, site.function)
        ):
            continue
        tests = [item.test for item in conditions_at(site.node, site.function)]
        for expression in (*tests, *_given(site)):
            found.update(_places_of(expression, site.function))
    return frozenset(found)


def _given(site: CallSite) -> Iterator[ast.expr]:
    """What a constructor gets as `enabled`."""
    index = _ENABLED.get(site.dotted or "")
    if index is None:
        return
    yield from site.node.args[index : index + 1]
    yield from (item.value for item in site.node.keywords if item.arg == "enabled")


def _places_of(expression: ast.expr, function: Function, depth: int = _DEPTH) -> Iterator[str]:
    """The last names of what an expression reads, through the definitions of names."""
    name = name_of(expression)
    if name:
        yield name
        definition = definition_of(expression, function) if depth else None
        if definition is not None:
            yield from _places_of(definition, function, depth - 1)
        return
    for part in ast.iter_child_nodes(expression):
        if isinstance(part, ast.expr):
            yield from _places_of(part, function, depth)
