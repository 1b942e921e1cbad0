"""What a class leaves to its subclasses, and what its bases may bring along."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from amplint.code.definitions import class_fields, is_optional, is_stub
from amplint.code.module import Class, Function
from amplint.flow.program import Program
from amplint.flow.values import Value

#: Bases that add nothing to a class; and those that bring methods along, and no scaler.
_PLAIN = frozenset(("object", "ABC", "abc.ABC"))
_MODULE = frozenset(("Module", "nn.Module", "torch.nn.Module"))


def unknown_bases(family: Iterable[Class], program: Program) -> Iterator[str]:
    """The bases of classes that are not of the program, as far as they add anything."""
    for owner in family:
        for base in owner.bases:
            if program.find_class(base, owner.module.body) is None:
                dotted = owner.module.resolve(base) or ast.unparse(base)
                if dotted not in _PLAIN:
                    yield dotted


def may_inherit_scaler(family: Iterable[Class], program: Program) -> bool:
    """Whether a base that nobody knows may give objects of classes a scaler."""
    return not _MODULE.issuperset(unknown_bases(family, program))


def is_declared(owner: Class, name: str, program: Program) -> bool:
    """Whether a class leaves a method of its objects to its subclasses."""
    method = program.find_method(owner, name)
    return method is None or is_stub(method)


def is_incomplete(owner: Class, program: Program) -> bool:
    """Whether there is a method that a class leaves to its subclasses."""
    names = {name for item in program.ancestry(owner) for name in item.methods}
    return any(is_declared(owner, name, program) for name in names)


def completing(function: Function, program: Program) -> list[Class]:
    """Subclasses that define what a method calls on its object and its class only declares."""
    owner = function.owner
    if owner is None or function.name == "__init__":
        return []
    declared = _declared_below(function, owner, program)
    if not declared:
        return []
    required = {name for name, method in declared.items() if not is_optional(method)}
    return [
        heir
        for heir in program.subclasses(owner)
        if program.find_method(heir, function.name) is function
        and not any(is_declared(heir, name, program) for name in required)
        and not all(is_declared(heir, name, program) for name in declared)
    ]


def _declared_below(function: Function, owner: Class, program: Program) -> dict[str, Function]:
    """Methods that a class only declares, and that one of its methods leads to, by name."""
    declared: dict[str, Function] = {}
    seen: set[str] = set()
    pending = [function]
    while pending:
        fresh = program.facts(pending.pop()).callees - seen
        seen |= fresh
        for method in filter(None, (program.find_method(owner, name) for name in fresh)):
            if is_stub(method):
                declared[method.name] = method
            else:
                pending.append(method)
    return declared


def is_abstract(owner: Class, program: Program) -> bool:
    """Whether a class uses attributes of `self` that only its subclasses can have."""
    family = program.ancestry(owner)
    if may_inherit_scaler(family, program):
        return False
    methods = [method for item in family for method in item.methods.values()]
    had = {method.name for method in methods if not is_stub(method)}
    had.update(*(program.facts(method).self_stores for method in methods))
    had.update(*(class_fields(item) for item in family))
    read = {
        node.attr
        for method in methods
        for node in method.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return bool(read - had)


def construction_decides(owner: Class, program: Program) -> bool:
    """Whether the constructors of a class decide something about the protocol."""
    return program.is_interesting(owner) or program.stores_tested(owner)


def is_part_of_construction(function: Function, instance: Value, program: Program) -> bool:
    """Whether a constructor is run by that of a subclass, for an object of that class."""
    if function.name != "__init__" or instance is None or instance[0] != "instance":
        return False
    return construction_decides(instance[1], program)
