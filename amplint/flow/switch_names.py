"""Names of a module that decide whether its scalers are on: what its body binds them to counts."""

from __future__ import annotations

import ast

from amplint.amp.roles import Role, Roles
from amplint.code.dataflow import bindings_of
from amplint.code.module import Module
from amplint.code.statements import assignments_of
from amplint.code.tree import walk


def switch_names(roles: Roles) -> frozenset[str]:
    """Names of a module that the constructors of its scalers read, or what these read is made of.

    By name only: a name too many costs time.
    """
    found: set[str] = set()
    for site in roles.module.calls:
        given = [*site.node.args, *(word.value for word in site.node.keywords)]
        if given and roles.call_role(site.node, site.function) is Role.SCALER:
            found |= {name for item in given for name in _names(item)}
    if not found:
        return frozenset()
    own = bindings_of(roles.module.body).keys() - roles.module.scopes.aliases.keys()
    return frozenset((found | _made_of(found, roles.module)) & own)


def _made_of(names: set[str], module: Module) -> set[str]:
    """What the values of names are computed from, by every assignment in the module."""
    made: dict[str, set[str]] = {}
    for node in module.nodes():
        if isinstance(node, ast.Assign):
            for target, value in assignments_of(node):
                if isinstance(target, ast.Name) and value is not None:
                    made.setdefault(target.id, set()).update(_names(value))
    found: set[str] = set()
    open_names = list(names)
    while open_names:
        for name in made.get(open_names.pop(), set()) - found:
            found.add(name)
            open_names.append(name)
    return found


def _names(expression: ast.AST) -> set[str]:
    return {
        node.id
        for node in walk(expression)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
