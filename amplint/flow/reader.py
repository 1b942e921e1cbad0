"""The values of expressions without side effects."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from amplint.amp.libraries import class_row
from amplint.code.by_name import read_by_name
from amplint.code.expressions import last_name
from amplint.code.module import Function
from amplint.flow.aliases import BOUND_EVENTS
from amplint.flow.call import callee_name
from amplint.flow.cases import cases, cases_under, dtype_named, with_default
from amplint.flow.conditions import evaluate, negate
from amplint.flow.copies import NOTHING, copied_by, displayed
from amplint.flow.footprints import spoken_of
from amplint.flow.handed import may_look_up
from amplint.flow.places import is_place, item_location
from amplint.flow.properties import is_property, only_return
from amplint.flow.state import State
from amplint.flow.truths import Truths, is_conversion
from amplint.flow.values import (
    CALLABLE_KINDS,
    HOOK,
    OPAQUE,
    ZERO,
    Value,
    is_container,
    kind_of,
)
from amplint.values.wrappers import SAME_OBJECT

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
#: What a property may return of which it is known what it holds: a display, or another property.
_LISTED = (ast.Tuple, ast.List, ast.Attribute)
#: A callee of this name may scale a loss; what it returns is nobody's plain loss.
SCALE_NAME = re.compile(r"(?:^|_)scaled?(?:_|$)", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Reader(Truths):
    """Evaluates expressions against a state; some of their values are conditions (`Truths`)."""

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
            if rest is False:
                return ZERO  # what `% 1` leaves over
            return ("formula", rest) if rest else self._arithmetic(node, state, function)
        if isinstance(node, ast.Call):
            return self._call_value(node, state, function)
        if isinstance(node, (ast.Await, ast.Starred)):
            return self.value(node.value, state, function)
        if isinstance(node, ast.IfExp):
            return self._either(node, state, function)
        if isinstance(node, ast.Lambda):
            found = self.program.find_lambda(node, function)
            return ("function", found) if found is not None else None
        return None

    def listed(self, node: ast.expr, state: State, function: Function) -> Value:
        """What a loop goes over; of a property, or a call, the display that it gives."""
        given = self.given(node, state, function)
        if given is not None and isinstance(only_return(given[0]), _LISTED):
            shown = self._answered(*given, self.listed, _spoken_of_parts)
            if shown is not None and shown[0] == "tuple":
                return shown
        return self.value(node, state, function)

    def given(
        self, node: ast.expr, state: State, function: Function
    ) -> tuple[Function, State] | None:
        """The property or function whose one expression gives a value, and the state in it."""
        if isinstance(node, ast.Call):
            return self._entered(node, state, function)
        return self._property_read(node, state, function)

    def binding(self, node: ast.expr, state: State, function: Function) -> Value:
        """The value to bind when an expression is assigned or passed: aliases stay aliases."""
        named = self.enumerator(node, function)
        if named is not None:
            return ("const", named.literal)
        if isinstance(node, ast.Attribute):
            read = self._property(node, state, function)
            if read is not None:
                return ("formula", read)
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
        chosen = self.cases(node, state, function)
        if chosen is not None:
            return chosen
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
        return self.element(node, state, function)

    def cases(self, node: ast.expr, state: State, function: Function) -> Value:
        """The constants that a key may choose, of a table or as a name of torch's types."""
        table = self.table(node, function)
        if table is None:
            name = dtype_named(node, function)
            return None if name is None else cases(self.name_tests(name, state, function), state)
        values = [self.binding(item, state, table.home) for _, item in table.entries]
        found = list(zip(self.key_tests(table, state, function), values, strict=True))
        if table.default is not None:
            found = with_default(found, self.binding(table.default, state, function))
        return cases(found, state)

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
        if (chosen := self.cases(node, state, function)) is not None:
            return chosen
        row = class_row(function.module.resolve(callee))
        if row is not None:
            return ("library", row.name, f"new@{node.lineno}:{node.col_offset}")
        if is_conversion(node):
            return self.converted(node, state, function)
        if read_by_name(node) is not None:
            location = self.locate(node, state, function)
            known = state.values.get(location) if location else None
            if known is None and isinstance(node.args[1], ast.Constant):
                known = self.program.find_callable(node, function)
            elif known is None and may_look_up(self.program, node.args[0], node.args[1], function):
                known = HOOK  # that it is there is what asking for it is for
            return known or (("path", location) if location else None)
        if isinstance(callee, ast.Attribute):
            value = self.value(callee.value, state, function)
            if value is not None and value[0] in ("scaled", "opaque"):
                return value
            if value is not None and value[0] == "scaler" and callee.attr == "scale":
                return ("scaled", value[1])
        copied = self._copy(node, state, function) or self._moved(node, state, function)
        if copied is not None:
            return copied
        for argument in node.args:
            value = self.value(argument, state, function)
            if value is not None and value[0] in ("scaled", "opaque"):
                return value if callee_name(node) in ("sum", "cast") else OPAQUE
        if SCALE_NAME.search(callee_name(node)) or self._is_bound_scale(callee, state, function):
            return OPAQUE
        if self._is_get(node) and _has_no_default(node):
            return self.raw(node, state, function)
        if callee_name(node) in BOOLEAN_CALLS or (self._is_get(node) and _is_flag(node.args[-1])):
            formula = self.formula(node, state, function)
        else:
            entered = self._entered(node, state, function)
            if entered is not None and (chosen := self._constants_returned(*entered)) is not None:
                return chosen
            formula = self._predicate(node, entered, state, function)
        return ("formula", formula) if formula is not None else None

    def _either(self, node: ast.IfExp, state: State, function: Function) -> Value:
        """`16 if half else 32`: constants, each with its condition; None for anything else."""
        test = self.formula(node.test, state, function)
        parts = ((test, node.body), (negate(test), node.orelse))
        return cases(
            [
                case
                for held, part in parts
                for case in cases_under(held, self.binding(part, state, function))
            ],
            state,
        )

    def _constants_returned(self, callee: Function, inside: State) -> Value:
        """The constants that a function gives that only chooses one."""
        if not isinstance(only_return(callee), ast.IfExp):
            return None
        chosen = self._answered(callee, inside, self.value, spoken_of)
        if chosen is None or chosen[0] != "cases":
            return chosen
        return None if all(isinstance(item[1], bool) for _, item in chosen[2]) else chosen

    def _moved(self, node: ast.Call, state: State, function: Function) -> Value:
        """The model of `model.to(device)`: what parameters are asked of gives back itself."""
        callee = node.func
        if not isinstance(callee, ast.Attribute) or callee.attr not in SAME_OBJECT:
            return None
        if last_name(callee.value) not in self.program.unit(function).slicer.models:
            return None
        return self.raw(callee.value, state, function)

    def _copy(self, node: ast.expr, state: State, function: Function) -> Value:
        """A copy of a place whose fields a path may know."""
        found = copied_by(node, function.module.resolve)
        location = self.locate(found[0], state, function) if found else None
        if found is None or location is None:
            return None
        held = self.raw(found[0], state, function)
        if held is None or held[0] not in ("path", "instance"):
            return None
        fields = tuple(
            (item_location("", ast.Constant(name)), self.binding(item, state, function))
            for name, item in found[1].items()
        )
        return ("copy", location, fields, held[1] if held[0] == "instance" else None)

    def display(
        self, node: ast.Dict, known: Mapping[ast.Call, Value], state: State, function: Function
    ) -> Value:
        """What a dict display with constant keys holds.

        Args:
            known: the values of calls in it, which were evaluated.
        """
        found = (
            (
                name,
                known[item]
                if isinstance(item, ast.Call) and item in known
                else self.binding(item, state, function),
            )
            for name, item in displayed(node).items()
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

    def _is_bound_scale(self, callee: ast.expr, state: State, function: Function) -> bool:
        """`run = scaler.scale`, then `run(loss)`."""
        if not isinstance(callee, ast.Name):
            return False
        value = self.raw(callee, state, function)
        return value is not None and value[0] == "event" and value[2] == "scale"


def _has_no_default(node: ast.Call) -> bool:
    """`config.get("amp")`: what the container lacks is None."""
    return all(isinstance(item, ast.Constant) and item.value is None for item in node.args[1:])


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _spreads_words(node: ast.Call) -> bool:
    return any(word.arg is None for word in node.keywords)


def _parts(node: ast.List | ast.Dict) -> list:
    return node.elts if isinstance(node, ast.List) else node.values


def _spoken_of_parts(value: Value) -> frozenset[str]:
    """Places that a display's elements speak of."""
    parts = value[1] if value is not None and value[0] == "tuple" else (value,)
    return frozenset().union(*map(spoken_of, parts))
