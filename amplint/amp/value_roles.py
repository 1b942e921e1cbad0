"""What a value is for the protocol, by where it was created: in whatever file, behind any call.

A parameter is what its callers pass, an attribute what is stored in it, the result of a function
what that returns. Names and annotations say nothing here: they are the last resort of `Roles`.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from amplint.amp.roles import Role, Roles, roles_of
from amplint.code.module import Class, Function, Module
from amplint.values.kinds import same_object
from amplint.values.objects import Objects
from amplint.values.provenance import Origin

#: Roles that decide how a value is treated; of several that a place can have, the first counts.
_PARTICIPANTS = (Role.SCALER, Role.OPTIMIZER, Role.SCHEDULER, Role.AUTOCAST)


class ValueRoles:
    """The roles of one project's values.

    Args:
        objects: finds where values were created.
    """

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self._roles: dict[Module, Roles] = {}

    def of(self, module: Module) -> Roles:
        """The roles of a module, which ask here where the module itself says nothing."""
        if module not in self._roles:
            self._roles[module] = self.complete(roles_of(module))
        return self._roles[module]

    def complete(self, roles: Roles) -> Roles:
        """The same roles, which ask here where the module itself says nothing."""
        return replace(roles, by_value=self.role_of)

    def role_of(self, expression: ast.expr, function: Function) -> Role | None:
        """What the values are that reach an expression; None if that is not known."""
        return self._role_of(expression, function, frozenset())

    def _role_of(
        self, expression: ast.expr, function: Function, asked: frozenset[ast.expr]
    ) -> Role | None:
        """See `role_of`.

        Args:
            asked: what is being asked already: `model = model.half()` is made of itself.
        """
        if expression in asked:
            return None
        found = self.objects.origins.of(expression, function)
        asked |= {expression}
        roles = [self._role_of_origin(item, asked) for item in found.origins if not _is_none(item)]
        for role in _PARTICIPANTS:
            if role in roles:
                return role
        settled = found.complete and roles and None not in roles
        return Role.OTHER if settled else None

    def _role_of_origin(self, origin: Origin, asked: frozenset[ast.expr]) -> Role | None:
        node = origin.expression
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        if isinstance(node, ast.BoolOp):
            operands = [self._role_of(item, origin.function, asked) for item in node.values]
            return next((role for role in _PARTICIPANTS if role in operands), None)
        if not isinstance(node, ast.Call):
            return Role.OTHER
        declared = roles_of(origin.function.module).call_role(node, origin.function)
        if declared is not None:
            return declared
        symbol = self.objects.symbol(node.func, origin.function)
        if isinstance(symbol, Class):
            return self._role_of_class(symbol)
        inner = same_object(node)
        return self._role_of(inner, origin.function, asked) if inner is not None else None

    def _role_of_class(self, owner: Class) -> Role | None:
        """The role of the objects of a project class, by all of its bases in whatever file."""
        roles = {roles_of(item.module).class_role(item) for item in self.objects.ancestry(owner)}
        found = next((role for role in _PARTICIPANTS if role in roles), None)
        return found or Role.OTHER


def _is_none(origin: Origin) -> bool:
    return isinstance(origin.expression, ast.Constant) and origin.expression.value is None
