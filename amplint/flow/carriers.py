"""Names under which a scaler may travel: containers, objects and closures that were given one.

By name only, like all questions about what may matter: too many names only cost time. What
really carries a scaler, the paths say (`amplint.flow.escapes`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from amplint.amp.roles import Roles
from amplint.code.expressions import last_name
from amplint.code.module import Function, walk

#: Methods that ask, store or prepare, whoever they belong to; none that names a backward.
ASKS = re.compile(
    r"^(?!.*back(?:ward|prop))(?:"
    r"_*(?:get|pop|items|keys|values|copy|is|has|set|to|cuda|cpu|eval|train|parameters|modules|"
    r"named|children|add|register|compute|forward|predict|load|read|write|build|make|create|init|"
    r"setup|move)(?:_|$)|"
    r".*(?:valid|eval|test|infer|metric|plot|data|batch$|input|size))",
    re.IGNORECASE,
)


_BINDERS = frozenset({ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.Call})


def carriers(roles: Roles, reaching: frozenset[str]) -> frozenset[str]:
    """Last names of what was given a scaler of a module, directly or not.

    Args:
        reaching: names of functions that reach the protocol: whoever gets one may call it.
    """
    links = [
        (name, parts)
        for function in roles.module.functions
        for node in function.nodes
        if type(node) in _BINDERS
        for name, parts in _links(node, function, roles)
    ]
    links += [
        (name, {function.name})
        for function in roles.module.functions
        for name in decorating(function)
    ]
    found: set[str] = set()
    changed = True
    while changed:
        changed = False
        for name, parts in links:
            if name not in found and parts & (reaching | found | _ALWAYS):
                found.add(name)
                changed = True
    return frozenset(found)


#: Stands for every scaler among the names that a carrier was given.
_SCALER = "<scaler>"
_ALWAYS = frozenset({_SCALER, "self"})


def _links(node: ast.AST, function: Function, roles: Roles) -> Iterator[tuple[str, set[str]]]:
    """(name, names that it was given) of a statement or call."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            held = node.func.value
            if isinstance(held, ast.Attribute) and roles.is_scaler(held, function):
                yield from _named(held.value, [held], function, roles)  # who has it, uses it
            parts = [part for item in _arguments(node) for part in passed_parts(item)]
            yield from _named(node.func.value, parts, function, roles)
        return
    value = node.iter if isinstance(node, ast.For) else node.value  # type: ignore[attr-defined]
    if value is None:
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    for target in targets:
        if isinstance(target, ast.Attribute):  # `context.scaler = scaler`
            yield from _named(target.value, list(passed_parts(value)), function, roles)
        aliases = isinstance(value, (ast.Name, ast.Attribute))
        read = _as_read(target, function)
        if aliases and any(roles.is_scaler(item, function) for item in (value, read)):
            if isinstance(value, ast.Attribute):  # `scaler = learner.scaler`: who has it, uses it
                yield from _named(value.value, [value, read], function, roles)
            continue  # another name of the scaler itself
        for part in walk(target):
            if isinstance(part, (ast.Name, ast.Attribute)):
                yield from _named(part, list(passed_parts(value)), function, roles)


def _as_read(target: ast.expr, function: Function) -> ast.expr:
    """A name where it is read: what is stored there may show in what reads it alone."""
    reads = function.once(first_reads)
    return reads.get(target.id, target) if isinstance(target, ast.Name) else target


def first_reads(function: Function) -> dict[str, ast.Name]:
    """Where each name is first read in a function."""
    found: dict[str, ast.Name] = {}
    for node in function.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, node)
    return found


def decorating(function: Function) -> Iterator[str]:
    """Names of the objects whose methods decorate a function."""
    for decorator in getattr(function.node, "decorator_list", ()):
        method = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(method, ast.Attribute) and function.module.resolve(method) is None:
            yield last_name(method.value)


def _named(
    place: ast.expr, parts: list[ast.expr], function: Function, roles: Roles
) -> Iterator[tuple[str, set[str]]]:
    name = last_name(place)
    if not name or name == "self" or name in roles.module.scopes.aliases:
        return
    given = {last_name(part) for part in parts}
    if any(roles.is_scaler(_owner(part), function) for part in parts):
        given.add(_SCALER)
    yield name, given


def _owner(part: ast.expr) -> ast.expr:
    """What a bound method belongs to; anything else itself."""
    bound = isinstance(part, ast.Attribute) and part.attr in ("step", "update", "unscale_", "scale")
    return part.value if bound else part  # type: ignore[attr-defined]


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(word.value for word in call.keywords)]


def passed_parts(value: ast.expr) -> Iterator[ast.expr]:
    """Places that whoever gets a value may reach: elements, arguments, what a closure reads."""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
        yield value
    elif isinstance(value, ast.Call):
        for item in _arguments(value):
            yield from passed_parts(item)
    elif isinstance(value, ast.Lambda):
        yield from (
            part for part in walk(value.body) if isinstance(part, (ast.Name, ast.Attribute))
        )
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        for item in value.elts:
            yield from passed_parts(item)
    elif isinstance(value, ast.Dict):
        for item in value.values:
            yield from passed_parts(item)
    elif isinstance(value, ast.IfExp):
        yield from passed_parts(value.body)
        yield from passed_parts(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for item in value.values:
            yield from passed_parts(item)
    elif isinstance(value, (ast.Starred, ast.Await, ast.NamedExpr)):
        yield from passed_parts(value.value)
