"""Where the value of an expression was created, across names, attributes, calls and files.

`Origins` goes back from an expression to the expressions that created its value: literals,
constructor calls, names that nothing is known about. It follows assignments that can reach
the place, parameters to what callers pass, fields of objects to their constructor call or
default, elements of literal containers, options of a command line, and data files. Each
origin says how it got there and whether somebody may choose otherwise.

It keeps the answers and ends circles. Each kind of step is a module of its own, of functions
that take the `Origins` they ask further: `bindings`, `parameters`, `calls`, `parts`, `fields`
and `external`. `amplint.values.values` turns origins into constants; rules about objects (which
model does this optimizer own?) ask for the origins themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from amplint.code.dataflow import Binding, constant_of
from amplint.code.expressions import is_none, last_name
from amplint.code.module import Function, Module, as_function
from amplint.code.undefined import is_in_a_branch, makes_nothing
from amplint.values.bindings import back_of_name, reaching
from amplint.values.calls import back_of_call
from amplint.values.conditions import equality
from amplint.values.kinds import same_object
from amplint.values.parts import part_of_origin, part_of_value
from amplint.values.provenance import (
    CALL_DEPTH,
    UNKNOWN,
    WIDTH,
    Activation,
    Back,
    Before,
    Condition,
    Firmness,
    Found,
    Keys,
    Origin,
    Part,
    Truth,
    joined,
)

if TYPE_CHECKING:
    from amplint.values.objects import Objects

Answer = TypeVar("Answer")
#: A question nested deeper is not answered.
_NESTING = 60
#: Nor is one that has led to more others: what only hundreds of places together can tell is
#: nothing that a finding may rest on. Who calls a function, and what a call runs, count among them.
_EFFORT = 700
#: No unfinished question was needed.
_NOWHERE = 1_000_000


class Origins:
    """Goes back from expressions to where their values were created.

    Args:
        objects: resolves names, classes and calls.
        truth: decides about conditions.
        keys: the constants that a subscript may be; None if none is known.
    """

    def __init__(
        self,
        objects: Objects,
        truth: Callable[[ast.expr, Function, Activation | None], Truth],
        keys: Callable[[ast.expr, Function, Activation | None], Keys | None],
    ) -> None:
        self.objects = objects
        self.truth = truth
        self.keys = keys
        self._known: dict[object, Any] = {}
        # Answers that rest on an unfinished question, with its depth, until that one is answered.
        self._provisional: dict[object, tuple[Any, int]] = {}
        self._resting: dict[int, list[object]] = {}
        self._pending: dict[object, int] = {}
        self._needed = _NOWHERE
        self._effort = 0
        self._lambdas: dict[ast.Lambda, Function] = {}
        self._made: dict[ast.expr, ast.expr] = {}
        self._items: dict[tuple[ast.expr, object], ast.expr] = {}
        self._backs: dict[tuple[ast.expr, Function, Activation | None], Back | None] = {}
        self._reaching: dict[object, list[Sequence[Binding]]] = {}

    def of(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> Found:
        """The origins of an expression where `function` evaluates it."""
        key = (expression, function, activation)
        return self.once(key, lambda: self._of(expression, function, activation), UNKNOWN)

    def part_of(
        self,
        expression: ast.expr,
        part: Part,
        function: Function,
        activation: Activation | None = None,
    ) -> Found:
        """The origins of an attribute or element of the value of an expression."""
        key = (expression, part, function, activation)
        return self.once(
            key, lambda: part_of_value(self, expression, part, function, activation), UNKNOWN
        )

    def aliases(
        self, expression: ast.expr, function: Function, activation: Activation | None = None
    ) -> list[Origin]:
        """The expression itself and every other one that its value passes through."""
        pending = [Origin(expression, function, activation)]
        found: list[Origin] = []
        seen: set[object] = set()
        while pending and len(found) < WIDTH * 4:
            current = pending.pop(0)
            here = (current.function, current.activation)
            if (current.expression, *here) in seen:
                continue
            seen.add((current.expression, *here))
            found.append(current)
            inner = (
                same_object(current.expression)
                if isinstance(current.expression, ast.Call)
                else None
            )
            if inner is not None:
                pending.append(current.then(Firmness.FIXED, ()).at(inner, *here))
                continue
            back = self._back_once(current.expression, *here)
            for place in back.places[:WIDTH] if back is not None else ():
                seen_from = current.then(place.firmness, place.steps, place.conditions)
                if place.part is None:
                    pending.append(seen_from.at(place.expression, place.function, place.activation))
                    continue
                for entry in self._entries(place):
                    near = seen_from.then(entry.firmness, entry.steps, entry.conditions)
                    pending.append(near.at(entry.expression, entry.function, entry.activation))
                pending += self._aliases_of_part(place, seen_from)
        return found

    def _entries(self, place: Before, depth: int = CALL_DEPTH) -> list[Before]:
        """Where a part stands in the displays that a value may come from: `model` of `model, loss`."""
        entry = _entry_of(place.expression, place.part)
        if entry is not None:
            return [replace(place, expression=entry, part=None, steps=(), conditions=())]
        if not depth or isinstance(place.expression, (ast.Tuple, ast.List, ast.Dict)):
            return []
        back = self._back_once(place.expression, place.function, place.activation)
        found: list[Before] = []
        for inner in back.places[:WIDTH] if back is not None else ():
            if inner.part is None:
                for entry_place in self._entries(replace(inner, part=place.part), depth - 1):
                    found.append(
                        replace(
                            entry_place,
                            firmness=min(entry_place.firmness, inner.firmness),
                            steps=entry_place.steps + inner.steps,
                            conditions=entry_place.conditions + inner.conditions,
                        )
                    )
        return found

    def _aliases_of_part(self, place: Before, seen_from: Origin) -> list[Origin]:
        assert place.part is not None
        where = (place.function, place.activation)
        found = self.part_of(place.expression, place.part, *where).origins
        return [
            replace(
                item,
                firmness=min(item.firmness, seen_from.firmness),
                steps=item.steps + seen_from.steps,
                conditions=item.conditions + seen_from.conditions,
            )
            for item in found
        ]

    def once(self, key: object, answer: Callable[[], Answer], unknown: Answer) -> Answer:
        """An answer, remembered unless it rests on a question that is still being answered.

        A circle is answered at its head: what was found below the head is dropped with it, so
        that no answer depends on which question of a circle was asked first.

        Args:
            unknown: the answer to a question that is still being answered, is nested too deeply
                or has led too far.
        """
        if key in self._known:
            known: Answer = self._known[key]
            return known
        if key in self._provisional:
            found, needed = self._provisional[key]
            self._needed = min(self._needed, needed)
            held: Answer = found
            return held
        depth = len(self._pending)
        self._effort = self._effort + 1 if depth else 0
        if key in self._pending or depth > _NESTING or self._effort > _EFFORT:
            self._needed = min(self._needed, self._pending.get(key, 0))
            return unknown
        outer, self._needed = self._needed, _NOWHERE
        self._pending[key] = depth
        try:
            found = answer()
        finally:
            del self._pending[key]
        below = self._resting.pop(depth, [])
        if self._needed < depth:
            self._provisional[key] = (found, self._needed)
            self._resting.setdefault(self._needed, []).extend([*below, key])
            for each in below:
                self._provisional[each] = (self._provisional[each][0], self._needed)
        else:
            for each in below:
                del self._provisional[each]
            self._known[key] = found
            self._needed = _NOWHERE
        self._needed = min(self._needed, outer)
        return found

    def reaching(
        self, bindings: Sequence[Binding], use: ast.AST | None, scope: Function
    ) -> list[Sequence[Binding]]:
        """As the function of that name, asked once: for each activation the answer is the same."""
        if use is None:
            return [bindings]
        key = (use, scope, *bindings)
        if key not in self._reaching:
            self._reaching[key] = reaching(bindings, use, scope)
        return self._reaching[key]

    def lambda_function(self, node: ast.Lambda, function: Function) -> Function:
        """A lambda as a function of its own, always the same one."""
        if node not in self._lambdas:
            self._lambdas[node] = as_function(node, function)
        return self._lambdas[node]

    def _of(self, expression: ast.expr, function: Function, activation: Activation | None) -> Found:
        back = self.back(expression, function, activation)
        if back is None:
            if isinstance(expression, ast.Call) and makes_nothing(expression, function):
                return Found((), is_in_a_branch(expression, function))
            return Found((Origin(expression, function, activation),), True)
        found = self.follow(back, None)
        if found.origins or found.complete:
            return found
        return Found((Origin(expression, function, activation),), False)

    def follow(self, back: Back, part: Part | None) -> Found:
        """Origins behind all predecessors; of a part of them if one is given."""
        origins: list[Origin] = []
        complete = back.complete and 0 < len(back.places) <= WIDTH
        for place in back.places[:WIDTH]:
            found = self.behind(place, part)
            complete = complete and found.complete
            origins += (
                item.then(place.firmness, place.steps, place.conditions) for item in found.origins
            )
        return Found(tuple(origins[: WIDTH * 2]), complete and len(origins) <= WIDTH * 2)

    def behind(self, place: Before, part: Part | None) -> Found:
        """Origins behind one predecessor; of a part of it if one is given."""
        where = (place.function, place.activation)
        if place.part is None:
            if part is None:
                return self.of(place.expression, *where)
            return self.part_of(place.expression, part, *where)
        inner = self.part_of(place.expression, place.part, *where)
        return inner if part is None else self.parts_of(inner, part)

    def parts_of(self, found: Found, part: Part) -> Found:
        """The same part of several origins; None has no part that a program goes on with."""
        whole = [item for item in found.origins if not is_none(item.expression)]
        results = [
            (part_of_origin(self, item, part), item.firmness, item.steps)
            for item in whole or found.origins
        ]
        return joined(results, found.complete)

    def _back_once(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> Back | None:
        """As `back`; asked once, unless it may rest on a question that is still being answered."""
        if self._pending:
            return self.back(expression, function, activation)
        key = (expression, function, activation)
        if key not in self._backs:
            self._backs[key] = self.back(*key)
        return self._backs[key]

    def back(
        self, expression: ast.expr, function: Function, activation: Activation | None
    ) -> Back | None:
        """The predecessors of an expression; None if it creates its value itself."""
        here = (function, activation)
        if isinstance(expression, ast.IfExp):
            return self._back_of_choice(expression, *here)
        if isinstance(expression, ast.BoolOp):
            return self._back_of_operands(expression, *here)
        if isinstance(expression, (ast.NamedExpr, ast.Await)):
            return Back((Before(expression.value, *here),))
        if isinstance(expression, ast.Name):
            return back_of_name(self, expression, *here)
        if isinstance(expression, ast.Attribute):
            dotted = function.module.resolve(expression)
            if dotted is not None and self._is_foreign(dotted, function.module):
                return None
            if isinstance(expression.value, ast.Call) and _is_limit(expression.value):
                return None
            part = Part(expression.attr, False)
            return Back((Before(expression.value, *here, part=part),))
        if isinstance(expression, ast.Subscript):
            return self._back_of_subscript(expression, *here)
        if isinstance(expression, ast.Call):
            return back_of_call(self, expression, *here)
        return None

    def _is_foreign(self, dotted: str, module: Module) -> bool:
        """Whether a dotted name leads out of the project, or to a function or class of it."""
        if self.objects.project.definition(dotted, module) is not None:
            return True
        parts = dotted.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        return all(self.objects.project.module_named(name, module) is None for name in names)

    def _back_of_choice(
        self, choice: ast.IfExp, function: Function, activation: Activation | None
    ) -> Back:
        truth = self.truth(choice.test, function, activation)
        sides = ((True, choice.body), (False, choice.orelse))
        return Back(
            tuple(
                Before(
                    value,
                    function,
                    activation,
                    truth[side],
                    conditions=(Condition(choice.test, side, function),),
                )
                for side, value in sides
                if side in truth
            )
        )

    def _back_of_operands(
        self, operation: ast.BoolOp, function: Function, activation: Activation | None
    ) -> Back | None:
        """Operands of `a or b`; None for conditions, which `Values` evaluates."""
        if isinstance(operation.op, ast.And):
            return None
        places: list[Before] = []
        rest = Firmness.FIXED
        for operand in operation.values:
            truth = self.truth(operand, function, activation)
            last = operand is operation.values[-1]
            if last or True in truth:
                holds = rest if last else min(rest, truth[True])
                places.append(Before(operand, function, activation, holds))
            if False not in truth:
                break
            rest = min(rest, truth[False])
        return Back(tuple(places))

    def _back_of_subscript(
        self, expression: ast.Subscript, function: Function, activation: Activation | None
    ) -> Back:
        index = expression.slice
        value = expression.value
        any_part = Part(..., True, (index, function))
        keys = self.keys(index, function, activation) or [(..., Firmness.FIXED)]
        places: list[Before] = []
        for key, firmness in keys:
            part = any_part if key is ... else Part(key, True)
            conditions: tuple[Condition, ...] = ()
            if key is not ... and len(keys) > 1:
                conditions = (equality(index, _literal(key), function),)
            place = Before(value, function, activation, firmness, part=part, conditions=conditions)
            places.append(place)
        return Back(tuple(places))

    def item_of(self, node: ast.expr, index: int | EllipsisType) -> ast.expr:
        """`node[index]` as an expression, any element for `...`; always the same one."""
        key = (node, index)
        if key not in self._items:
            subscript = ast.Name("<any>", ast.Load()) if index is ... else ast.Constant(index)
            made = ast.Subscript(node, subscript, ast.Load())
            self._items[key] = ast.fix_missing_locations(ast.copy_location(made, node))
        return self._items[key]

    def attribute_of(self, node: ast.expr, part: Part) -> ast.expr:
        """`node.name` as an expression; the same one again where possible, as nodes are keys."""
        if node not in self._made:
            made = ast.Attribute(node, str(part.key), ast.Load())
            self._made[node] = ast.copy_location(made, node)
        known = self._made[node]
        assert isinstance(known, ast.Attribute)
        if known.attr != part.key:
            return ast.copy_location(ast.Attribute(node, str(part.key), ast.Load()), node)
        return known


def _literal(content: object) -> ast.expr:
    """A constant as an expression; whatever has no literal becomes its text."""
    if content is None or isinstance(content, (str, bytes, bool, int, float)):
        return ast.Constant(content)
    return ast.Constant(str(content))


def _is_limit(call: ast.Call) -> bool:
    """`torch.finfo(...)`: its attributes are constants."""
    return last_name(call.func) == "finfo"


def _entry_of(display: ast.expr, part: Part | None) -> ast.expr | None:
    """The expression that stands at a part of a tuple or list, or under a key of a dict."""
    if part is None or not part.is_item:
        return None
    if isinstance(display, (ast.Tuple, ast.List)) and isinstance(part.key, int):
        is_spread = any(isinstance(item, ast.Starred) for item in display.elts)
        is_there = -len(display.elts) <= part.key < len(display.elts)
        return display.elts[part.key] if is_there and not is_spread else None
    if isinstance(display, ast.Dict) and None not in display.keys:
        keys = [constant_of(key) for key in display.keys if key is not None]
        found = [value for key, value in zip(keys, display.values) if key == part.key]
        return found[-1] if found else None
    return None
