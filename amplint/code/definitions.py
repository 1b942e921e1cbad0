"""What the text of a class or a function defines: fields, returned values, annotations, stubs."""

from __future__ import annotations

import ast
import re

from amplint.code.arguments import is_decorated, parameters
from amplint.code.dataflow import Binding
from amplint.code.expressions import is_none, last_name
from amplint.code.module import Class, Function, Module

#: Files that pytest collects tests from, or fixtures ("Conventions for Python test discovery").
_TEST_FILE = re.compile(r"(?:test_[^/\\]*|[^/\\]*_test|conftest)\.py$")
_MEMOISES = frozenset(("functools.cache", "functools.lru_cache"))


def is_of_tests(function: Function) -> bool:
    """Whether a function is a test, or stands in a file of tests: no user of the project runs it."""
    return function.name.startswith("test") or is_test_file(function.module.filename)


def is_test_file(filename: str) -> bool:
    """Whether pytest takes a file for tests, or fixtures of tests."""
    return _TEST_FILE.match(re.split(r"[/\\]", filename)[-1]) is not None


def class_fields(owner: Class) -> dict[str, list[Binding]]:
    """What the statements of a class body bind; a dataclass field without default has None."""
    known = owner.module.once(_fields_by_class)
    if owner not in known:
        known[owner] = _fields_of(owner)
    return known[owner]


def _fields_by_class(module: Module) -> dict[Class, dict[str, list[Binding]]]:
    """Filled class by class, as they are asked for."""
    return {}


def _fields_of(owner: Class) -> dict[str, list[Binding]]:
    found: dict[str, list[Binding]] = {}
    for statement in owner.node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            binding = Binding(statement, statement.value, owner.module.body)
            found.setdefault(statement.target.id, []).append(binding)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    binding = Binding(statement, statement.value, owner.module.body)
                    found.setdefault(target.id, []).append(binding)
    return found


def returned(function: Function) -> list[ast.expr]:
    """The values of all return statements of a function that return one."""
    return [
        node.value
        for node in function.nodes
        if isinstance(node, ast.Return) and node.value is not None
    ]


def delegate(getter: Function) -> ast.expr | None:
    """The object whose attributes a `__getattr__` gives as its own: `return getattr(self.inner, name)`."""
    results = returned(getter)
    if len(results) != 1 or not isinstance(results[0], ast.Call) or len(results[0].args) != 2:
        return None
    asked, name = results[0].args
    wanted = [*parameters(getter)][1:2]
    is_same = isinstance(name, ast.Name) and wanted == [name.id]
    return asked if is_same and last_name(results[0].func) == "getattr" else None


def plain_annotation(annotation: ast.expr) -> ast.expr:
    """`Net` of `Net`, `"Net"`, `Optional[Net]` and `Net | None`."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return plain_annotation(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return annotation
    if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Optional":
        return plain_annotation(annotation.slice)
    if isinstance(annotation, ast.BinOp):
        return annotation.left if is_none(annotation.right) else annotation.right
    return annotation


def is_stub(function: Function) -> bool:
    """Whether a body does nothing, or only refuses: subclasses are meant to replace it.

    Nothing but a docstring, `pass`, `...`, a message, and a `raise` or `assert False`.
    """
    told = [item for item in function.body if not _is_idle(item)]
    if not told:
        return True
    messages = all(isinstance(item, ast.Assign) for item in told[:-1])
    return messages and _refuses(told[-1])


def is_optional(stub: Function) -> bool:
    """Whether a stub may stay as it is: a hook that does nothing unless a subclass replaces it."""
    if is_decorated(stub, "abstractmethod"):
        return False
    return not any(_refuses(item) or _is_ellipsis(item) for item in stub.body)


def _is_ellipsis(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and value.value is ...


def _is_idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)


def _refuses(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and not statement.test.value
    return isinstance(statement, ast.Raise)


def is_memoised(function: Function) -> bool:
    """Whether a second call with equal arguments gives what the first one gave: `lru_cache`."""
    decorators = getattr(function.node, "decorator_list", ())
    return any(
        function.module.resolve(item.func if isinstance(item, ast.Call) else item) in _MEMOISES
        for item in decorators
    )
