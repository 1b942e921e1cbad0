"""Reading expressions without side effects: their values and their formulas."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from amplint.amp.libraries import class_row
from amplint.amp.names import GRAD_SCALERS
from amplint.amp.roles import Role, optimizer_name, scaler_name
from amplint.code.arguments import bind, fill, listed, parameters, passed, receiver_of
from amplint.code.by_name import read_by_name
from amplint.code.expressions import callee_of, last_name
from amplint.code.module import Function
from amplint.flow.aliases import BOUND_EVENTS
from amplint.flow.call import callee_name
from amplint.flow.conditions import Formula, conjoin, disjoin, evaluate, mentions, negate
from amplint.flow.copies import NOTHING, copied_by, displayed
from amplint.flow.kinship import is_instance, is_torch_scaler, lacks
from amplint.flow.places import COUNTING_CALLS, is_place, item_location
from amplint.flow.properties import is_property, only_return
from amplint.flow.state import SWITCH, State
from amplint.flow.values import (
    CALLABLE_KINDS,
    OPAQUE,
    UNBOUND,
    ZERO,
    Value,
    is_container,
    is_not_none,
    is_truthy,
    kind_of,
)
from amplint.flow.windows import COMPARISONS, Windows, literal_of

#: Stable calls whose result is a bool; of any other the value itself is unknown.
BOOLEAN_CALLS = frozenset(
    {
        "any",
        "callable",
        "endswith",
        "hasattr",
        "is_available",
        "is_bf16_supported",
        "is_distributed",
        "is_enabled",
        "is_initialized",
        "is_main",
        "is_main_process",
        "isinstance",
        "startswith",
    }
)
#: Kinds of values that a dict display is known to hold.
_ENTRIES = frozenset(
    {"path", "const", "formula", "none", "scaler", "optimizer", "function", "event", "keeper"}
    | {"scaled", "instance", "method", "partial", "class"}
)
#: A callee of this name may scale a loss; what it returns is nobody's plain loss.
SCALE_NAME = re.compile(r"(?:^|_)scaled?(?:_|$)", re.IGNORECASE)
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
class Reader(Windows):
    """Evaluates expressions against a state: their values and the conditions they stand for."""

    _judged: dict[int, str] = field(default_factory=dict)
    #: Unknown places that some name of theirs says to be scalers.
    _scalers: set[str] = field(default_factory=set)
    _depth: int = 0
    #: Bodies of lambdas with the arguments of a call: kept, because nodes are keys.
    _expanded: dict[ast.Call, ast.expr] = field(default_factory=dict)

    # -- values ----------------------------------------------------------------------

    def value(self, node: ast.expr, state: State, function: Function) -> Value:
        """The value of an expression that holds no call that matters."""
        if isinstance(node, ast.Constant):
            if node.value is None:
                return ("none",)
            return (
                ("const", node.value) if isinstance(node.value, (bool, int, float, str)) else None
            )
        if isinstance(node, ast.Subscript):
            known = self._element(node, state, function)
            return known if known is not None else self.place(node, state, function)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.place(node, state, function)
        if isinstance(node, (ast.BoolOp, ast.Compare)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            formula = self.formula(node, state, function)
            if formula is None:
                return None
            truth = evaluate(formula, state)
            return ("const", truth) if truth is not None else ("formula", formula)
        if isinstance(node, (ast.List, ast.Dict)) and not _parts(node):
            return ZERO  # an empty container is falsy until something is put into it
        if isinstance(node, ast.Dict):
            return self._copy(node, state, function) or self.display(node, {}, state, function)
        if isinstance(node, (ast.Tuple, ast.List)):
            return ("tuple", tuple(self._item(item, state, function) for item in node.elts))
        if isinstance(node, ast.BinOp):
            rest = self._understood(node, state, function)
            return ("formula", rest) if rest else self._arithmetic(node, state, function)
        if isinstance(node, ast.Call):
            return self._call_value(node, state, function)
        if isinstance(node, (ast.Await, ast.Starred)):
            return self.value(node.value, state, function)
        if isinstance(node, ast.Lambda):
            found = self.program.find_lambda(node, function)
            return ("function", found) if found is not None else None
        return None

    def binding(self, node: ast.expr, state: State, function: Function) -> Value:
        """The value to bind when an expression is assigned or passed: aliases stay aliases."""
        if _is_enumerator(node):
            return ("const", f"<{ast.unparse(node)}>")
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._alias(node, state, function)
        if isinstance(node, ast.Subscript):
            known = self._element(node, state, function)
            return known if known is not None else self.entry(node, state, function)
        if isinstance(node, ast.BoolOp):
            return self._decided(node, state, function)
        return self.value(node, state, function)

    def _decided(self, node: ast.BoolOp, state: State, function: Function) -> Value:
        """`callbacks or []`: the operand that decides, if that is known."""
        for operand in node.values[:-1]:
            truth = evaluate(self.formula(operand, state, function), state)
            if truth is None:
                return self.value(node, state, function)
            if truth is isinstance(node.op, ast.Or):
                return self.binding(operand, state, function)
        return self.binding(node.values[-1], state, function)

    def entry(self, node: ast.Subscript, state: State, function: Function) -> Value:
        """What a container holds at a place: as the path knows it, else by a table."""
        known = self.raw(node, state, function)
        if known is not None and known[0] != "path":
            return known
        return self.program.find_entry(node, function) or known

    def _alias(self, node: ast.Name | ast.Attribute, state: State, function: Function) -> Value:
        """What a place holds; of a function, class or method, that one itself."""
        value = self.raw(node, state, function)
        if value is None or value[0] != "path":
            return value
        self.place(node, state, function)  # under another name it is a scaler all the same
        if isinstance(node, ast.Attribute) and node.attr in self._called_names(function):
            owner = self.place(node.value, state, function) if is_place(node.value) else None
            method = self._unbound(owner, node.attr)
            if method is not None:
                return method
        if isinstance(node, ast.Name) and not value[1].startswith(f"{function.module.body.label}:"):
            return value  # a local hides what the module calls so
        return self.program.find_callable(node, function) or value

    def _called_names(self, function: Function) -> frozenset[str]:
        return self.program.unit(function).slicer.interesting | BOUND_EVENTS.keys()

    def _unbound(self, owner: Value, name: str) -> Value:
        """A method that is not called yet."""
        if owner is None:
            return None
        if owner[0] in ("scaler", "optimizer", "scaled") and name in BOUND_EVENTS:
            return ("event", owner[:2], name)
        if owner[0] != "instance":
            return None
        method = self.program.find_method(owner[1], name)
        return None if method is None or is_property(method) else ("method", owner, method)

    def _partial(self, node: ast.Call, state: State, function: Function) -> Value:
        """`partial(finish, scaler, lr=0.1)`: the callee with the arguments that it will get."""
        words = [(None, argument) for argument in node.args[1:]]
        parts = [*words, *((item.arg, item.value) for item in node.keywords)]
        if any(isinstance(part, ast.Starred) for _, part in parts) or _spreads_words(node):
            return None
        callee = self.binding(node.args[0], state, function)
        if callee is None or callee[0] not in CALLABLE_KINDS:
            return None
        bound = ((word, part, self._kept_for(part, state, function)) for word, part in parts)
        return ("partial", callee, tuple(bound))

    def _kept_for(self, part: ast.expr, state: State, function: Function) -> Value:
        """What `partial` binds; a container stays whose it is, whoever fills it."""
        value = self.binding(part, state, function)
        location = self.locate(part, state, function) if is_container(value) else None
        return value if location is None else ("path", location)

    def _element(self, node: ast.Subscript, state: State, function: Function) -> Value:
        """An element of a display: `{"a": 1}[key]`, `pair[0]`, `losses[1:]`."""
        if isinstance(node.value, ast.Dict):
            key = self.value(node.slice, state, function)
            for name, item in zip(node.value.keys, node.value.values, strict=True):
                if (
                    key is not None
                    and name is not None
                    and self.value(name, state, function) == key
                ):
                    return self.value(item, state, function)
            return None
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

    def place(self, node: ast.expr, state: State, function: Function) -> Value:
        """The value at a place; unknown places are judged by role, then by name."""
        value = self.raw(node, state, function)
        if value is None or value[0] != "path":
            return value
        kind = self._judged.get(id(node))
        if kind is None:
            kind = self._judged[id(node)] = self._judge(node, function)
        if kind == "scaler":
            if state.facts.get(is_torch_scaler(value[1])) is False:
                return value
            self._scalers.add(value[1])
        return (kind, value[1])

    def _judge(self, node: ast.expr, function: Function) -> str:
        """The kind of an unknown place: by its role, else by its name."""
        role = self.program.roles(function).role_of(node, function)
        if role is Role.SCALER or (role is None and scaler_name(last_name(node))):
            return "scaler"
        if role is Role.OPTIMIZER or (role is None and optimizer_name(last_name(node))):
            return "optimizer"
        return "path"

    def _arithmetic(self, node: ast.BinOp, state: State, function: Function) -> Value:
        for side in (node.left, node.right):
            value = self.value(side, state, function)
            if value is not None and value[0] in ("scaled", "opaque"):
                return value
            if value is not None and value[0] == "scaler":
                return OPAQUE  # torch's scalers know no arithmetic: this one is a factor
        return None

    def _call_value(self, node: ast.Call, state: State, function: Function) -> Value:
        callee = node.func
        if callee_name(node) == "partial" and node.args:
            return self._partial(node, state, function)
        row = class_row(function.module.resolve(callee))
        if row is not None:
            return ("library", row.name, f"new@{node.lineno}:{node.col_offset}")
        if isinstance(callee, ast.Name) and callee.id in _KINDS and len(node.args) == 1:
            truth = self.formula(node.args[0], state, function)
            return (_KINDS[callee.id], truth) if truth is not None and truth is not True else None
        if read_by_name(node) is not None:
            location = self.locate(node, state, function)
            known = state.values.get(location) if location else None
            if known is None and isinstance(node.args[1], ast.Constant):
                known = self.program.find_callable(node, function)
            return known or (("path", location) if location else None)
        if isinstance(callee, ast.Attribute):
            value = self.value(callee.value, state, function)
            if value is not None and value[0] in ("scaled", "opaque"):
                return value
            if value is not None and value[0] == "scaler" and callee.attr == "scale":
                return ("scaled", value[1])
        copied = self._copy(node, state, function)
        if copied is not None:
            return copied
        for argument in node.args:
            value = self.value(argument, state, function)
            if value is not None and value[0] in ("scaled", "opaque"):
                return value if callee_name(node) in ("sum", "cast") else OPAQUE
        if SCALE_NAME.search(callee_name(node)) or self._is_bound_scale(callee, state, function):
            return OPAQUE
        if (
            callee_name(node) not in BOOLEAN_CALLS
            and not (self._is_get(node) and _is_flag(node.args[-1]))
            and self._predicate(node, state, function) is None
        ):
            return None
        formula = self.formula(node, state, function)
        return ("formula", formula) if formula is not None else None

    def _copy(self, node: ast.expr, state: State, function: Function) -> Value:
        """A copy of a place whose fields a path may know."""
        found = copied_by(node, function.module.resolve)
        location = self.locate(found[0], state, function) if found else None
        if found is None or location is None:
            return None
        held = self.raw(found[0], state, function)
        if kind_of(held) not in ("path", "instance"):
            return None
        fields = tuple(
            (item_location("", ast.Constant(name)), self.binding(item, state, function))
            for name, item in found[1].items()
        )
        return ("copy", location, fields, held[1] if kind_of(held) == "instance" else None)

    def display(
        self, node: ast.Dict, known: Mapping[ast.expr, Value], state: State, function: Function
    ) -> Value:
        """What a dict display with constant keys holds.

        Args:
            known: the values of calls in it, which were evaluated.
        """
        found = (
            (name, known[item] if item in known else self.binding(item, state, function))
            for name, item in displayed(node).items()
            if item is not None
        )
        fields = tuple(
            (item_location("", ast.Constant(name)), value)
            for name, value in found
            if kind_of(value) in _ENTRIES
        )
        return ("copy", NOTHING, fields, None) if fields else None

    def _item(self, node: ast.expr, state: State, function: Function) -> Value:
        """An element of a display: functions and methods as such, else its value."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            known = self._alias(node, state, function)
            if known is not None and known[0] in CALLABLE_KINDS:
                return known
        return self.value(node, state, function)

    # -- formulas --------------------------------------------------------------------

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
        if name == "is_enabled" and isinstance(node.func, ast.Attribute):
            value = self.value(node.func.value, state, function)
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
            known = self._is_instance(*node.args, state, function)
            if known is not None:
                return known
        if name == "hasattr" and len(node.args) == 2:
            return self._has(node.args[0], literal_of(node.args[1]), state, function)
        if name == "len" and len(node.args) == 1:
            return self._is_filled(node, state, function)
        predicate = self._predicate(node, state, function)
        if predicate is not None:
            return predicate
        if self._is_get(node):
            location = self.locate(node, state, function)
            return self._truth_at(location, state) if location else None
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

    def _is_bound_scale(self, callee: ast.expr, state: State, function: Function) -> bool:
        """`run = scaler.scale`, then `run(loss)`."""
        if not isinstance(callee, ast.Name):
            return False
        value = self.raw(callee, state, function)
        return value is not None and value[0] == "event" and value[2] == "scale"

    # -- predicates: functions that only return a condition --------------------------------

    def _predicate(self, node: ast.Call, state: State, function: Function) -> Formula:
        """The condition that a call of a one-line predicate of the program stands for."""
        found = self._predicate_called(node, state, function)
        if found is None:
            return self._lambda_formula(node, state, function)
        callee, instance = found
        if only_return(callee) is None:
            return None
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
        return self._predicate_formula(callee, instance, values, state)

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
        if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name):
            instance = self.raw(place.value, state, function)
            if instance is not None and instance[0] == "instance":
                method = self.program.find_method(instance[1], place.attr)
                return (method, instance) if method is not None else None
        return None

    def _property(self, node: ast.expr, state: State, function: Function) -> Formula:
        """The condition that a property of an object of the program stands for."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            return None
        instance = self.raw(node.value, state, function)
        if instance is None or instance[0] != "instance":
            return None
        method = self.program.find_method(instance[1], node.attr)
        if method is None or not is_property(method):
            return None
        return self._predicate_formula(method, instance, {}, state)

    def _predicate_formula(
        self, callee: Function, instance: Value, given: dict[str, Value], state: State
    ) -> Formula:
        returned = only_return(callee)
        if returned is None or self._depth >= PREDICATE_DEPTH:
            return None
        inner = state.copy()
        if instance is not None:
            given = {receiver_of(callee): instance, **given}
        for name, value in given.items():
            inner.values[f"{callee.label}:{name}"] = value
        self._depth += 1
        formula = self.formula(returned, inner, callee)
        self._depth -= 1
        prefix = f"{callee.label}:"
        if any(mention.startswith(prefix) for mention in mentions(formula)):
            return None
        return formula

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
        known = is_not_none(self.raw(left, state, function))
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
            text = self.value(left, state, function)
            if text is not None and text[0] == "text":
                return text[1] if literal == "True" else negate(text[1])
        known = self.raw(left, state, function) if is_place(left) else None
        if literal is not None and kind_of(known) == "const":
            return known[1] == literal
        location = self.locate(left, state, function)
        if literal == 0 and isinstance(left, ast.Call) and callee_name(left) in COUNTING_CALLS:
            return negate(self.formula(left, state, function))
        if literal is not None and location is not None:
            if literal is True or literal is False:
                truth = self.formula(left, state, function)
                return truth if literal else negate(truth)
            if literal == 0:
                if kind_of(known) == "formula":
                    return negate(known[1])
                return negate(("positive", location))
            if literal == 1 and _COUNT_NAME.search(last_name(left)):
                return negate(("above", location, 1))
            return ("equal", location, literal)
        return self._generic("==", left, right, state, function)

    def _literal(self, node: ast.expr, state: State, function: Function) -> object | None:
        """A literal, or what a name for one stands for: `SEGMENT = 0`."""
        literal = literal_of(node)
        if literal is not None or not isinstance(node, ast.Name):
            return literal
        known = self.raw(node, state, function)
        return known[1] if kind_of(known) == "const" else None

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

    def _order(self, left, operator, right, state: State, function: Function) -> Formula:
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

    def _generic(self, operator: str, left, right, state: State, function: Function) -> Formula:
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


def _above(text: str, number: int, places: frozenset[str]) -> Formula:
    """Whether a place, or what is computed from places, is above a whole number."""
    if text not in places and number:
        return ("other", f"{text}>{number}", places)
    return ("above", text, number) if number else ("positive", text)


class _Replaced(ast.NodeTransformer):
    """Puts arguments in the place of parameters."""

    def __init__(self, arguments: dict[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """One name."""
        return self.arguments.get(node.id, node)


def _is_enumerator(node: ast.expr) -> bool:
    """`Mode.AMP`, `torch.float16`: a constant that is told apart by its name."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    root = node.value.id
    return (root[:1].isupper() and node.attr.isupper()) or (
        root == "torch" and "float" in node.attr
    )


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _spreads_words(node: ast.Call) -> bool:
    return any(word.arg is None for word in node.keywords)


def _parts(node: ast.List | ast.Dict) -> list:
    return node.elts if isinstance(node, ast.List) else node.values


def _asks_for_gradients(node: ast.Call) -> bool:
    text = ast.unparse(node)
    return ".grad is not None" in text or "grad_fn" in text
