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
from amplint.code.module import Function, Module
from amplint.values.assumptions import definition_of, name_of
from amplint.values.conditions import conditions_at

_DEPTH = 4


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


def switch_given(call: ast.Call, dotted: str) -> ast.expr:
    """What an autocast or a scaler gets as `enabled`; True where it is left out.

    Raises:
        ValueError: it is a call of something else.
    """
    index = names.parameters_of(dotted).index("enabled")
    named = [item.value for item in call.keywords if item.arg == "enabled"]
    return next(iter([*call.args[index : index + 1], *named]), ast.Constant(True))


def switches(module: Module) -> frozenset[str]:
    """The last names of what decides in a file whether AMP is on."""
    return module.once(_switches)


def _switches(module: Module) -> frozenset[str]:
    """The places that are given as `enabled`, or asked around a scaler, its use or an autocast."""
    roles, found = roles_of(module), set[str]()
    for site in module.calls:
        callee = site.node.func
        is_switched = bool(names.parameters_of(site.dotted or ""))
        if not is_switched and not (
            isinstance(callee, ast.Attribute)
            and site.method == "scale"
            and roles.is_scaler(callee.value, site.function)
        ):
            continue
        tests = [item.test for item in conditions_at(site.node, site.function)]
        given = [switch_given(site.node, site.dotted or "")] if is_switched else []
        for expression in (*tests, *given):
            found.update(_places_of(expression, site.function))
    return frozenset(found)


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
