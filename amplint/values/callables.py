"""Values that calls lead into the project through: objects, classes, functions, chains of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amplint.code.expressions import last_name
from amplint.code.module import Class, Function

#: Decorators that leave calls of the function as they are, by their last name.
KEEPING = frozenset(
    ("staticmethod", "classmethod", "abstractmethod", "override", "overload", "final", "wraps")
    + ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast")
    + ("custom_fwd", "custom_bwd", "once_differentiable", "record_function", "compile")
    + ("lru_cache", "cache", "singledispatch", "total_ordering", "dataclass", "jit", "script")
)
#: Decorators of methods that are read as attributes.
PROPERTIES = frozenset(("property", "cached_property", "setter", "abstractproperty"))
#: Attributes under which wrappers keep what they wrap.
UNWRAPPING = frozenset(("module", "_orig_mod"))
#: Callables that call their first argument with what else they are given.
PARTIALS = frozenset(("partial", "partialmethod"))


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the project.

    Args:
        exact: whether it was built as one; else it may be of a subclass.
    """

    owner: Class
    exact: bool


@dataclass(frozen=True, slots=True)
class Family:
    """A class of the project or one of its subclasses: `cls`, `type(self)`."""

    owner: Class


@dataclass(frozen=True, slots=True)
class Method:
    """A method that is bound to an object."""

    function: Function
    receiver: Instance


@dataclass(frozen=True, slots=True)
class Chain:
    """An object that hands on what it is called with: `nn.Sequential(Body(), Head())`.

    Args:
        parts: what of the project it calls.
        unknown: why it can call something else, too.
    """

    parts: tuple[Kind, ...]
    unknown: str


#: A value that a call can lead into the project through.
Kind = Instance | Family | Method | Function | Class | Chain


@dataclass(frozen=True, slots=True)
class Kinds:
    """What an expression can be.

    Args:
        known: each once, in the order in which they were found.
        unknown: why it can be something else, too; "" if it can not.
    """

    known: tuple[Kind, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Targets:
    """The functions of the project that a call can run.

    Args:
        unknown: why it can run others; "" if it can not.
    """

    functions: tuple[Function, ...] = ()
    unknown: str = ""

    @property
    def only(self) -> Function | None:
        """The function that it runs, if it is known to be one."""
        return self.functions[0] if len(self.functions) == 1 and not self.unknown else None


def joined(results: Iterable[Kinds]) -> Kinds:
    """What any of several expressions can be."""
    known: dict[Kind, None] = {}
    unknown = ""
    for item in results:
        known.update(dict.fromkeys(item.known))
        unknown = unknown or item.unknown
    return Kinds(tuple(known), unknown)


def decorated(function: Function) -> Targets:
    """A function, and why a call of it may run something else first."""
    for item in getattr(function.node, "decorator_list", ()):
        name = last_name(item.func if isinstance(item, ast.Call) else item)
        if name not in KEEPING and name not in PROPERTIES:
            return Targets((function,), f"decorated by `{name}`")
    return Targets((function,))


def classes_called(kinds: Kinds) -> tuple[Class, ...]:
    """The classes whose objects a call of a value runs, if it is known to be one object.

    A chain runs all of its parts.
    """
    if len(kinds.known) == 1 and isinstance(kinds.known[0], Chain):
        inner = [classes_called(Kinds((part,))) for part in kinds.known[0].parts]
        return tuple(dict.fromkeys(owner for owners in inner for owner in owners))
    found = tuple(classes_in(kinds))
    return found if len(found) == 1 else ()


def classes_in(kinds: Kinds) -> Iterator[Class]:
    """The classes whose objects an expression can be, each once."""
    yield from dict.fromkeys(kind.owner for kind in kinds.known if isinstance(kind, Instance))
