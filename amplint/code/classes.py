"""The order in which Python looks through a class and its bases, in whatever files they are."""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

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


def method_of(order: Iterable[Class], name: str) -> Function | None:
    """The first method of this name in an order of classes."""
    return next((item.methods[name] for item in order if name in item.methods), None)


def ancestry_in_file(owner: Class) -> list[Class]:
    """The class and its bases in its own file, in the order of method resolution."""
    return list(owner.module.once(_bases_in_file).of(owner).order)


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


def _bases_in_file(module: Module) -> Ancestries:
    return Ancestries(_in_this_file)


class Ancestries:
    """Classes with their bases, as one way to look for bases finds them.

    Args:
        resolve: finds the class that a base expression names.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._known: dict[Class, Ancestry] = {}

    def of(self, owner: Class) -> Ancestry:
        """A class and its bases, each one once."""
        if owner not in self._known:
            self._known[owner] = _Question(self._resolve, self._known).of(owner)
        return self._known[owner]


class _Question:
    """The bases of one class, and of its bases.

    Where bases go in a circle, their answers rest on the class that was asked about, and hold for
    this question alone.

    Args:
        known: answers that rest on no question; others are added to them.
    """

    def __init__(self, resolve: Resolve, known: dict[Class, Ancestry]) -> None:
        self.resolve = resolve
        self.known = known
        self.here: dict[Class, Ancestry] = {}
        self.pending: set[Class] = set()
        self.circular = False

    def of(self, owner: Class) -> Ancestry:
        if owner in self.known:
            return self.known[owner]
        if owner in self.here:
            self.circular = True
            return self.here[owner]
        outside, self.circular = self.circular, False
        self.pending.add(owner)
        found = self._find(owner)
        self.pending.remove(owner)
        (self.here if self.circular else self.known)[owner] = found
        self.circular |= outside
        return found

    def _find(self, owner: Class) -> Ancestry:
        bases: list[Class] = []
        unknown: list[ast.expr] = []
        for expression in owner.bases:
            base = self.resolve(expression, owner)
            if base is not None and base not in self.pending:  # `class Net(Net)` is another one
                bases.append(base)
            elif not isinstance(expression, ast.Name) or last_name(expression) != "object":
                unknown.append(expression)
            self.circular |= base in self.pending and base is not owner
        found = [self.of(base) for base in bases]
        unknown += [item for one in found for item in one.unknown]
        if len(found) == 1:
            rest: list[Class] | None = list(found[0].order)
        else:
            rest = _merged([*(one.order for one in found), bases])
        is_consistent = rest is not None and all(one.consistent for one in found)
        if rest is None:
            rest = [*bases, *(item for one in found for item in one.order)]
        return Ancestry(
            tuple(dict.fromkeys((owner, *rest))), tuple(dict.fromkeys(unknown)), is_consistent
        )


def _merged(orders: Sequence[Sequence[Class]]) -> list[Class] | None:
    """One order that keeps all of these (C3); None if there is none."""
    left = [deque(order) for order in orders if order]
    behind = Counter(item for order in left for item in islice(order, 1, None))
    found: list[Class] = []
    while left:
        head = next((order[0] for order in left if not behind[order[0]]), None)
        if head is None:
            return None
        found.append(head)
        for order in left:
            if order[0] is head:
                order.popleft()
                behind.subtract(islice(order, 1))
        left = [order for order in left if order]
    return found
