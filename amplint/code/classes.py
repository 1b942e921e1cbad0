"""The order in which Python looks through a class and its bases, in whatever files they are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from amplint.code.expressions import last_name
from amplint.code.module import Class, Function, Module

#: The class that a base expression of a class names; None if it is not in sight.
Resolve = Callable[[ast.expr, "Class"], "Class | None"]


@dataclass(frozen=True, slots=True, eq=False)
class Ancestry:
    """A class and its bases.

    Args:
        order: the class itself, then its bases in the order of method resolution (C3). What is
            known of it: a base that is not in sight has bases of its own.
        unknown: base expressions, of the class or of its bases, that are not in sight. Any
            attribute may come from them; without any the order is complete.
        consistent: False where Python refuses the class. The bases are then nearest first.
    """

    order: tuple[Class, ...]
    unknown: tuple[ast.expr, ...] = ()
    consistent: bool = True


def ancestry(owner: Class, resolve: Resolve) -> Ancestry:
    """A class and its bases, each one once."""
    return _Linearised(resolve).of(owner)


def method_of(order: Iterable[Class], name: str) -> Function | None:
    """The first method of this name in an order of classes."""
    return next((item.methods[name] for item in order if name in item.methods), None)


def ancestry_in_file(owner: Class) -> list[Class]:
    """The class and its bases in its own file, in the order of method resolution."""
    return list(ancestry(owner, _in_this_file).order)


def subclasses_in(module: Module, owner: Class) -> list[Class]:
    """Classes of a file that have `owner` among their bases there, directly or not."""
    return list(module.once(_heirs_in_file).get(owner, ()))


def classes_of(module: Module) -> tuple[Class, ...]:
    """Every class of a file, those inside functions and other classes included."""
    return tuple(item for item in module.definitions.values() if isinstance(item, Class))


def _heirs_in_file(module: Module) -> dict[Class, list[Class]]:
    heirs: dict[Class, list[Class]] = {}
    for item in module.once(classes_of):
        for base in ancestry_in_file(item)[1:]:
            heirs.setdefault(base, []).append(item)
    return heirs


def _in_this_file(base: ast.expr, owner: Class) -> Class | None:
    if not isinstance(base, ast.Name):
        return None
    meaning = owner.module.scopes.resolve(base)
    found = owner.module.definitions.get(meaning.definition) if meaning.definition else None
    return found if isinstance(found, Class) else None


class _Linearised:
    """One question, with the answers for the bases."""

    def __init__(self, resolve: Resolve) -> None:
        self.resolve = resolve
        self.known: dict[Class, Ancestry] = {}
        self.pending: list[Class] = []

    def of(self, owner: Class) -> Ancestry:
        if owner not in self.known:
            self.pending.append(owner)
            self.known[owner] = self._find(owner)
            self.pending.pop()
        return self.known[owner]

    def _find(self, owner: Class) -> Ancestry:
        bases: list[Class] = []
        unknown: list[ast.expr] = []
        for expression in owner.bases:
            base = self.resolve(expression, owner)
            if base is not None and base not in self.pending:  # `class Net(Net)` is another one
                bases.append(base)
            elif not isinstance(expression, ast.Name) or last_name(expression) != "object":
                unknown.append(expression)
        found = [self.of(base) for base in bases]
        unknown += [item for one in found for item in one.unknown]
        rest = _merged([*(one.order for one in found), bases])
        is_consistent = rest is not None and all(one.consistent for one in found)
        if rest is None:
            rest = [*bases, *(item for one in found for item in one.order)]
        return Ancestry(
            tuple(dict.fromkeys((owner, *rest))), tuple(dict.fromkeys(unknown)), is_consistent
        )


def _merged(orders: Sequence[Sequence[Class]]) -> list[Class] | None:
    """One order that keeps all of these (C3); None if there is none."""
    left = [list(order) for order in orders if order]
    found: list[Class] = []
    while left:
        heads = (order[0] for order in left)
        head = next((item for item in heads if all(item not in each[1:] for each in left)), None)
        if head is None:
            return None
        found.append(head)
        left = [[item for item in order if item is not head] for order in left]
        left = [order for order in left if order]
    return found
