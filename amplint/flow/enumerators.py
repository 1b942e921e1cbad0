"""Constants that are told apart by their name: members of an `Enum`, torch's types."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amplint.amp.dtypes import dotted_dtype
from amplint.code.definitions import class_fields
from amplint.code.module import Class, Function
from amplint.flow.cases import ENTRIES
from amplint.flow.program import Program
from amplint.flow.windows import literal_of

_ENUMS = frozenset({"enum.Enum", "enum.IntEnum", "enum.StrEnum"})
#: Bases whose members are equal to their values.
_EQUAL_TO_VALUES = frozenset({"str", "int", "enum.IntEnum", "enum.StrEnum"})


@dataclass(frozen=True, slots=True)
class Enumerator:
    """A constant with a name.

    Args:
        literal: what it is in conditions: "<torch.float16>", "<Precision.FP16>"; the value of a
            member that is equal to it.
        others: the other members, of the last one of an enumeration: what is none of them, is it.
    """

    literal: object
    others: tuple[object, ...] = ()


def enumerator(node: ast.expr, function: Function, program: Program) -> Enumerator | None:
    """The constant that an expression names; None for other expressions."""
    dtype = dotted_dtype(function.module.resolve(node))
    if dtype is not None:
        return Enumerator(f"<{dtype}>")
    if not isinstance(node, ast.Attribute):
        return None
    owner = program.find_class(node.value, function)
    if owner is not None and node.attr in (members := _members(owner)):
        names = list(members)
        last = node.attr == names[-1] and 1 < len(names) <= ENTRIES
        return Enumerator(members[node.attr], tuple(members.values())[:-1] if last else ())
    literal = literal_of(node) if node.attr.isupper() else None
    return None if literal is None else Enumerator(literal)


def _members(owner: Class) -> dict[str, object]:
    """The members of an enumeration, each as conditions know it; none of other classes."""
    resolve = owner.module.resolve
    bases = {resolve(base) or ast.unparse(base) for base in owner.bases}
    if bases.isdisjoint(_ENUMS):
        return {}
    by_value = not bases.isdisjoint(_EQUAL_TO_VALUES)
    found: dict[str, object] = {}
    for name, bindings in class_fields(owner).items():
        value = bindings[-1].value
        known = isinstance(value, ast.Constant) and isinstance(value.value, (str, int))
        found[name] = value.value if by_value and known else f"<{owner.name}.{name}>"  # type: ignore[union-attr]
    return found
