"""What statements at the top of a file bind, and what they change beside that: read from their text."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

_IMPORTS = (ast.Import, ast.ImportFrom)
#: Methods that put something into a container.
_FILLING = frozenset(
    {"append", "add", "insert", "extend", "update", "setdefault", "appendleft", "__setitem__"}
)


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds, without those of nested functions."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
        return
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from bound_names(child)
        elif isinstance(child, ast.ExceptHandler):
            for inner in child.body:
                yield from bound_names(inner)
        else:
            yield from _stored(child)


def is_decorated_with(statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement defines something under a decorator of one of these names."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    return any(root_of(decorator) in names for decorator in statement.decorator_list)


def imported_by(statement: ast.stmt) -> Iterator[str]:
    """The names that an import binds; none of other statements."""
    return bound_names(statement) if isinstance(statement, _IMPORTS) else iter(())


def imported_modules(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    """The modules that an import names, and the level of the import; none of other statements."""
    if isinstance(statement, ast.ImportFrom):
        yield statement.module or "", statement.level
    elif isinstance(statement, ast.Import):
        yield from ((alias.name, 0) for alias in statement.names)


def changed_at_once(statement: ast.stmt) -> set[str]:
    """The names whose objects a statement changes beside the names that it binds."""
    if isinstance(statement, ast.ClassDef):
        return {root_of(base) for base in statement.bases}
    if isinstance(statement, (ast.For, ast.While)):
        return {name for inner in statement.body for name in changed_at_once(inner)}
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return {root_of(statement.value)}
    if isinstance(statement, (ast.Assign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {_root_of_store(target) for target in targets}
    return set()


def _root_of_store(target: ast.expr) -> str:
    """The name "cfg" of `cfg.TRAIN["lr"] = 0.1`; "" for a plain name."""
    if not isinstance(target, (ast.Attribute, ast.Subscript)):
        return ""
    inner: ast.expr = target
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
    return root_of(inner)


def calls_one_of(statement: ast.stmt, functions: Collection[str]) -> bool:
    """Whether a statement is a call such as `registry.register(f)` of one of these functions."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    callee = statement.value.func
    return getattr(callee, "attr", getattr(callee, "id", "")) in functions


def changed_by(statement: ast.stmt) -> set[str]:
    """Names that a function, or a method of a class, binds or fills in its module."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return set()
    nodes = list(ast.walk(statement))
    found = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    filled = (
        node.value
        for node in nodes
        if (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.Attribute) and node.attr in _FILLING)
    )
    return found | {node.id for node in filled if isinstance(node, ast.Name)}


def stored_attribute(statement: ast.stmt) -> str:
    """The name "HOOK" of `registry.HOOK = f`; "" for anything else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    return target.attr if isinstance(target, ast.Attribute) else ""


def writes_to(statement: ast.stmt, container: str) -> bool:
    """Whether a statement is `HOOKS.append(f)`, `registry.MODELS["a"] = A` or `registry.HOOK = f`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        written: ast.AST = statement.value.func
    elif stored_attribute(statement) == container:
        return True
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        written = statement.targets[0].value
    else:
        return False
    return any(
        getattr(node, "id", getattr(node, "attr", "")) == container for node in ast.walk(written)
    )


def root_of(expression: ast.expr) -> str:
    """The name "bus" of `bus.on("step")`; "" for what begins with no name."""
    while isinstance(expression, (ast.Call, ast.Attribute)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def configured(statement: ast.stmt) -> str:
    """The name "cfg" of `cfg.TRAIN.LR = 0.1`; "" for anything else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target: ast.expr = statement.targets[0]
    if not isinstance(target, ast.Attribute):
        return ""
    while isinstance(target, ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _stored(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
