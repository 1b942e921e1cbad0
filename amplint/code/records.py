"""Classes whose constructor only fills fields: dataclasses, named tuples, attrs, pydantic."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from amplint.code.arguments import Parameter, optional
from amplint.code.expressions import last_name
from amplint.code.module import Class, Module

_DECORATORS = frozenset({"dataclass", "define", "frozen", "mutable", "attrs", "s", "attributes"})
_BASES = frozenset({"NamedTuple", "BaseModel", "BaseSettings", "Struct"})
#: Calls of attrs that declare a field.
_DECLARERS = frozenset({"ib", "attrib", "field"})
#: Decorators of pydantic under which a method may change what is passed.
_VALIDATORS = frozenset({"validator", "root_validator", "field_validator", "model_validator"})
#: Methods that run after the fields are filled.
AFTER_FILLING = ("__post_init__", "__attrs_post_init__", "model_post_init")


def is_record(owner: Class) -> bool:
    """Whether a class, or what it is decorated with, says that its fields are its parameters."""
    decorators = (
        item.func if isinstance(item, ast.Call) else item for item in owner.node.decorator_list
    )
    if any(_word(item, owner) in _DECORATORS for item in decorators):
        return True
    return any(_word(base, owner) in _BASES for base in owner.bases)


def _word(expression: ast.expr, owner: Class) -> str:
    """The last name of an expression, under whatever name it was imported."""
    return (owner.module.resolve(expression) or last_name(expression)).rpartition(".")[2]


def fields_of(owner: Class) -> list[str]:
    """The fields that a class itself declares as parameters, in order."""
    return [
        target.id
        for statement in owner.node.body
        for target in _targets(statement, owner)
        if isinstance(target, ast.Name) and not _is_no_parameter(statement)
    ]


def record_parameters(family: Iterable[Class]) -> Mapping[str, Parameter]:
    """What the generated constructor of a class takes; a call may leave each of them out.

    Args:
        family: the class and its bases, nearest first.
    """
    names = [name for item in reversed([*family]) for name in fields_of(item)]
    return optional(dict.fromkeys(names))


def is_named_tuple(owner: Class) -> bool:
    """Whether the objects of a record are taken apart by place: its fields, in order."""
    return any(_word(base, owner) == "NamedTuple" for base in owner.bases)


def is_typed_dict(owner: Class) -> bool:
    """Whether the objects of a class are dicts whose keys are the words of its call."""
    return any(_word(base, owner) == "TypedDict" for base in owner.bases)


def tuple_fields(made: ast.expr, module: Module) -> list[str]:
    """The fields that `namedtuple("Parts", "model scaler")` declares, in order; none if it is none."""
    if not isinstance(made, ast.Call) or len(made.args) < 2:
        return []
    if (module.resolve(made.func) or "") not in ("collections.namedtuple", "typing.NamedTuple"):
        return []
    try:
        fields = ast.literal_eval(made.args[1])
    except ValueError:
        fields = _typed_fields(made.args[1])
    if isinstance(fields, str):
        return fields.replace(",", " ").split()
    return [item for item in fields if isinstance(item, str)]


def _typed_fields(fields: ast.expr) -> list[str]:
    """The names in `[("model", nn.Module), ("scaler", GradScaler)]`."""
    pairs = fields.elts if isinstance(fields, (ast.List, ast.Tuple)) else []
    names = [item.elts[0] for item in pairs if isinstance(item, ast.Tuple) and item.elts]
    values = [item.value for item in names if isinstance(item, ast.Constant)]
    return [value for value in values if isinstance(value, str)]


def keeps_values(owner: Class) -> bool:
    """Whether the fields of an object are what its class was called with: no validator, no converter."""
    for statement in owner.node.body:
        decorators = getattr(statement, "decorator_list", ())
        calls = [item.func if isinstance(item, ast.Call) else item for item in decorators]
        if any(_word(item, owner) in _VALIDATORS for item in calls):
            return False
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call) and any(word.arg == "converter" for word in value.keywords):
            return False
    return True


def _targets(statement: ast.stmt, owner: Class) -> list[ast.expr]:
    """What a statement declares: `amp: bool`, or `amp = attr.ib()` without a type."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return []
    return statement.targets if _word(statement.value.func, owner) in _DECLARERS else []


def _is_no_parameter(statement: ast.stmt) -> bool:
    """`ClassVar[...]`, and `field(init=False)`."""
    if isinstance(statement, ast.AnnAssign) and "ClassVar" in ast.unparse(statement.annotation):
        return True
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Call) and any(
        word.arg == "init" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in value.keywords
    )
