"""Which modules' parameters an expression yields: lists, groups, loops, generators, what is put in.

`[p for net in (body, head) for p in net.parameters()]`, `params += list(head.parameters())` in a
loop and a generator that does `yield from net.parameters()` yield the same parameters as
`body.parameters()` and `head.parameters()`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from amplint.amp.names import PARAMETERS
from amplint.amp.parameter_loops import Turn, entries_of, tests_inside, turn_of
from amplint.amp.view import AmpView
from amplint.code.dataflow import constant_of, fills_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import walk
from amplint.values.bindings import container_of
from amplint.values.conditions import conditions_at
from amplint.values.provenance import CALL_DEPTH, Activation, Condition, Origin

_DEPTH = 8
#: Calls that hand on what they are given.
_PASS_ON = frozenset(("list", "tuple", "chain", "sorted", "iter", "from_iterable", "filter", "sum"))
#: A comprehension or filter with one of these words takes only some parameters.
_SELECTS = re.compile(r"requires_grad|lora|adapter|trainable|startswith|\bin\b.*\bname|name")
_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


class Taken(IntEnum):
    """How many of a module's parameters are taken; the more tests there are, the fewer."""

    ALL = 0
    #: Those that ask for a gradient, which are all that an optimizer can change.
    TRAINABLE = 1
    SOME = 2


@dataclass(frozen=True, slots=True, eq=False)
class Yielded:
    """Parameters of a module among those that an expression yields.

    Args:
        module: the expression before `.parameters()`, where it is evaluated.
        taken: how many of its parameters.
        kept: the containers that the module is an element of, under all names that they have.
    """

    module: Origin
    taken: Taken
    kept: tuple[Origin, ...] = ()


def parameters_in(
    view: AmpView, place: Origin, taken: Taken = Taken.ALL, depth: int = 0
) -> Iterator[Yielded]:
    """The modules whose parameters, or some of them, are in what an expression yields.

    Args:
        place: the expression; it may hold groups of parameters, too.
    """
    node = place.expression
    if depth > _DEPTH:
        return
    if isinstance(node, ast.Call) and lists_parameters(node):
        assert isinstance(node.func, ast.Attribute)
        for found in _modules(view, _moved(place, node.func.value)):
            yield replace(found, taken=max(taken, found.taken))
        return
    for inner, some in (*_inside(place), *_around(place)):
        yield from parameters_in(view, inner, max(taken, some), depth + 1)
    if isinstance(node, _PLACES) or _is_project_call(view, place):
        for inner, some in _behind(view, place):
            yield from parameters_in(view, inner, max(taken, some), depth + 1)


def lists_parameters(node: ast.expr) -> bool:
    """Whether an expression is `module.parameters()`, or the same with their names."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in PARAMETERS
    )


def _moved(place: Origin, expression: ast.expr) -> Origin:
    """Another expression that the same run of a function evaluates."""
    return place.at(expression, place.function, place.activation)


def _modules(view: AmpView, place: Origin) -> Iterator[Yielded]:
    """The modules that an expression stands for in the rounds of a loop; else itself."""
    turn = turn_of(place.expression, place.function)
    if turn is None:
        yield Yielded(place, Taken.ALL)
        return
    some = _leaves_out(turn, place)
    container = _container(place.expression, turn)
    elements = _elements(view, place, container) if container is not None else []
    names = (
        tuple(view.values.origins.aliases(container, place.function, place.activation))
        if elements and container is not None
        else ()
    )
    for element in elements:
        module = element.then(place.firmness, place.steps, place.conditions)
        yield Yielded(module, some, names)
    if not elements and isinstance(turn.loop, ast.stmt):
        yield Yielded(place, some)


def _elements(view: AmpView, place: Origin, container: ast.expr) -> list[Origin]:
    """What a loop variable stands for, where displays in sight list all of it."""
    found = view.values.origins.of(container, place.function, place.activation)
    listed = [(item, entries_of(item.expression)) for item in found.origins]
    if not found.complete or any(entries is None for _, entries in listed):
        return []
    return [
        item.at(entry, item.function, item.activation)
        for item, entries in listed
        for entry in entries or ()
    ]


def _container(variable: ast.expr, turn: Turn) -> ast.expr | None:
    """The container whose elements a loop variable is."""
    if lists_parameters(turn.part.iter):
        return turn.part.iter
    return container_of(turn.part, path_text(variable) or "")


def _leaves_out(turn: Turn, place: Origin) -> Taken:
    """For how many of its elements a loop comes to a place."""
    if isinstance(turn.part, ast.comprehension):
        return _passing(test for test in turn.part.ifs if _SELECTS.search(ast.unparse(test)))
    if any(isinstance(node, ast.Break) for node in walk(turn.loop)):
        return Taken.SOME
    return _under(tests_inside(place.expression, turn, place.function))


def _passing(tests: Iterable[ast.expr]) -> Taken:
    """For how many parameters all of some tests hold."""
    return max(map(_let_through, tests), default=Taken.ALL)


def _under(conditions: Iterable[Condition]) -> Taken:
    """For how many parameters a run comes to what stands under some conditions."""
    return max((_let_through(item.test, item.side) for item in conditions), default=Taken.ALL)


def _let_through(test: ast.expr, side: bool = True) -> Taken:
    """For how many parameters a test goes one way: `parameter.requires_grad` says which train."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _let_through(test.operand, not side)
    asks = isinstance(test, ast.Attribute) and test.attr == "requires_grad"
    return Taken.TRAINABLE if asks and side else Taken.SOME


def _around(place: Origin) -> Iterator[tuple[Origin, Taken]]:
    """What a loop goes over whose variable an expression is: it takes all elements in turn."""
    turn = turn_of(place.expression, place.function)
    container = None if turn is None else _container(place.expression, turn)
    if turn is not None and container is not None:
        yield _moved(place, container), _leaves_out(turn, place)


def _is_project_call(view: AmpView, place: Origin) -> bool:
    node = place.expression
    if not isinstance(node, ast.Call) or last_name(node.func) in _PASS_ON:
        return False
    return view.objects.callee(node, place.function) is not None


def _inside(place: Origin) -> Iterator[tuple[Origin, Taken]]:
    """The parts that parameters come from, each with how many of them it takes."""
    for part, some in _parts(place.expression):
        yield _moved(place, part), some


def _parts(node: ast.expr) -> Iterator[tuple[ast.expr, Taken]]:
    if isinstance(node, ast.Call) and last_name(node.func) in _PASS_ON:
        is_filter = last_name(node.func) == "filter"
        given = node.args[1:] if is_filter else node.args
        some = _passing([_tested_by(item) for item in node.args[:1]] if is_filter else ())
        yield from ((item, some) for item in given)
    elif isinstance(node, (ast.List, ast.Tuple)):
        yield from ((item, Taken.ALL) for item in node.elts)
    elif isinstance(node, ast.Starred):
        yield node.value, Taken.ALL
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if constant_of(key) == "params":
                yield value, Taken.ALL
    elif isinstance(node, ast.Call) and last_name(node.func) == "dict":
        yield from ((item.value, Taken.ALL) for item in node.keywords if item.arg == "params")
    elif isinstance(node, ast.BinOp):
        yield node.left, Taken.ALL
        yield node.right, Taken.ALL
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield from _of_comprehension(node)


def _tested_by(predicate: ast.expr) -> ast.expr:
    """What the function tests that a `filter` is given: the body of a lambda."""
    return predicate.body if isinstance(predicate, ast.Lambda) else predicate


def _of_comprehension(node: ast.ListComp | ast.GeneratorExp) -> Iterator[tuple[ast.expr, Taken]]:
    element = node.elt
    if isinstance(element, ast.Call) and not any(_parts(element)) and not lists_parameters(element):
        return  # `item.clone().float()`: copies, which nobody has cast
    tests = (test for part in node.generators for test in part.ifs)
    yield element, _passing(test for test in tests if _SELECTS.search(ast.unparse(test)))


def _behind(view: AmpView, place: Origin) -> Iterator[tuple[Origin, Taken]]:
    """What a name or a call stands for, and what is put into it before it is used."""
    node = place.expression
    for item in view.values.origins.aliases(node, place.function, place.activation):
        seen = item.then(place.firmness, place.steps, place.conditions)
        if isinstance(item.expression, _PLACES):
            yield from _put_in(seen)
            if item.expression is not node:
                yield from _around(seen)
        elif _is_project_call(view, item):
            yield from _yielded(view, seen)
        elif item.expression is not node:
            yield seen, Taken.ALL


def _put_in(place: Origin) -> Iterator[tuple[Origin, Taken]]:
    """What `params += ...`, `params.append(...)` and their like put into a container before its use."""
    layout, path = layout_of(place.function), path_text(place.expression)
    if path is None or place.expression not in layout:
        return
    for fill in fills_of(place.function).get(path, ()):
        if fill.value in layout and layout.reaches(fill.value, place.expression):
            yield _unless_tested(place, fill.value, place.expression)


def _yielded(view: AmpView, place: Origin) -> Iterator[tuple[Origin, Taken]]:
    """What the generator yields that a call makes."""
    call = place.expression
    assert isinstance(call, ast.Call)
    callee = view.objects.callee(call, place.function)
    if callee is None or (place.activation is not None and place.activation.depth >= CALL_DEPTH):
        return
    inside = Activation(callee, call, place.function, place.activation)
    for node in callee.nodes:
        if isinstance(node, (ast.Yield, ast.YieldFrom)) and node.value is not None:
            yield _unless_tested(place.at(node, callee, inside), node.value)


def _unless_tested(
    place: Origin, value: ast.expr, use: ast.expr | None = None
) -> tuple[Origin, Taken]:
    """A value, and for how many parameters the tests before it let a run come there."""
    return _moved(place, value), _under(conditions_at(value, place.function, use))
