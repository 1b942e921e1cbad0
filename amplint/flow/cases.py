"""Constants that a key chooses: `{"fp16": torch.float16, ...}[name]`, `getattr(torch, name)`.

What is chosen stays one value, with the condition under which it is each constant: no path has to
split for it, and a test of it is a test of the key.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.dtypes import FLOATING_NAMES, DType, torch_dtype
from amplint.code.module import Function
from amplint.flow.conditions import Formula, conjoin, disjoin, evaluate, negate
from amplint.flow.program import Program
from amplint.flow.state import State
from amplint.flow.values import NONE, Value, is_truthy, kind_of
from amplint.values.displays import fixed_display

#: A condition, and what is chosen where it holds.
Case = tuple[Formula, Value]

#: A table with more entries is not taken apart.
ENTRIES = 6


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is read with a key that is no constant.

    Args:
        key: the key.
        entries: key -> what stands there.
        home: the function, or the body of a module, in which the entries are written.
        default: what any other key gives; None if it raises.
    """

    key: ast.expr
    entries: tuple[tuple[ast.Constant, ast.expr], ...]
    home: Function
    default: ast.expr | None = None


def table_read(node: ast.expr, function: Function, program: Program) -> Table | None:
    """The table that `table[key]` or `table.get(key, default)` reads; None for other expressions."""
    key, whole, default = None, None, None
    if isinstance(node, ast.Subscript):
        key, whole = node.slice, node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr != "get" or node.keywords or not 1 <= len(node.args) <= 2:
            return None
        key, whole = node.args[0], node.func.value
        default = node.args[1] if len(node.args) == 2 else ast.Constant(None)
    if key is None or whole is None or isinstance(key, (ast.Constant, ast.Slice)):
        return None
    home = function
    if isinstance(whole, (ast.Name, ast.Attribute)):
        origin = fixed_display(program.objects.origins.of(whole, function))
        if origin is None:
            return None
        whole, home = origin.expression, origin.function
    if not isinstance(whole, ast.Dict) or not 0 < len(whole.keys) <= ENTRIES:
        return None
    entries = tuple(zip(whole.keys, whole.values, strict=True))
    if not all(isinstance(name, ast.Constant) for name, _ in entries):
        return None
    return Table(key, entries, home, default)  # type: ignore[arg-type]


def dtype_named(node: ast.expr, function: Function) -> ast.expr | None:
    """`name` of `getattr(torch, name)`; None for other expressions and for constants."""
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return None
    if not isinstance(node.func, ast.Name) or node.func.id != "getattr":
        return None
    is_torch = function.module.resolve(node.args[0]) == "torch"
    return node.args[1] if is_torch and not isinstance(node.args[1], ast.Constant) else None


def dtypes_by_name() -> Iterator[tuple[ast.Constant, Value]]:
    """What `getattr(torch, name)` gives for each name of a floating-point type."""
    for name in FLOATING_NAMES:
        yield ast.Constant(name), dtype_value(torch_dtype(name))


def dtype_value(dtype: DType | None) -> Value:
    """A dtype as a constant that is told apart by its name."""
    return None if dtype is None else ("const", f"<{dtype}>")


def cases(found: list[Case], state: State) -> Value:
    """What conditions, of which one holds, choose; None if one of them is not known.

    Args:
        found: the conditions, each with a constant.
    """
    if any(test is None or kind_of(value) not in ("const", "none") for test, value in found):
        return None
    for test, value in found:
        if evaluate(test, state) is True:
            return value
    left = tuple((test, value) for test, value in found if evaluate(test, state) is None)
    return ("cases", disjoin([test for test, _ in left]), left) if left else None


def with_default(found: list[Case], default: Value) -> list[Case]:
    """The same, and what any other key gives."""
    return [*found, (conjoin([negate(test) for test, _ in found]), default)]


def cases_under(held: Formula, value: Value) -> list[Case]:
    """What a value is where a condition holds as well: its own cases, or itself."""
    if kind_of(value) != "cases" or value is None:
        return [(held, value)]
    return [(conjoin([held, test]), item) for test, item in value[2]]


def is_case(value: Value, wanted: Value) -> Formula:
    """The condition under which a value with cases is a constant."""
    assert value is not None
    return disjoin([test for test, item in value[2] if item == wanted])


def is_some_case(value: Value) -> Formula:
    """The condition under which it is not None."""
    assert value is not None
    return disjoin([test for test, item in value[2] if item != NONE])


def is_true_case(value: Value) -> Formula:
    """The condition under which it is truthy; None where that of a constant is not known."""
    assert value is not None
    known = [(test, is_truthy(item)) for test, item in value[2]]
    if any(truth is None for _, truth in known):
        return None
    return disjoin([test for test, truth in known if truth])
