"""Which modules' parameters an expression yields: lists, groups, loops, generators, what is put in.

`[p for net in (body, head) for p in net.parameters()]`, `params += list(head.parameters())` in a
loop and a generator that does `yield from net.parameters()` yield the same parameters as
`body.parameters()` and `head.parameters()`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.amp.names import PARAMETERS
from amplint.amp.parameter_loops import Turn, entries_of, tests_inside, turn_of
from amplint.amp.view import AmpView
from amplint.code.dataflow import constant_of, fills_of
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import walk
from amplint.values.bindings import container_of
from amplint.values.conditions import conditions_at
from amplint.values.provenance import CALL_DEPTH, Activation, Origin

_DEPTH = 8
#: Calls that hand on what they are given.
_PASS_ON = frozenset(("list", "tuple", "chain", "sorted", "iter", "from_iterable", "filter", "sum"))
#: A comprehension or filter with one of these words takes only some parameters.
_SELECTS = re.compile(r"requires_grad|lora|adapter|trainable|startswith|\bin\b.*\bname|name")
_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


@dataclass(frozen=True, slots=True, eq=False)
class Yielded:
    """Parameters of a module among those that an expression yields.

    Args:
        module: the expression before `.parameters()`, where it is evaluated.
        selected: whether only some of its parameters are taken.
    """

    module: Origin
    selected: bool


def parameters_in(
    view: AmpView, place: Origin, selected: bool = False, depth: int = 0
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
        for module, some in _modules(view, _moved(place, node.func.value)):
            yield Yielded(module, selected or some)
        return
    for inner, some in (*_inside(place), *_around(place)):
        yield from parameters_in(view, inner, selected or some, depth + 1)
    if isinstance(node, _PLACES) or _is_project_call(view, place):
        for inner, some in _behind(view, place):
            yield from parameters_in(view, inner, selected or some, depth + 1)


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


def _modules(view: AmpView, place: Origin) -> Iterator[tuple[Origin, bool]]:
    """The modules that an expression stands for in the rounds of a loop; else itself."""
    turn = turn_of(place.expression, place.function)
    if turn is None:
        yield place, False
        return
    some = _leaves_out(turn, place)
    elements = _elements(view, place, turn)
    for element in elements:
        yield element.then(place.firmness, place.steps, place.conditions), some
    if not elements and isinstance(turn.loop, ast.stmt):
        yield place, some


def _elements(view: AmpView, place: Origin, turn: Turn) -> list[Origin]:
    """What a loop variable stands for, where displays in sight list all of it."""
    container = _container(place.expression, turn)
    if container is None:
        return []
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


def _leaves_out(turn: Turn, place: Origin) -> bool:
    """Whether a loop may come to a place for some of its elements only."""
    if isinstance(turn.part, ast.comprehension):
        return any(_SELECTS.search(ast.unparse(test)) for test in turn.part.ifs)
    ends = any(isinstance(node, ast.Break) for node in walk(turn.loop))
    return ends or bool(tests_inside(place.expression, turn, place.function))


def _around(place: Origin) -> Iterator[tuple[Origin, bool]]:
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


def _inside(place: Origin) -> Iterator[tuple[Origin, bool]]:
    """The parts that parameters come from, each with whether it takes only some of them."""
    for part, some in _parts(place.expression):
        yield _moved(place, part), some


def _parts(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    if isinstance(node, ast.Call) and last_name(node.func) in _PASS_ON:
        is_filter = last_name(node.func) == "filter"
        given = node.args[1:] if is_filter else node.args
        yield from ((item, is_filter) for item in given)
    elif isinstance(node, (ast.List, ast.Tuple)):
        yield from ((item, False) for item in node.elts)
    elif isinstance(node, ast.Starred):
        yield node.value, False
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if constant_of(key) == "params":
                yield value, False
    elif isinstance(node, ast.Call) and last_name(node.func) == "dict":
        yield from ((item.value, False) for item in node.keywords if item.arg == "params")
    elif isinstance(node, ast.BinOp):
        yield node.left, False
        yield node.right, False
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield from _of_comprehension(node)


def _of_comprehension(node: ast.ListComp | ast.GeneratorExp) -> Iterator[tuple[ast.expr, bool]]:
    element = node.elt
    if isinstance(element, ast.Call) and not any(_parts(element)) and not lists_parameters(element):
        return  # `item.clone().float()`: copies, which nobody has cast
    tests = " ".join(ast.unparse(test) for part in node.generators for test in part.ifs)
    yield element, bool(tests and _SELECTS.search(tests))


def _behind(view: AmpView, place: Origin) -> Iterator[tuple[Origin, bool]]:
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
            yield seen, False


def _put_in(place: Origin) -> Iterator[tuple[Origin, bool]]:
    """What `params += ...`, `params.append(...)` and their like put into a container before its use."""
    layout, path = layout_of(place.function), path_text(place.expression)
    if path is None or place.expression not in layout:
        return
    for fill in fills_of(place.function).get(path, ()):
        if fill.value in layout and layout.reaches(fill.value, place.expression):
            yield _unless_tested(place, fill.value, place.expression)


def _yielded(view: AmpView, place: Origin) -> Iterator[tuple[Origin, bool]]:
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
) -> tuple[Origin, bool]:
    """A value, and whether a test before it decides for which parameters a run comes there."""
    return _moved(place, value), bool(conditions_at(value, place.function, use))
