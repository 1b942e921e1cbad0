"""Which condition a test stands for: the formula under which an expression is truthy."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeGuard, TypeVar

from amplint.amp.names import GRAD_SCALERS
from amplint.amp.switches import asked_for_its_switch
from amplint.code.arguments import bind, fill, listed, parameters, passed, receiver_of
from amplint.code.by_name import read_by_name
from amplint.code.expressions import callee_of, last_name
from amplint.code.module import Function
from amplint.flow.call import callee_name
from amplint.flow.cases import (
    Case,
    Table,
    dtypes_by_name,
    is_case,
    is_some_case,
    is_true_case,
    table_read,
)
from amplint.flow.conditions import Formula, conjoin, disjoin, mentions, negate
from amplint.flow.enumerators import Enumerator, enumerator
from amplint.flow.handed import may_look_up
from amplint.flow.kinship import is_instance, is_torch_scaler, lacks
from amplint.flow.places import COUNTING_CALLS, is_place
from amplint.flow.properties import is_property, only_return
from amplint.flow.state import SWITCH, State
from amplint.flow.values import UNBOUND, Value, is_not_none, is_truthy, kind_of
from amplint.flow.windows import COMPARISONS, Windows, literal_of

#: What is read of a returned expression: a condition, or a value.
Read = TypeVar("Read")
#: Predicates are read through this many calls.
PREDICATE_DEPTH = 3
#: Constructors of what a flag can become -> the kind of that value.
_KINDS = {"bool": "formula", "int": "formula", "str": "text"}
#: Builtins that join the conditions of a display.
_OF_ALL = {"all": conjoin, "any": disjoin}
_DISPLAYS = (ast.List, ast.Tuple, ast.Set)
_SWAPPED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_COUNT_NAME = re.compile(r"accum|accu|step|every|freq|iter|interval|period", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Truths(Windows):
    """Reads the conditions that expressions stand for, in a state."""

    _depth: int = 0
    #: Bodies of lambdas with the arguments of a call: kept, because nodes are keys.
    _expanded: dict[ast.Call, ast.expr] = field(default_factory=dict)
    _tables: dict[ast.expr, Table | None] = field(default_factory=dict)
    _enumerators: dict[ast.expr, Enumerator | None] = field(default_factory=dict)

    def formula(self, node: ast.expr, state: State, function: Function) -> Formula:
        """The condition under which an expression is truthy; None if it is volatile."""
        known = self._understood(node, state, function)
        return self.opaque(node, state, function) if known is None else known

    def _understood(self, node: ast.expr, state: State, function: Function) -> Formula:
        """The condition that a test stands for, if more than its text is known."""
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negate(self.formula(node.operand, state, function))
        if isinstance(node, ast.BoolOp):
            parts = [self.formula(value, state, function) for value in node.values]
            return conjoin(parts) if isinstance(node.op, ast.And) else disjoin(parts)
        if isinstance(node, ast.Compare):
            return self._comparison(node, state, function)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self._truth_of(node, state, function)
        if isinstance(node, ast.NamedExpr):
            return self._truth_of(node.target, state, function)
        if isinstance(node, ast.IfExp):
            test = self.formula(node.test, state, function)
            return disjoin(
                [
                    conjoin([test, self.formula(node.body, state, function)]),
                    conjoin([negate(test), self.formula(node.orelse, state, function)]),
                ]
            )
        if isinstance(node, ast.Call):
            return self._call_formula(node, state, function)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            zero = ast.copy_location(ast.Constant(0), node)
            return self._modulo(node, ast.NotEq(), zero, state, function)
        return None

    def _truth_of(self, node: ast.expr, state: State, function: Function) -> Formula:
        value = self.raw(node, state, function)
        if value is not None and value[0] == "formula":
            return value[1]
        if kind_of(value) in ("const", "none") and (known := is_truthy(value)) is not None:
            return known
        if kind_of(value) == "cases":
            return is_true_case(value)
        if self.enumerator(node, function) is not None:
            return None
        location = self.locate(node, state, function)
        if location is None:
            return None
        read = self._property(node, state, function)
        if read is not None:
            return read
        judged = self.place(node, state, function)
        # A GradScaler has no __bool__: its truth is that it is not None.
        is_scaler = kind_of(judged) == "scaler" or location in self._scalers
        return ("some" if is_scaler else "true", location)

    def _call_formula(self, node: ast.Call, state: State, function: Function) -> Formula:
        name = callee_name(node)
        asked = asked_for_its_switch(node)
        if asked is not None:
            value = self.content(asked, state, function)
            if value is not None and value[0] == "scaler":
                place = value[1] + SWITCH
                known = state.values.get(place)
                return known[1] if known is not None and known[0] == "formula" else ("true", place)
        if name == "any" and _asks_for_gradients(node):
            return ("gradient",)
        if name in ("bool", "int") and len(node.args) == 1:
            return self.formula(node.args[0], state, function)
        if name in _OF_ALL and len(node.args) == 1 and isinstance(node.args[0], _DISPLAYS):
            parts = [self.formula(item, state, function) for item in node.args[0].elts]
            return _OF_ALL[name](parts)
        if read_by_name(node) is not None:
            location = self.locate(node, state, function)
            value = state.values.get(location) if location else None
            if value is not None and value[0] == "formula":
                return value[1]
            is_open = location is None or value == UNBOUND  # then it is the default
            return None if is_open else ("true", location)
        if name == "isinstance" and len(node.args) == 2 and is_place(node.args[0]):
            kin = self._is_instance(node.args[0], node.args[1], state, function)
            if kin is not None:
                return kin
        if name == "hasattr" and len(node.args) == 2:
            if may_look_up(self.program, node.args[0], node.args[1], function):
                return True  # see `amplint.flow.values.HOOK`
            return self._has(node.args[0], literal_of(node.args[1]), state, function)
        if name == "len" and len(node.args) == 1:
            return self._is_filled(node, state, function)
        predicate = self._predicate(node, self._entered(node, state, function), state, function)
        if predicate is not None:
            return predicate
        if self._is_get(node):
            location = self.locate(node, state, function)
            return self._truth_at(location, state) if location else None
        dotted = function.module.resolve(node.func)
        if dotted == "torch.cuda.is_bf16_supported" and not (node.args or node.keywords):
            node = _is_there(node)
        text = self.text(node, state, function)
        if text and name in COUNTING_CALLS:
            return _above(text, 0, frozenset(self.mentioned(node, state, function)))
        return ("other", text, frozenset(self.mentioned(node, state, function))) if text else None

    def _is_instance(
        self, place: ast.expr, wanted: ast.expr, state: State, function: Function
    ) -> Formula:
        """Whether an object is of a class: as the path knows it, or as an open question."""
        held = self.raw(place, state, function)
        known = is_instance(held, wanted, function, self.program)
        if known is not None or kind_of(held) != "path" or held is None:
            return known
        asked = function.module.resolve(wanted) in GRAD_SCALERS
        is_scaler = asked and kind_of(self.place(place, state, function)) == "scaler"
        return is_torch_scaler(held[1]) if is_scaler else None

    def _has(self, whole: ast.expr, name: object, state: State, function: Function) -> Formula:
        """Whether an object has an attribute, or a container a key."""
        if not isinstance(name, str):
            return None
        if is_place(whole) and lacks(self.raw(whole, state, function), name, self.program):
            return False
        place = self.part(whole, name, state, function)
        return ("other", f"has {place}", frozenset({place})) if place is not None else None

    def _truth_at(self, location: str, state: State) -> Formula:
        value = state.values.get(location)
        return value[1] if value is not None and value[0] == "formula" else ("true", location)

    # -- what a condition asks ------------------------------------------------------------

    def content(self, node: ast.expr, state: State, function: Function) -> Value:
        """What a place holds, or what a flag became: what a condition may ask."""
        if isinstance(node, ast.Subscript):
            known = self.element(node, state, function)
            return known if known is not None else self.place(node, state, function)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.place(node, state, function)
        if isinstance(node, (ast.Await, ast.Starred)):
            return self.content(node.value, state, function)
        if is_conversion(node):
            return self.converted(node, state, function)
        location = self.locate(node, state, function) if read_by_name(node) else None
        return state.values.get(location) if location else None

    def element(self, node: ast.Subscript, state: State, function: Function) -> Value:
        """An element of what a place holds: `pair[0]`, `losses[1:]`."""
        whole = self.raw(node.value, state, function) if is_place(node.value) else None
        if whole is None or whole[0] not in ("tuple", "scaled", "opaque"):
            return None
        if whole[0] != "tuple":
            return whole
        index = literal_of(node.slice)
        if isinstance(index, int) and index < len(whole[1]):
            return whole[1][index]
        scaled = [item for item in whole[1] if item is not None and item[0] in ("scaled", "opaque")]
        return scaled[0] if scaled else None

    def converted(self, node: ast.Call, state: State, function: Function) -> Value:
        """What a flag becomes: `bool(flag)`, `int(flag)`, `str(flag)`."""
        truth = self.formula(node.args[0], state, function)
        kind = _KINDS[callee_name(node)]
        return (kind, truth) if truth is not None and truth is not True else None

    # -- predicates: functions that only return a condition --------------------------------

    def _predicate(
        self,
        node: ast.Call,
        entered: tuple[Function, State] | None,
        state: State,
        function: Function,
    ) -> Formula:
        """The condition that a call of a one-line predicate of the program stands for."""
        if entered is not None:
            return self._answered(*entered, self.formula, mentions)
        return self._lambda_formula(node, state, function)

    def _entered(
        self, node: ast.Call, state: State, function: Function
    ) -> tuple[Function, State] | None:
        """The function that a call runs and the state in it, if all that it does is to return."""
        found = self._predicate_called(node, state, function)
        if found is None or only_return(found[0]) is None:
            return None
        callee, instance = found
        bound = bind(node, callee, on_object=instance is not None)
        given = {name: item for name, item in bound.given.items() if name != bound.receiver}
        if bound.refused or bound.unknown or bound.rest or bound.words:
            return None
        values = {
            name: self.raw(item, state, function) if is_place(item) else None
            for name, item in given.items()
        }
        if None in values.values():
            return None
        return callee, _inside(callee, instance, values, state)

    def _lambda_formula(self, node: ast.Call, state: State, function: Function) -> Formula:
        """`exists = lambda value: value is not None`, called with places."""
        if not isinstance(node.func, ast.Name) or node.func.id in parameters(function):
            return None
        known = self.program.unit(function).aliases.lambdas.get(node.func.id)
        if known is None or self._depth >= PREDICATE_DEPTH:
            return None
        given = fill(listed(known.args), passed(node)).given
        if given.keys() != listed(known.args).keys() or not all(map(is_place, given.values())):
            return None
        body = self._expanded.get(node)
        if body is None:
            replaced = _Replaced(dict(given))
            body = self._expanded[node] = replaced.visit(copy.deepcopy(known.body))
        self._depth += 1
        formula = self.formula(body, state, function)
        self._depth -= 1
        return formula

    def _predicate_called(
        self, node: ast.Call, state: State, function: Function
    ) -> tuple[Function, Value] | None:
        place = callee_of(node)
        if isinstance(place, ast.Name):
            callee = self.program.find_function(place, function)
            return (callee, None) if callee is not None else None
        return self._method_read(place, state, function)

    def _property(self, node: ast.expr, state: State, function: Function) -> Formula:
        """The condition that a property of an object of the program stands for."""
        found = self._property_read(node, state, function)
        return None if found is None else self._answered(*found, self.formula, mentions)

    def _property_read(
        self, node: ast.expr, state: State, function: Function
    ) -> tuple[Function, State] | None:
        """The property that an expression reads, and the state in it."""
        found = self._method_read(node, state, function)
        if found is None or not is_property(found[0]):
            return None
        method, held = found
        return method, _inside(method, held, {}, state)

    def _method_read(
        self, node: ast.expr, state: State, function: Function
    ) -> tuple[Function, Value] | None:
        """The method that `thing.name` reads, and the object as the method sees it."""
        if not isinstance(node, ast.Attribute) or not is_place(node.value):
            return None
        held = self.raw(node.value, state, function)
        if held is not None and held[0] == "instance":
            method = self.program.find_method(held[1], node.attr)
        else:
            method = self.program.method_of(node, function) if kind_of(held) == "path" else None
        return (method, held) if method is not None else None

    def _answered(
        self,
        callee: Function,
        inside: State,
        read: Callable[[ast.expr, State, Function], Read],
        spoken: Callable[[Read], AbstractSet[str]],
    ) -> Read | None:
        """What a function returns that does nothing else; None if that speaks of its locals.

        Args:
            inside: the state in the function.
            read: reads it.
            spoken: the places that it speaks of.
        """
        returned = only_return(callee)
        if returned is None or self._depth >= PREDICATE_DEPTH:
            return None
        self._depth += 1
        found = read(returned, inside, callee)
        self._depth -= 1
        prefix = f"{callee.label}:"
        return None if any(place.startswith(prefix) for place in spoken(found)) else found

    # -- tables ----------------------------------------------------------------------------

    def key_tests(self, table: Table, state: State, function: Function) -> list[Formula]:
        """For each entry of a table, the condition under which it is the one that is read."""
        return [self._equality(table.key, name, state, function) for name, _ in table.entries]

    def name_tests(self, name: ast.expr, state: State, function: Function) -> list[Case]:
        """What `getattr(torch, name)` gives, for each name of a type."""
        return [
            (self._equality(name, word, state, function), value) for word, value in dtypes_by_name()
        ]

    def table(self, node: ast.expr, function: Function) -> Table | None:
        """The table that an expression reads with a key that is no constant."""
        if node not in self._tables:
            self._tables[node] = table_read(node, function, self.program)
        return self._tables[node]

    # -- comparisons ----------------------------------------------------------------------

    def _comparison(self, node: ast.Compare, state: State, function: Function) -> Formula:
        if len(node.ops) != 1:
            return self._opaque_comparison(node, state, function)
        operator, left, right = node.ops[0], node.left, node.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None:
            return self._none_test(left, operator, state, function)
        window = self._window_test(left, operator, right, state, function)
        if window is not None:
            return window
        if isinstance(operator, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
            formula = self._equality(left, right, state, function)
            return negate(formula) if isinstance(operator, (ast.NotEq, ast.IsNot)) else formula
        if isinstance(operator, (ast.In, ast.NotIn)):
            formula = self._membership(left, right, state, function)
            return negate(formula) if isinstance(operator, ast.NotIn) else formula
        return self._order(left, operator, right, state, function)

    def _is_filled(self, node: ast.Call, state: State, function: Function) -> Formula:
        """`len(x)` as a condition: the container is not empty."""
        text = self.text(node.args[0], state, function)
        return ("positive", text) if text else None

    def _none_test(
        self, left: ast.expr, operator: ast.cmpop, state: State, function: Function
    ) -> Formula:
        if isinstance(left, ast.Attribute) and left.attr == "grad":
            # One parameter stands for all: after a backward there is one with a gradient.
            some: Formula = ("gradient",)
            return negate(some) if isinstance(operator, (ast.Is, ast.Eq)) else some
        location = self.locate(left, state, function)
        if location is None:
            return None
        if self.program.unpacking.is_batch(left, function):
            return isinstance(operator, (ast.IsNot, ast.NotEq))
        held = self.raw(left, state, function)
        known = is_some_case(held) if kind_of(held) == "cases" else is_not_none(held)
        present: Formula = known if known is not None else ("some", location)
        return negate(present) if isinstance(operator, (ast.Is, ast.Eq)) else present

    def _equality(
        self, left: ast.expr, right: ast.expr, state: State, function: Function
    ) -> Formula:
        if isinstance(left, ast.Constant):
            left, right = right, left
        literal = self._literal(right, state, function)
        if literal is None and self._literal(left, state, function) is not None:
            left, literal = right, self._literal(left, state, function)
        if literal in ("True", "False"):
            text = self.content(left, state, function)
            if text is not None and text[0] == "text":
                return text[1] if literal == "True" else negate(text[1])
        known = self.raw(left, state, function) if is_place(left) else None
        if literal is not None and known is not None and known[0] == "const":
            return known[1] == literal
        if literal is not None and kind_of(known) == "cases":
            return is_case(known, ("const", literal))
        location = self.locate(left, state, function)
        if literal == 0 and isinstance(left, ast.Call) and callee_name(left) in COUNTING_CALLS:
            return negate(self.formula(left, state, function))
        if literal is not None and location is not None:
            if literal is True or literal is False:
                truth = self.formula(left, state, function)
                return truth if literal else negate(truth)
            if literal == 0:
                if known is not None and known[0] == "formula":
                    return negate(known[1])
                return negate(("positive", location))
            if literal == 1 and _COUNT_NAME.search(last_name(left)):
                return negate(("above", location, 1))
            named = self.enumerator(right, function)
            if named is not None and named.others:
                return conjoin([("not", ("equal", location, other)) for other in named.others])
            return ("equal", location, literal)
        return self._generic("==", left, right, state, function)

    def enumerator(self, node: ast.expr, function: Function) -> Enumerator | None:
        """The constant that an expression names."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        if node not in self._enumerators:
            self._enumerators[node] = enumerator(node, function, self.program)
        return self._enumerators[node]

    def _literal(self, node: ast.expr, state: State, function: Function) -> object | None:
        """A literal, or what a name for one stands for: `SEGMENT = 0`."""
        named = self.enumerator(node, function)
        literal = named.literal if named is not None else literal_of(node)
        if literal is not None or not isinstance(node, ast.Name):
            return literal
        known = self.raw(node, state, function)
        return known[1] if known is not None and known[0] == "const" else None

    def _membership(
        self, left: ast.expr, right: ast.expr, state: State, function: Function
    ) -> Formula:
        if isinstance(right, _DISPLAYS):
            parts = [self._equality(left, item, state, function) for item in right.elts]
            return None if None in parts else disjoin(parts)
        part = literal_of(left)
        whole = self.raw(right, state, function) if is_place(right) else None
        if isinstance(part, str) and whole is not None and whole[0] == "const":
            return part in whole[1] if isinstance(whole[1], str) else None
        if isinstance(part, str):
            return self._has(right, part, state, function)
        return self._generic("in", left, right, state, function)

    def _order(
        self,
        left: ast.expr,
        operator: ast.cmpop,
        right: ast.expr,
        state: State,
        function: Function,
    ) -> Formula:
        number = right.value if isinstance(right, ast.Constant) else None
        known = self._number(left, state, function)
        if known is not None and isinstance(number, (int, float)):
            return COMPARISONS[type(operator)](known, number)
        text = self.text(left, state, function)
        if isinstance(left, ast.Call) and callee_name(left) == "len" and left.args:
            text = self.locate(left.args[0], state, function) or text
        if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            return self._order(right, _SWAPPED[type(operator)](), left, state, function)
        if isinstance(number, int) and text:
            places = frozenset(self.mentioned(left, state, function))
            above = isinstance(operator, (ast.Gt, ast.GtE))
            lowest = number - isinstance(operator, (ast.GtE, ast.Lt))
            return _above(text, lowest, places) if above else negate(_above(text, lowest, places))
        if isinstance(operator, ast.Lt):
            return self._generic("<", left, right, state, function)
        if isinstance(operator, ast.Gt):
            return self._generic("<", right, left, state, function)
        if isinstance(operator, ast.GtE):
            return negate(self._generic("<", left, right, state, function))
        return negate(self._generic("<", right, left, state, function))

    def _number(self, node: ast.expr, state: State, function: Function) -> float | None:
        """The number that a place is known to hold."""
        value = self.raw(node, state, function) if is_place(node) else None
        number = value[1] if value is not None and value[0] == "const" else None
        return number if isinstance(number, (int, float)) else None

    def _generic(
        self, operator: str, left: ast.expr, right: ast.expr, state: State, function: Function
    ) -> Formula:
        one, two = self.text(left, state, function), self.text(right, state, function)
        if one is None or two is None:
            return None
        if one == two:
            return operator in ("==", "in")
        places = self.mentioned(left, state, function) | self.mentioned(right, state, function)
        return ("other", f"{one}{operator}{two}", frozenset(places))

    def _opaque_comparison(self, node: ast.Compare, state: State, function: Function) -> Formula:
        text = self.text(node, state, function)
        return ("other", text, frozenset(self.mentioned(node, state, function))) if text else None


def _inside(callee: Function, instance: Value, given: dict[str, Value], state: State) -> State:
    """The state in a function that is called with these values."""
    inner = state.copy()
    if instance is not None:
        given = {receiver_of(callee): instance, **given}
    for name, value in given.items():
        inner.values[f"{callee.label}:{name}"] = value
    return inner


def _above(text: str, number: int, places: frozenset[str]) -> Formula:
    """Whether a place, or what is computed from places, is above a whole number."""
    if text not in places and number:
        return ("other", f"{text}>{number}", places)
    return ("above", text, number) if number else ("positive", text)


def is_conversion(node: ast.expr) -> TypeGuard[ast.Call]:
    """Whether an expression is a call such as `int(flag)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _KINDS
        and len(node.args) == 1
    )


def _is_there(node: ast.Call) -> ast.Call:
    """`torch.cuda.is_available()` for a question that it answers: every GPU emulates bfloat16.

    torch/cuda/__init__.py, `is_bf16_supported(including_emulation=True)`.
    """
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    if holder is None:  # imported by its name
        holder = ast.Attribute(ast.Name("torch", ast.Load()), "cuda", ast.Load())
    callee = ast.Attribute(holder, "is_available", ast.Load())
    return ast.fix_missing_locations(ast.copy_location(ast.Call(callee, [], []), node))


class _Replaced(ast.NodeTransformer):
    """Puts arguments in the place of parameters."""

    def __init__(self, arguments: dict[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """One name."""
        return self.arguments.get(node.id, node)


def _asks_for_gradients(node: ast.Call) -> bool:
    text = ast.unparse(node)
    return ".grad is not None" in text or "grad_fn" in text
