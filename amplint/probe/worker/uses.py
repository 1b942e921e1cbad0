"""How the user's source uses each path: what it is compared with, unpacked into, asked for.

This is what tells a flag from a number where nothing else is known. Paths are written as
the source writes them: "args.amp", "self.scaler".
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


@dataclass(slots=True)
class Use:
    """Everything that a file does with one path.

    Args:
        compared: constants that it is compared with.
        none: whether it is compared with None.
        truth: whether it is a condition, or a part of one.
        arithmetic: whether it is a number in an expression or the argument of `range`.
        called: whether it is called.
        given: paths of what it is called with.
        attributes: names read from it.
        keys: constant strings that it is subscripted with.
    """

    compared: list[Any] = field(default_factory=list)
    none: bool = False
    truth: bool = False
    arithmetic: bool = False
    called: bool = False
    given: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)


class Uses:
    """The uses of all paths of some files."""

    def __init__(self) -> None:
        self._uses: dict[str, Use] = {}
        self._by_leaf: dict[str, list[Use]] = {}
        #: What lies in modules says nothing about values of the same name: torch.amp, args.amp.
        self._imported: set[str] = set()

    def read(self, tree: ast.AST) -> None:
        """Add the uses of one file."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._imported |= {(name.asname or name.name).split(".")[0] for name in node.names}
        for node in nodes:
            self._node(node)

    def of(self, path: str) -> Use:
        """The use of a path, or of those whose last two names are the same, or an empty one."""
        found = self._uses.get(path)
        if found is not None:
            return found
        if "." not in path:
            return Use()
        return _merged(self._by_leaf.get(path.rsplit(".", 1)[-1], ()))

    def keys(self) -> list[str]:
        """All constant string keys, in order of appearance."""
        return list(dict.fromkeys(key for use in self._uses.values() for key in use.keys))

    def _use(self, node: ast.AST) -> Use:
        path = path_of(node)
        if path is None:
            return Use()
        use = self._uses.get(path)
        if use is None:
            use = self._uses[path] = Use()
            if "." in path and path.split(".")[0] not in self._imported:
                self._by_leaf.setdefault(path.rsplit(".", 1)[-1], []).append(use)
        return use

    def _node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            self._compare(node)
        elif isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            self._condition(node.test)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self._condition(value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            self._use(node.left).arithmetic = True
            self._use(node.right).arithmetic = True
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Attribute):
            self._use(node.value).attributes.add(node.attr)
        elif isinstance(node, ast.Subscript):
            self._subscript(node)

    def _subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            self._use(node.value).keys.append(node.slice.value)

    def _condition(self, test: ast.expr) -> None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test = test.operand
        self._use(test).truth = True

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for operator, left, right in zip(node.ops, sides, sides[1:]):
            if isinstance(operator, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
                self._use(left).arithmetic = True
                self._use(right).arithmetic = True
            for path, other in ((left, right), (right, left)):
                for constant in _constants(other):
                    if constant is None:
                        self._use(path).none = True
                    else:
                        self._use(path).compared.append(constant)

    def _call(self, node: ast.Call) -> None:
        use = self._use(node.func)
        use.called = True
        paths = map(path_of, (*node.args, *(keyword.value for keyword in node.keywords)))
        use.given |= {path for path in paths if path is not None}
        name = path_of(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            for key in node.args[:1]:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    self._use(node.func.value).keys.append(key.value)
        if name == "range":
            for argument in node.args:
                self._use(argument).arithmetic = True


def path_of(node: ast.AST) -> str | None:
    """ "a.b.c" for names and attributes of names, else None."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(names)])


def _constants(node: ast.expr) -> Iterable[Any]:
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [entry.value for entry in node.elts if isinstance(entry, ast.Constant)]
    return []


def _merged(uses: Iterable[Use]) -> Use:
    merged = Use()
    for use in uses:
        merged.compared.extend(use.compared)
        merged.keys.extend(use.keys)
        merged.attributes |= use.attributes
        merged.none |= use.none
        merged.truth |= use.truth
        merged.arithmetic |= use.arithmetic
        merged.called |= use.called
        merged.given |= use.given
    return merged
