"""Scalers in the hands of unknown code: who was given one, and which of its calls may use it.

`hooks.register(scaler)`, `stepper = Stepper(scaler, optimizer)` with a class that nobody can see,
`run(lambda: scaler.step(optimizer))`: from there on each call of `hooks` or `stepper` may do
protocol work, whatever it is called.
"""

from __future__ import annotations

import ast
import re

from amplint.amp.roles import Role
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module
from amplint.flow.call import Call
from amplint.flow.carriers import ASKS, decorating, first_reads
from amplint.flow.conditions import is_under
from amplint.flow.identity import scalers_in
from amplint.flow.reader import Reader
from amplint.flow.state import State
from amplint.flow.values import KEEPER, Value, kind_of

_LEADING = frozenset({"scaler", "keeper", "event", "function", "method", "partial"})


class Escapes:
    """Answers whether unknown code may reach a scaler.

    Args:
        reader: reads expressions.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.program = reader.program
        self._owners: dict[Class, bool] = {}
        self._decorating: dict[Module, frozenset[str]] = {}

    def is_given(self, call: Call) -> bool:
        """Whether an unknown callee gets a scaler, or something that leads to one."""
        return any(self.leads(value, call.state) for value in call.values.values())

    def is_kept(self, call: Call) -> bool:
        """Whether an unknown callee, or the object it belongs to, has a scaler already."""
        if ASKS.search(call.name) or kind_of(call.receiver) == "" and self._is_forward(call):
            return False
        if self._listens(call) or self._lends(call):
            return True
        value = call.receiver
        if not isinstance(call.node.func, ast.Attribute) or self._is_stored(call):
            place = call.node.func
            while isinstance(place, ast.Subscript):  # any entry of a table may be meant
                place = place.value
            if isinstance(place, ast.Call):  # any method may be meant: `getattr(self, name)()`
                place = next(iter(place.args), place)
            value = self.reader.raw(place, call.state, call.function)
        return kind_of(value) in ("keeper", "path", "instance") and self.leads(value, call.state)

    def _lends(self, call: Call) -> bool:
        """Whether a scaler of the function is one that the object has: `scaler = learner.scaler`."""
        known = call.receiver
        if known is None or known[0] != "path" or not isinstance(call.node.func, ast.Attribute):
            return False
        prefix, whole = f"{call.function.label}:", known[1]
        lent = {
            place.removeprefix(prefix)
            for place, value in call.state.values.items()
            if value is not None and value[0] == "path" and place.startswith(prefix)
            if value[1] != whole and is_under(value[1], whole)
        }
        roles = self.program.roles(call.function)
        reads = call.function.once(first_reads)
        return any(roles.is_scaler(reads[name], call.function) for name in lent & reads.keys())

    def _listens(self, call: Call) -> bool:
        """Whether a function that reaches the protocol is decorated by the object, by name."""
        if last_name(call.place) in self._listeners(call.function.module):
            return True
        if call.receiver is None or call.receiver[0] != "path":
            return False
        given = re.split(r"[.:]", call.receiver[1])[-1]
        return given in self._listeners(call.frame.entry)

    def _is_forward(self, call: Call) -> bool:
        """`self(inputs)` in a module whose `__call__` is torch's."""
        callee = call.node.func
        if not isinstance(callee, ast.Name):
            return False
        return kind_of(self.reader.raw(callee, call.state, call.function)) == "instance"

    def _is_stored(self, call: Call) -> bool:
        """`self.model(inputs)`: no method, but an object that the class keeps."""
        if call.receiver is None or call.receiver[0] != "instance":
            return False
        return any(
            call.name in self.program.facts(method).self_stores
            for item in self.program.ancestry(call.receiver[1])
            for method in item.methods.values()
        )

    def _listeners(self, module: Module) -> frozenset[str]:
        """Names of objects that decorate functions with protocol calls: `@engine.on("step")`."""
        known = self._decorating.get(module)
        if known is None:
            known = self._decorating[module] = frozenset(
                name
                for function in module.functions
                if self._reaches(function)
                for name in decorating(function)
            )
        return known

    def keep(self, call: Call) -> State:
        """The state in which the object whose method got a scaler may use it."""
        state = call.state.copy()
        if not isinstance(call.node.func, ast.Attribute) or kind_of(call.receiver) != "path":
            return state
        imported = call.function.module.resolve(call.place) is not None
        if not imported and call.receiver is not None:
            state.values[call.receiver[1]] = KEEPER
        return state

    def leads(self, value: Value, state: State) -> bool:
        """Whether whoever has a value can use a scaler through it."""
        if value is None:
            return False
        kind = value[0]
        if kind in ("scaler", "keeper", "event"):
            return True
        if kind == "choice":
            return any(self.leads(item, state) for item in value[1])
        if kind == "tuple":
            return any(self.leads(item, state) for item in value[1])
        if kind == "partial":
            bound = any(self.leads(item, state) for _, _, item in value[2])
            return bound or self.leads(value[1], state)
        if kind == "function":
            return self._reaches(value[1])
        if kind == "method":
            return self._reaches(value[2]) or self.leads(value[1], state)
        if kind == "instance":
            return self._holds(value[2], state) or self._has_scaler(value[1])
        return kind == "path" and self._holds(value[1], state)

    def _holds(self, location: str, state: State, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an object, one that it has, or one that it is a part of, is known to have a scaler.

        Args:
            seen: objects that have this one.
        """
        seen |= {location}
        for place, value in state.values.items():
            if place == location:
                continue
            if value is not None and value[0] == "instance" and is_under(place, location):
                if value[2] not in seen and self._holds(value[2], state, seen):
                    return True
                continue
            if kind_of(value) not in _LEADING:
                continue
            if is_under(place, location) and self.leads(value, state):
                return True
            if kind_of(value) in ("scaler", "keeper") and is_under(location, place):
                return True
        return any(is_under(scaler, location) for scaler in scalers_in(state))

    def _reaches(self, function: Function) -> bool:
        return self.program.knows(function) and self.program.facts(function).interesting

    def _has_scaler(self, owner: Class) -> bool:
        """Whether objects of a class have a scaler among their attributes."""
        known = self._owners.get(owner)
        if known is None:
            known = self._owners[owner] = any(
                Role.SCALER in found and scope == f"class {item.name}"
                for item in self.program.ancestry(owner)
                for (scope, _), found in self.program.roles(item.module.body).by_path.items()
            )
        return known
