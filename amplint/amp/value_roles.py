"""What a value is for the protocol, by where it was created: in whatever file, behind any call.

A parameter is what its callers pass, an attribute what is stored in it, the result of a function
what that returns. Names and annotations say nothing here: they are the last resort of `Roles`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from amplint.amp.roles import Role, Roles, optimizer_name, roles_of, scaler_name
from amplint.code.expressions import is_none, last_name, path_text
from amplint.code.module import Class, Function, Module
from amplint.values.kinds import same_object
from amplint.values.objects import Objects
from amplint.values.provenance import Origin

#: Roles that decide how a value is treated; of several that a place can have, the first counts.
_PARTICIPANTS = (Role.SCALER, Role.OPTIMIZER, Role.SCHEDULER, Role.AUTOCAST)


@dataclass(slots=True)
class _Search:
    """What one question has found: every place is looked at once, however many ways lead there.

    Args:
        asked: places that were looked at.
        pending: those of them that the present one is reached through.
        roles: what was found.
        settled: whether all of it is known.
    """

    asked: set[tuple[ast.expr, Function]] = field(default_factory=set)
    pending: set[tuple[ast.expr, Function]] = field(default_factory=set)
    roles: set[Role] = field(default_factory=set)
    settled: bool = True

    def add(self, role: Role | None) -> None:
        """Note what something is; None for unknown."""
        if role is None:
            self.settled = False
        else:
            self.roles.add(role)

    @property
    def role(self) -> Role | None:
        """A participant if there is one; else another thing if that is sure."""
        found = next((role for role in _PARTICIPANTS if role in self.roles), None)
        return found or (Role.OTHER if self.settled else None)


class ValueRoles:
    """The roles of one project's values.

    Args:
        objects: finds where values were created.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._roles: dict[Module, Roles] = {}
        self._answers: dict[tuple[ast.expr, Function], Role | None] = {}
        self._told: dict[tuple[ast.expr, Function], Role | None] = {}

    def of(self, module: Module) -> Roles:
        """The roles of a module, which ask here where the module itself says nothing."""
        if module not in self._roles:
            self._roles[module] = self.complete(roles_of(module))
        return self._roles[module]

    def complete(self, roles: Roles) -> Roles:
        """The same roles, which ask here where the module itself says nothing."""
        return replace(roles, by_value=self.role_of, by_callers=self.told_by_callers)

    def role_of(self, expression: ast.expr, function: Function) -> Role | None:
        """What the values are that reach an expression; None if that is not known."""
        place = (expression, function)
        if place not in self._answers:
            search = _Search()
            self._collect(expression, function, search)
            self._answers[place] = search.role
        return self._answers[place]

    def told_by_callers(self, expression: ast.expr, function: Function) -> Role | None:
        """What callers take a value for that nobody in sight creates.

        Their own names for it count, as those of a function do that nobody calls.
        """
        own = last_name(expression)
        if scaler_name(own) or optimizer_name(own):
            return None
        place = (expression, function)
        if place not in self._told:
            self._told[place] = self._ask_callers(*place)
        return self._told[place]

    def _ask_callers(self, expression: ast.expr, function: Function) -> Role | None:
        told: set[Role] = set()
        for alias in self.objects.origins.aliases(expression, function):
            if alias.expression is expression or not path_text(alias.expression):
                continue
            roles = roles_of(alias.function.module)
            if roles.is_scaler(alias.expression, alias.function):
                told.add(Role.SCALER)
            elif roles.is_optimizer(alias.expression, alias.function):
                told.add(Role.OPTIMIZER)
        return told.pop() if len(told) == 1 else None

    def _collect(self, expression: ast.expr, function: Function, search: _Search) -> None:
        """Add the roles of everything that an expression is made of, each place once."""
        place = (expression, function)
        if place in search.asked:
            if place in search.pending:  # `model = model.half()` is made of itself
                search.settled = False
            return
        search.asked.add(place)
        search.pending.add(place)
        found = self.objects.origins.of(expression, function)
        origins = [item for item in found.origins if not is_none(item.expression)]
        if not found.complete or not origins:
            search.settled = False
        for item in origins:
            self._collect_origin(item, search)
        search.pending.discard(place)

    def _collect_origin(self, origin: Origin, search: _Search) -> None:
        node, function = origin.expression, origin.function
        if isinstance(node, ast.BoolOp):  # none of its operands is all that it can be
            search.settled = False
            for operand in node.values:
                self._collect(operand, function, search)
            return
        role = self._role_of_origin(origin)
        inner = same_object(node) if role is None and isinstance(node, ast.Call) else None
        if inner is not None:
            self._collect(inner, function, search)
        else:
            search.add(role)

    def _role_of_origin(self, origin: Origin) -> Role | None:
        """What an expression makes; None if it hands on, or nothing is known about it."""
        node = origin.expression
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        if not isinstance(node, ast.Call):
            return Role.OTHER
        symbol = self.objects.symbol(node.func, origin.function)
        if isinstance(symbol, Class):  # in sight, it is what it is, whatever it is called
            return self._role_of_class(symbol)
        return roles_of(origin.function.module).call_role(node, origin.function)

    def _role_of_class(self, owner: Class) -> Role | None:
        """The role of the objects of a project class, by all of its bases in whatever file."""
        roles = {roles_of(item.module).class_role(item) for item in self.objects.ancestry(owner)}
        found = next((role for role in _PARTICIPANTS if role in roles), None)
        return found or Role.OTHER
