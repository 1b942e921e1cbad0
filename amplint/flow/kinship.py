"""Of which class an object is: what `isinstance` and `hasattr` say where the object is known."""

from __future__ import annotations

import ast
from typing import Any

from amplint.amp.names import GRAD_SCALERS
from amplint.code.definitions import class_fields
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function
from amplint.flow.heirs import unknown_bases
from amplint.flow.program import Program
from amplint.flow.values import Value, kind_of


def is_instance(
    value: Value, wanted: ast.expr, function: Function, program: Program
) -> bool | None:
    """Whether a value is of a class, or of one of several; None if that is not known.

    Args:
        value: as the path knows it, not as a name suggests.
        wanted: the second argument of `isinstance`, where `function` reads it.
    """
    if isinstance(wanted, ast.Tuple):
        found = [is_instance(value, item, function, program) for item in wanted.elts]
        return True if True in found else None if None in found else False
    kind = kind_of(value)
    dotted = function.module.resolve(wanted)
    named = program.find_class(wanted, function)
    if kind == "scaler":  # torch's own classes derive from each other
        other = named is not None and not program.makes_scaler(named)
        return True if dotted in GRAD_SCALERS else False if other else None
    if kind != "instance" or value is None:
        return None
    family = program.ancestry(value[1])
    if named is not None and named in family:
        return True
    if named is None and dotted not in GRAD_SCALERS:
        return None
    return None if any(unknown_bases(family, program)) else False


def lacks(value: Value, name: str, program: Program) -> bool:
    """Whether an object that the path has built can have no attribute of a name.

    Nothing in sight stores it: neither its class, nor a base, nor other code on whatever object.
    """
    if kind_of(value) != "instance" or value is None or "@" not in value[2]:
        return False
    objects, family = program.objects, program.ancestry(value[1])
    return not (
        any(unknown_bases(family, program))
        or any(map(_makes_attributes, family))
        or any(name in class_fields(item) or name in item.methods for item in family)
        or any(objects.stores(item, name) for item in family)
        or objects.outside_stores(value[1].module, name)
    )


def _makes_attributes(owner: Class) -> bool:
    """Whether a class has attributes that no assignment names."""
    return any(name in owner.methods for name in ("__getattr__", "__getattribute__")) or any(
        last_name(node) in ("setattr", "__dict__", "vars")
        for method in owner.methods.values()
        for node in method.nodes
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def is_torch_scaler(place: str) -> tuple[Any, ...]:
    """The condition that an unknown object is one of torch's scalers."""
    return ("other", f"scaler {place}", frozenset({place}))
