"""What a program accepts, read from where it refuses something.

`else: raise ValueError(f"unknown model {name}")` ends a run whose option has no choices. The tests
around that `raise` say what the code knows, and its callers what the name is an option of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function, Module
from amplint.values.conditions import conditions_at, parts_that_hold
from amplint.values.origins import Origins
from amplint.values.provenance import Condition

#: Inputs that are tried for one refusal.
_MOST = 6
#: Methods that give a text of the same meaning.
_SPELLINGS = frozenset({"lower", "upper", "strip", "casefold"})
#: Operator -> on which side of the test its operands are equal.
_EQUAL: dict[type[ast.cmpop], bool] = {
    ast.Eq: True,
    ast.In: True,
    ast.NotEq: False,
    ast.NotIn: False,
}


def ways_around(module: Module, row: int, origins: Origins) -> list[dict[str, Any]]:
    """Inputs under which a `raise` or an `assert` is not what ends a run, the likeliest first.

    Args:
        row: of the statement; nothing is known of any other one.
    """
    found: list[dict[str, Any]] = []
    for function in module.functions:
        for node in layout_of(function).nodes:
            if isinstance(node, (ast.Raise, ast.Assert)) and node.lineno == row:
                found += _around(node, function, origins)
    return found[:_MOST]


def _around(
    node: ast.Raise | ast.Assert, function: Function, origins: Origins
) -> Iterator[dict[str, Any]]:
    conditions = list(conditions_at(node, function))
    if isinstance(node, ast.Assert):
        conditions.insert(0, Condition(node.test, False, function))
    for condition in conditions:
        for part in parts_that_hold(condition):
            for place, value in _accepted(part, origins):
                for path in _paths(place, function, origins):
                    yield {path: value}


def _accepted(condition: Condition, origins: Origins) -> Iterator[tuple[ast.expr, Any]]:
    """What a comparison of something with constants has to find so that it comes out otherwise."""
    test = condition.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return
    if _EQUAL.get(type(test.ops[0])) is not (not condition.side):
        return
    for place, known in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        for value in _constants(known, condition.function, origins):
            yield place, value


def _constants(
    expression: ast.expr, function: Function, origins: Origins
) -> Iterator[str | int | float]:
    """The constants that something is, or holds."""
    for origin in origins.of(expression, function).origins:
        made = origin.expression
        if isinstance(made, (ast.Tuple, ast.List, ast.Set)):
            parts: list[ast.expr] = made.elts
        else:
            parts = [key for key in made.keys if key] if isinstance(made, ast.Dict) else [made]
        for part in parts:
            value = part.value if isinstance(part, ast.Constant) else None
            if isinstance(value, (str, int, float)) and not isinstance(value, bool):
                yield value


def _paths(place: ast.expr, function: Function, origins: Origins) -> Iterator[str]:
    """The attributes that a value is read from, here or where callers pass it."""
    while isinstance(place, ast.Call) and isinstance(place.func, ast.Attribute):
        if place.func.attr not in _SPELLINGS:
            return
        place = place.func.value
    aliases = [place, *(item.expression for item in origins.aliases(place, function))]
    paths = (path_text(item) for item in aliases if isinstance(item, ast.Attribute))
    yield from dict.fromkeys(path for path in paths if path is not None)
