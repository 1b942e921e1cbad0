"""Classes whose constructor only fills fields: dataclasses, named tuples, attrs, pydantic."""

from __future__ import annotations

import ast

from amplint.project.module import Class
from amplint.project.roles import last_name

_DECORATORS = frozenset({"dataclass", "define", "frozen", "mutable", "attrs", "s", "attributes"})
_BASES = frozenset({"NamedTuple", "BaseModel", "BaseSettings", "Struct"})


def is_record(owner: Class) -> bool:
    """Whether a class, or what it is decorated with, says that its fields are its parameters."""
    decorators = (
        item.func if isinstance(item, ast.Call) else item for item in owner.node.decorator_list
    )
    if any(last_name(item) in _DECORATORS for item in decorators):
        return True
    return any(last_name(base) in _BASES for base in owner.bases)


def fields_of(owner: Class) -> list[str]:
    """The fields that a class itself declares as parameters, in order."""
    return [
        statement.target.id
        for statement in owner.node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and not _is_no_parameter(statement)
    ]


def _is_no_parameter(statement: ast.AnnAssign) -> bool:
    """`ClassVar[...]`, and `field(init=False)`."""
    if "ClassVar" in ast.unparse(statement.annotation):
        return True
    value = statement.value
    return isinstance(value, ast.Call) and any(
        word.arg == "init" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in value.keywords
    )
