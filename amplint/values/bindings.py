"""From a name back to what its bindings leave in it: scopes, branches, loops, `global`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from amplint.code.dataflow import (
    ELSEWHERE,
    Binding,
    bindings_of,
    parameters,
    rebinders,
    rebindings,
    scopes,
)
from amplint.code.expressions import last_name, path_text
from amplint.code.layout import layout_of
from amplint.code.module import Function
from amplint.values.conditions import conditions_at, firmness_of_statement, weaker
from amplint.values.parameters import back_of_parameter
from amplint.values.provenance import (
    Activation,
    Back,
    Before,
    Condition,
    Firmness,
    Part,
    merged,
    weakened,
)

if TYPE_CHECKING:
    from amplint.values.origins import Origins

_IMPORTS = (ast.Import, ast.ImportFrom)
#: Statements that leave something of what was bound before.
_LEAVING = (ast.AugAssign, *ELSEWHERE)


def back_of_name(
    origins: Origins, name: ast.Name, function: Function, activation: Activation | None
) -> Back | None:
    """What a name may hold where it is used; None for functions, classes and unknown names."""
    if origins.objects.symbol(name, function) is not None:
        return None
    module = function.module
    for scope in scopes(function, module):
        inner = activation if activation is not None and activation.callee is scope else None
        found = bindings_of(scope).get(name.id, [])
        if found and all(isinstance(item.statement, _IMPORTS) for item in found):
            break
        if any(isinstance(item.statement, ELSEWHERE) for item in found):
            continue
        use = name if scope is function else None
        if name.id in parameters(scope):
            bound, rest = bound_in_scope(origins, found, use, scope, inner, name.id)
            if rest is not None:
                passed = back_of_parameter(origins, scope, name.id, inner)
                bound = merged(bound, weakened(passed, rest))
            return _with_rebound(origins, bound, scope, name.id)
        if found:
            bound, _ = bound_in_scope(origins, found, use, scope, inner, name.id)
            return _with_rebound(origins, bound, scope, name.id)
    bindings = origins.objects.bindings(name, function)
    if not bindings:
        return None
    bound, _ = bound_in_scope(origins, bindings, None, bindings[0].function, None, name.id)
    return bound


def _with_rebound(origins: Origins, bound: Back, scope: Function, name: str) -> Back:
    """What a scope leaves in a name, and what other functions may put there at any time."""
    for other in rebinders(scope).get(name, ()):
        more, _ = bound_in_scope(origins, rebindings(other, name), None, other, None, name)
        bound = merged(bound, weakened(more, Firmness.CHOICE))
    return bound


def bound_in_scope(
    origins: Origins,
    bindings: Sequence[Binding],
    use: ast.AST | None,
    scope: Function,
    activation: Activation | None,
    name: str,
) -> tuple[Back, Firmness | None]:
    """What bindings in one scope leave in a name, the last one first.

    Returns:
        The predecessors, and how firmly none of the bindings has run (None: one has).
    """
    first, *carried = origins.reaching(bindings, use, scope)
    back, rest = _left_by(origins, first, use, activation, name)
    for later in carried:
        back = merged(back, _left_by(origins, later, use, activation, name)[0])
    return back, rest


def _left_by(
    origins: Origins,
    bindings: Sequence[Binding],
    use: ast.AST | None,
    activation: Activation | None,
    name: str,
) -> tuple[Back, Firmness | None]:
    """The same for bindings that run one after the other."""
    places: list[Before] = []
    complete = True
    rest: Firmness | None = Firmness.FIXED
    passed_by: list[Condition] = []  # what has to fail for later bindings to leave a value alone
    for binding in reversed(bindings):
        holds, fails = firmness_of_statement(
            origins, binding.statement, use, binding.function, activation
        )
        if holds is None or rest is None:
            continue
        before = _before(origins, binding, name, activation)
        if before is None:
            complete = False
        else:
            firmness = min(before.firmness, rest, holds)
            conditions = conditions_at(binding.statement, binding.function, use)
            places.append(before.under(firmness, (*conditions, *passed_by)))
            if len(conditions) == 1:
                passed_by.append(replace(conditions[0], side=not conditions[0].side))
        rest = weaker(rest, fails)
        if rest is None:
            break
    return Back(tuple(places), complete), rest


def reaching(
    bindings: Sequence[Binding], use: ast.AST | None, scope: Function
) -> list[Sequence[Binding]]:
    """The bindings that may have run when a name is used, the nearest ones last.

    Returns:
        Those before the use, and those that an earlier round of a loop has left if there are any.
    """
    layout = layout_of(scope)
    if use is None or use not in layout:
        return [bindings]
    loops = layout.loops(use)
    renewing = _renewing(bindings, use, scope)
    earlier: list[Binding] = []
    later: list[Binding] = []  # in an earlier round of a loop
    for item in bindings:
        place = item.statement
        if place not in layout:
            earlier.append(item)
            continue
        if layout.holds(place, use) and not isinstance(place, (ast.For, ast.AsyncFor)):
            continue
        around = set(layout.loops(place))
        comes_before = layout.before(place, use) or layout.holds(place, use)
        if comes_before and not layout.exclusive(place, use):
            if renewing is None or not layout.before(place, renewing):
                earlier.append(item)
            continue
        shared = next((loop for loop in loops if loop in around), None)
        if shared is not None and (renewing is None or not layout.holds(shared, renewing)):
            later.append(item)
    return [earlier, later] if later else [earlier]


def _renewing(bindings: Sequence[Binding], use: ast.AST, scope: Function) -> ast.stmt | None:
    """The nearest statement before a use that binds anew, whatever was bound before."""
    layout = layout_of(scope)
    anew = {
        item.statement
        for item in bindings
        if item.statement in layout and not isinstance(item.statement, _LEAVING)
    }
    return layout.surely_before(anew, use) if anew else None


def _before(
    origins: Origins, binding: Binding, name: str, activation: Activation | None
) -> Before | None:
    """The expression that a binding takes its value from; None where that is no expression."""
    where = binding.function
    if binding.value is not None:
        return Before(binding.value, where, activation)
    statement = binding.statement
    if isinstance(statement, ast.withitem) and statement.optional_vars is not None:
        return _unpacked(
            origins, statement.context_expr, statement.optional_vars, name, where, activation
        )
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        return _looped(origins, statement, name, where, activation)
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            found = _unpacked(origins, statement.value, target, name, where, activation)
            if found is not None:
                return found
    return None


def _unpacked(
    origins: Origins,
    value: ast.expr,
    target: ast.expr,
    name: str,
    function: Function,
    activation: Activation | None,
) -> Before | None:
    """What a name gets out of a value that is taken apart."""
    place = _place(target, name)
    if place is None:
        return None
    for index in place[:-1]:
        value = origins.item_of(value, index)
    part = Part(place[-1], True) if place else None
    return Before(value, function, activation, part=part)


def _looped(
    origins: Origins,
    loop: ast.For | ast.AsyncFor,
    name: str,
    function: Function,
    activation: Activation | None,
) -> Before | None:
    """What a loop puts into a name: an element of what it runs over, or a part of one."""
    place = _place(loop.target, name)
    if place is None:
        return None
    iterable, place = _iterated(loop.iter, place)
    if iterable is None:
        return None
    if not place:
        return Before(iterable, function, activation, part=Part(..., True))
    element = origins.item_of(iterable, ...)
    for index in place[:-1]:
        element = origins.item_of(element, index)
    return Before(element, function, activation, part=Part(place[-1], True))


def container_of(loop: ast.For | ast.AsyncFor | ast.comprehension, name: str) -> ast.expr | None:
    """The container whose elements a loop binds a name to; None where they are none, or parts."""
    place = _place(loop.target, name)
    if place is None:
        return None
    iterable, inside = _iterated(loop.iter, place)
    return None if inside else iterable


#: Callables that give the elements of their first argument, perhaps in another order.
_SAME_ELEMENTS = frozenset(("reversed", "sorted", "list", "tuple", "iter", "set", "tqdm", "track"))


def _iterated(
    iterable: ast.expr, place: tuple[int, ...]
) -> tuple[ast.expr | None, tuple[int, ...]]:
    """The container whose elements a loop gives at a place of its target, and the place in them.

    None if they are no elements of a container: counts, keys.
    """
    if not isinstance(iterable, ast.Call):
        return iterable, place
    name = last_name(iterable.func)
    if name in _SAME_ELEMENTS and iterable.args:
        return _iterated(iterable.args[0], place)
    if name == "enumerate" and iterable.args and place:
        return _iterated(iterable.args[0], place[1:]) if place[0] == 1 else (None, ())
    if name == "zip" and place and place[0] < len(iterable.args):
        if any(isinstance(item, ast.Starred) for item in iterable.args):
            return None, ()
        return _iterated(iterable.args[place[0]], place[1:])
    if isinstance(iterable.func, ast.Attribute) and not iterable.args:
        if name == "values":
            return iterable.func.value, place
        if name == "items" and place:
            return (iterable.func.value, place[1:]) if place[0] == 1 else (None, ())
        if name == "keys":
            return None, ()
    return iterable, place


def _place(target: ast.expr, name: str) -> tuple[int, ...] | None:
    """Where a name stands among the targets of an unpacking; () if it is the target itself."""
    if path_text(target) == name:
        return ()
    if not isinstance(target, (ast.Tuple, ast.List)):
        return None
    behind_star = 0
    for index, item in enumerate(target.elts):
        if isinstance(item, ast.Starred):
            behind_star = len(target.elts)
            continue
        below = _place(item, name)
        if below is not None:
            return (index - behind_star, *below)
    return None
