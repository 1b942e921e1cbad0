"""What the decorators of a function stand for: dotted names of a library's functions.

A decorator may have been bound by `functools.partial`, chosen, renamed, or wrapped by a function
of the project, in whatever file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.code.arguments import Passed, written
from amplint.code.definitions import returned
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function
from amplint.values.callables import PARTIALS
from amplint.values.objects import Objects

#: Decorators are followed through this many names, calls and functions.
_DEPTH = 6
#: What a `*` import brings is not taken to hide these.
_BUILTINS = frozenset(("staticmethod", "classmethod", "property"))


@dataclass(frozen=True, slots=True, eq=False)
class Decorator:
    """One thing that a decorator may stand for.

    Args:
        dotted: the dotted name of what a library defines; "" where nobody in sight says.
        given: what it is called with, on whatever way, the function itself aside.
    """

    dotted: str
    given: Passed


def decorators_of(objects: Objects, function: Function) -> list[Decorator]:
    """What each decorator of a function may stand for, the outermost first."""
    outside = function.parent or function.module.body
    return [
        found
        for item in getattr(function.node, "decorator_list", ())
        for found in _stands_for(objects, item, outside, Passed(), _DEPTH)
    ]


def _stands_for(
    objects: Objects, node: ast.expr, function: Function, given: Passed, depth: int
) -> Iterator[Decorator]:
    known = objects.symbol(node, function)
    dotted = _library_name(objects, node, function)
    if isinstance(known, Function) and depth:
        yield from _made_by(objects, known, given, depth - 1)
    elif isinstance(known, Class) or not depth:
        yield Decorator("", given)
    elif isinstance(node, ast.Call):
        yield from _called(objects, node, function, given, depth - 1)
    elif dotted:
        yield Decorator(dotted, given)
    else:
        found = objects.origins.of(node, function)
        for item in found.origins:
            if item.expression is not node:
                yield from _stands_for(objects, item.expression, item.function, given, depth - 1)
        if not found.complete or any(item.expression is node for item in found.origins):
            yield Decorator("", given)


def _library_name(objects: Objects, node: ast.expr, function: Function) -> str:
    """The dotted name of what Python or a library defines; "" for everything else."""
    module = function.module
    if isinstance(node, ast.Name) and node.id in _BUILTINS:
        return f"builtins.{node.id}" if module.scopes.resolve(node).scope is None else ""
    dotted = module.resolve(node) or ""
    home = dotted.rpartition(".")[0]
    return "" if home and objects.project.module_named(home, module) is not None else dotted


def _called(
    objects: Objects, call: ast.Call, function: Function, given: Passed, depth: int
) -> Iterator[Decorator]:
    """`partial(custom_bwd, device_type="cuda")`, and a decorator that is called first."""
    earlier, inner = written(call), call.func
    if last_name(call.func) in PARTIALS and call.args:
        earlier, inner = earlier.after(1), call.args[0]
    yield from _stands_for(objects, inner, function, earlier.then(given), depth)


def _made_by(objects: Objects, maker: Function, given: Passed, depth: int) -> Iterator[Decorator]:
    """What a function of the project that decorates returns: another decorator, called by it."""
    values = returned(maker)
    for value in values:
        yield from _stands_for(objects, value, maker, given, depth)
    if not values:
        yield Decorator("", given)
