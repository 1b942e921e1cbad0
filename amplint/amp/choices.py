"""Can somebody choose the options so that some tests come out as asked, all together?

`Assumptions` says what follows from tests that came out; here a way is looked for in which they
come out so: `fp16 or bf16` holds and `scaler is None`, which is where `fp16` was not chosen: with
`bf16` alone. Every part has to be in sight, and two parts that share some of what they come from,
and not all of it, show nothing. So an answer is proved, and None says only that nothing was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import product

from amplint.amp import names
from amplint.code.definitions import class_fields
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, walk
from amplint.code.records import is_record
from amplint.values.assumptions import Assumptions, definition_of, source_of, without_bool
from amplint.values.conditions import conditions_at
from amplint.values.provenance import Condition, Firmness, Origin
from amplint.values.values import Values

_DEPTH = 4
#: A test that comes out in more ways is not asked.
_WAYS = 32
#: Calls that end a program: of a parser, of `sys`.
_ENDS = frozenset(("error", "exit", "abort"))
_TESTS = (ast.BoolOp, ast.Compare, ast.UnaryOp)

#: Tests that come out together, in their smallest parts.
Way = tuple[Condition, ...]


def choice_of(values: Values, conditions: Iterable[Condition]) -> Way | None:
    """The parts of some conditions, as they have to come out; None where no choice is in sight.

    Of several ways the one with the fewest parts that are not as they are by default.
    """
    ways = _all(values, tuple(conditions), _DEPTH)
    found = [way for way in ways if _is_possible(values, way) and not _is_refused(values, way)]
    return min(found, key=lambda way: _distance(values, way), default=None)


def _distance(values: Values, way: Way) -> tuple[int, int]:
    chosen = [item for item in way if _firmness(values, item) is Firmness.CHOICE]
    return len(chosen), len(way)


def _firmness(values: Values, part: Condition) -> Firmness | None:
    """How firmly a part comes out as asked; None where nothing in sight says that it can.

    What a call gives is nothing that is chosen: it may ask the machine, which decides about
    autocast as well.
    """
    compared = part.test.comparators if isinstance(part.test, ast.Compare) else ()
    asked = (_subject(part.test), *compared)
    if any(isinstance(node, ast.Call) for node in walk(part.test)):
        return None
    default = _default_of_field(values, part.test, part.function)
    if default is not None:
        return Firmness.DEFAULT if default is part.side else Firmness.CHOICE
    if not all(values.of(each, part.function).complete for each in asked):
        return None
    possible = values.of(part.test, part.function)
    held = [value.firmness for value in possible.values if bool(value.content) is part.side]
    return max(held, default=None) if possible.complete else None


# -- the ways in which tests come out ----------------------------------------------------------


def _all(values: Values, conditions: tuple[Condition, ...], depth: int) -> list[Way]:
    """The ways in which all conditions come out as asked."""
    found: list[Way] = [()]
    for condition in conditions:
        found = [
            (*first, *second) for first, second in product(found, _ways(values, condition, depth))
        ]
        if len(found) > _WAYS:
            return []
    return found


def _ways(values: Values, condition: Condition, depth: int) -> list[Way]:
    """The ways in which one condition comes out as asked; none where that is not in sight."""
    side, function = condition.side, condition.function
    test = without_bool(condition.test, function)
    part = Condition(test, side, function)
    if not depth:
        return []
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _ways(values, Condition(test.operand, not side, function), depth)
    if isinstance(test, ast.BoolOp):
        parts = tuple(Condition(operand, side, function) for operand in test.values)
        if isinstance(test.op, ast.And) is side:
            return _all(values, parts, depth)
        return [way for part in parts for way in _ways(values, part, depth)]
    if _asks_for_none(test):
        assert isinstance(test, ast.Compare)
        is_none = side is isinstance(test.ops[0], ast.Is)
        return _by_origin(values, Condition(test.left, not is_none, function), depth)
    if isinstance(test, (ast.Name, ast.Attribute)):
        return _by_origin(values, part, depth)
    return [(part,)]


def _asks_for_none(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], (ast.Is, ast.IsNot))
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value is None
    )


def _by_origin(values: Values, condition: Condition, depth: int) -> list[Way]:
    """The ways in which a name has a value of one truth, by where its values come from."""
    definition = definition_of(condition.test, condition.function)
    if definition is not None and _is_test(definition, condition.function):
        return _ways(values, Condition(definition, condition.side, condition.function), depth - 1)
    if _default_of_field(values, condition.test, condition.function) is not None:
        return [(condition,)]
    found = values.origins.of(condition.test, condition.function)
    if not found.complete or not found.origins:
        return []
    first = found.origins[0]
    if _is_test(first.expression, first.function):
        if len(found.origins) > 1 or first.conditions or first.activation is not None:
            return []
        return _ways(values, Condition(first.expression, condition.side, first.function), depth - 1)
    truths = [_truth(values, origin) for origin in found.origins]
    if None in truths:
        return []
    if not any(origin.conditions for origin in found.origins):
        return [(condition,)]  # an option, or what it was copied from
    plain = {truth for origin, truth in zip(found.origins, truths) if not origin.conditions}
    if len(plain) > 1:
        return []  # an option that a test sets anew
    fitting = [item for item, truth in zip(found.origins, truths) if truth is condition.side]
    others = [item for item, truth in zip(found.origins, truths) if truth is not condition.side]
    return [
        way
        for origin in fitting
        for way in _all(values, (*origin.conditions, *_opposites(others)), depth - 1)
    ]


def _is_test(node: ast.expr, function: Function) -> bool:
    """Whether an expression is made of tests, or asks of something no more than whether it is true."""
    return isinstance(node, _TESTS) or (
        isinstance(node, ast.Call) and without_bool(node, function) is not node
    )


def _default_of_field(values: Values, test: ast.expr, function: Function) -> bool | None:
    """The default of a bool field of a dataclass that somebody out of sight fills; None for others."""
    found = values.origins.of(test, function)
    if found.complete or len(found.origins) != 1 or not isinstance(test, ast.Attribute):
        return None
    (origin,) = found.origins
    default = origin.expression
    if not isinstance(default, ast.Constant) or not isinstance(default.value, bool):
        return None
    fields = (
        binding
        for owner in origin.function.module.classes.values()
        if is_record(owner)
        for binding in class_fields(owner).get(test.attr, ())
    )
    return default.value if any(item.value is default for item in fields) else None


def _opposites(origins: Iterable[Origin]) -> Iterator[Condition]:
    """That a value does not come from other origins: their tests came out on the other side."""
    for origin in origins:
        for item in origin.conditions[:1]:
            yield Condition(item.test, not item.side, item.function)


def _truth(values: Values, origin: Origin) -> bool | None:
    """Whether what an origin creates is true, and not None; None where that is not in sight."""
    made = origin.expression
    if isinstance(made, ast.Constant):
        return bool(made.value)
    if not isinstance(made, ast.Call):
        return None
    is_scaler = origin.function.module.resolve(made.func) in names.GRAD_SCALERS
    is_object = isinstance(values.origins.objects.symbol(made.func, origin.function), Class)
    return True if is_scaler or is_object else None


# -- whether the parts of a way agree ----------------------------------------------------------


def _is_possible(values: Values, way: Way) -> bool:
    """Whether each part can come out as asked, and the parts allow each other."""
    if any(_firmness(values, part) is None for part in way):
        return False
    if not all(_are_apart(values, *pair) for pair in product(way, way)):
        return False
    if _is_of_several_calls(values, way):
        return False
    return Assumptions.of(values, way, exact=True).holds(way) is not False


def _is_refused(values: Values, way: Way) -> bool:
    """Whether a program that is told so stops: `if args.bf16 and not args.fp16: parser.error(...)`.

    Asked of the files that read the parts, and of those that declare the options.
    """
    facts = Assumptions.of(values, way, exact=True)
    modules = {part.function.module for part in way}
    for part in way:
        found = values.origins.of(_subject(part.test), part.function).origins
        modules.update(item.function.module for item in found)
    return any(
        all(_comes_out(values, facts, test) for test in stop)
        for module in modules
        for function in module.functions
        for stop in function.once(_stops)
    )


def _comes_out(values: Values, facts: Assumptions, condition: Condition) -> bool:
    """Whether a test comes out so under some facts, and as options stand by default beside them."""
    known = facts.holds((condition,))
    if known is not None:
        return known
    side = values.truth(condition.test, condition.function).get(condition.side)
    return side is not None and side > Firmness.CHOICE


def _stops(function: Function) -> tuple[Way, ...]:
    """The tests that lead to each end of the program in a function, where there are any."""
    found = [
        (*conditions_at(node, function), *_fails(node, function))
        for node in function.nodes
        if isinstance(node, (ast.Assert, ast.Raise))
        or (isinstance(node, ast.Call) and last_name(node.func) in _ENDS)
    ]
    return tuple(way for way in found if way)


def _fails(node: ast.AST, function: Function) -> Way:
    return (Condition(node.test, False, function),) if isinstance(node, ast.Assert) else ()


def _are_apart(values: Values, first: Condition, second: Condition) -> bool:
    """Whether two parts ask the same place, or places that share nothing."""
    ours, theirs = _sources(values, first), _sources(values, second)
    return ours == theirs or ours.isdisjoint(theirs)


def _sources(values: Values, part: Condition) -> set[object]:
    """What creates the values of what a part asks, under whatever tests."""
    found = values.origins.of(_subject(part.test), part.function).origins
    return {source_of(item.expression, item.function) for item in found}


def _is_of_several_calls(values: Values, way: Way) -> bool:
    """Whether two places have values by several calls of one function, so by which is not known."""
    places = {ast.unparse(part.test): part for part in way}
    if len(places) < 2:
        return False
    calls: dict[object, set[ast.AST]] = {}
    for part in places.values():
        for origin in values.origins.of(_subject(part.test), part.function).origins:
            for step in origin.steps:
                entered = step.to or step.into
                if entered is not None:
                    calls.setdefault(entered, set()).add(step.node)
    return any(len(nodes) > 1 for nodes in calls.values())


def _subject(test: ast.expr) -> ast.expr:
    """What a test asks: the left side of a comparison."""
    return test.left if isinstance(test, ast.Compare) else test
