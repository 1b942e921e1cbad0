"""What a program puts in the place of what a class or torch has: in subclasses, and by storing it.

A run builds an object of the class that holds a method. Where a program has none but of its
subclasses, or gives it another method later, what is written there never happens.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

from amplint.code.arguments import receiver_of
from amplint.code.classes import method_of
from amplint.code.dataflow import outside_stores
from amplint.code.definitions import class_fields
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Class, Function, Module
from amplint.probe.messages import Note
from amplint.probe.modules import is_launcher, is_observer
from amplint.values.objects import Objects

#: Calls that are given classes and make no objects of them.
_ASKING = frozenset({"super", "isinstance", "issubclass"})
#: Functions that store an attribute whose name they are given as a text (builtins, unittest.mock).
_SETTERS = frozenset({"setattr", "__setattr__"})
_PATCHES = frozenset({"unittest.mock.patch.object", "mock.patch.object"})
_PATCHES_BY_PATH = frozenset({"unittest.mock.patch", "mock.patch"})
#: What torch is asked for in a round of mixed precision, by its names there.
_OF_ROUNDS = (
    *("GradScaler", "scale", "unscale_", "step", "update", "autocast", "backward", "grad"),
    *("zero_grad", "clip_grad_norm_", "clip_grad_value_", "get_total_norm", "half", "__call__"),
)


def doubt_about(function: Function, objects: Objects, around: Iterable[Module]) -> Note | None:
    """Something else that a program may have in the place of what a function calls.

    Args:
        around: the modules that programs which call the function import.
    """
    owner = function.owner.name if function.owner else ""
    place, name = replaced_in_torch(around)
    if name:
        return Note("stored", place, detail=name)
    callee, row = given_away(function, objects)
    if callee:
        return Note("untouched", callee, row)
    replaced = replaced_below(function, objects)
    if replaced:
        return Note("derived", owner, detail=replaced)
    stored = stored_outside(function, objects)
    return Note("stored", owner, detail=stored) if stored else None


def given_away(function: Function, objects: Objects) -> tuple[str, int]:
    """The function of a library that is given the class of a method, and may make another of it,
    and the row of the call; ("", 0) if there is none."""
    owner = function.owner
    if owner is None:
        return "", 0
    for module in (owner.module, *objects.project.mentioning(owner.module, owner.name)):
        called = _called(module)
        for site in module.calls:
            if id(site.node) not in called:
                continue  # what it makes of the class, it keeps
            given = (*site.node.args, *(keyword.value for keyword in site.node.keywords))
            callee = module.resolve(site.node.func) or ""
            if (
                not callee
                or is_launcher(callee)
                or is_observer(callee)
                or _is_ours(callee, module, objects)
            ):
                continue
            if any(isinstance(part, ast.Name) and part.id == owner.name for part in given):
                return callee, site.node.lineno
    return "", 0


def _called(module: Module) -> set[int]:
    """The calls whose result is called in its turn, as a class is."""
    nodes = list(ast.walk(module.tree))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {function.id for function in functions if isinstance(function, ast.Name)}
    bound = (
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in names for target in node.targets)
    )
    return {id(node) for node in (*functions, *bound) if isinstance(node, ast.Call)}


def _is_ours(callee: str, module: Module, objects: Objects) -> bool:
    """Whether a function belongs to the project, to torch or to Python."""
    top = callee.split(".")[0]
    known = top == "torch" or top in sys.stdlib_module_names
    return known or objects.project.module_named(top, module) is not None


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
    used = sorted(_used(function, family) & known | _tested(function))
    return next((name for name in used if objects.outside_stores(owner.module, name)), "")


def replaced_in_torch(around: Iterable[Module]) -> tuple[str, str]:
    """A module or class of torch on which a file stores what a round of training calls, and its
    name; ("", "") if there is none."""
    for module in around:
        for name in _OF_ROUNDS:
            for place in _stores(module, name):
                if place.split(".")[0] == "torch":
                    return place, name
    return "", ""


def _stores(module: Module, name: str) -> Iterator[str]:
    """On what a file stores an attribute, `self` excluded: dotted where that is imported."""
    for receiver, stored in module.once(outside_stores).get(name, ()):
        yield stored.function.module.resolve(receiver) or ""
    yield from module.once(_stores_by_text).get(name, ())


def _stores_by_text(module: Module) -> dict[str, list[str]]:
    """What is stored under names that are given as texts: `setattr(Trainer, "step", step)`."""
    found: dict[str, list[str]] = {}
    for site in module.calls:
        callee, arguments = module.resolve(site.node.func) or "", site.node.args
        texts = [a.value if isinstance(a, ast.Constant) else None for a in arguments[:2]]
        if callee in _PATCHES_BY_PATH and texts and isinstance(texts[0], str):
            place, _, name = texts[0].rpartition(".")
            found.setdefault(name, []).append(place)
            continue
        if callee not in _PATCHES and last_name(site.node.func) not in _SETTERS:
            continue
        if len(texts) == 2 and isinstance(texts[1], str) and path_text(arguments[0]) != "self":
            found.setdefault(texts[1], []).append(module.resolve(arguments[0]) or "")
    return found


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


def _tested(function: Function) -> set[str]:
    """The attributes of its object that decide about what a method does."""
    own = receiver_of(function)
    return {
        node.attr
        for test in (getattr(node, "test", None) for node in function.nodes)
        if test is not None
        for node in ast.walk(test)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == own
    }


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
