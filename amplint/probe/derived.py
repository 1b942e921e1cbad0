"""What a program puts in the place of what a class has: in subclasses, and on its objects.

A run builds an object of the class that holds a method. Where a program has none but of its
subclasses, or gives it another method later, what is written there never happens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.code.arguments import receiver_of
from amplint.code.classes import method_of
from amplint.code.definitions import class_fields
from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module
from amplint.values.objects import Objects

#: Calls that are given classes and make no objects of them.
_ASKING = frozenset({"super", "isinstance", "issubclass"})


def replaced_below(function: Function, objects: Objects) -> str:
    """What a method uses of its object and subclasses replace, where only these have objects.

    Returns: one such name, "" if there is none or the class itself has objects.
    """
    owner = function.owner
    heirs = objects.subclasses(owner) if owner is not None else ()
    if owner is None or not heirs:
        return ""
    used = _used(function, objects.ancestry(owner))
    replaced = sorted({name for heir in heirs for name in _own_names(heir)} & used)
    return "" if not replaced or _has_objects(owner, objects) else replaced[0]


def stored_outside(function: Function, objects: Objects) -> str:
    """What a method uses of its class and some file stores on an object or a class.

    Returns: one such name, "" if there is none.
    """
    owner = function.owner
    if owner is None:
        return ""
    family = objects.ancestry(owner)
    known = {name for each in family for name in _own_names(each)}
    used = sorted(_used(function, family) & known)
    return next((name for name in used if objects.outside_stores(owner.module, name)), "")


def _own_names(owner: Class) -> Iterator[str]:
    yield from owner.methods
    yield from class_fields(owner)


def _used(function: Function, family: list[Class]) -> set[str]:
    """The attributes of its object that a method reads, itself or in methods that it calls."""
    found: set[str] = set()
    pending = [function]
    while pending:
        method = pending.pop()
        own = receiver_of(method)
        read = {
            node.attr
            for node in method.nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == own
        }
        methods = (method_of(family, name) for name in read - found)
        pending += [each for each in methods if each is not None]
        found |= read
    return found


def _has_objects(owner: Class, objects: Objects) -> bool:
    """Whether any file uses a class for something else than to derive from it.

    `Objects.is_made` takes `isinstance(trainer, Base)` for a use, after which no doubt would be told.
    """
    modules = (owner.module, *objects.project.mentioning(owner.module, owner.name))
    return any(_is_used(owner.name, module) for module in modules)


def _is_used(name: str, module: Module) -> bool:
    apart: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            apart |= {id(base) for base in node.bases}
        elif isinstance(node, ast.Call) and last_name(node.func) in _ASKING:
            apart |= {id(part) for argument in node.args for part in ast.walk(argument)}
        elif isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            apart |= {id(part) for part in ast.walk(node.annotation)}
    return any(
        isinstance(node, (ast.Name, ast.Attribute))
        and last_name(node) == name
        and id(node) not in apart
        for node in ast.walk(module.tree)
    )
