"""Splits a program over several files without changing what it does.

Mechanical refactorings, chosen by a seed: statements become a function of another file, or a
method of a base class; functions and classes move to another file. The result keeps the
protocol, so what is right stays right and what is wrong stays wrong.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

EVENTS = frozenset(
    ("backward", "scale", "unscale_", "step", "update", "zero_grad", "GradScaler", "SGD")
    + ("clip_grad_norm_", "clip_grad_value_", "Adam", "AdamW")
)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LEAVES = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


@dataclass
class Project:
    """A program in the making: file name without suffix -> statements; "main" is the rest."""

    files: dict[str, list[ast.stmt]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)


def split(source: str, seed: int) -> dict[str, str] | None:
    """The files of one split program by name; None if this seed's split is impossible."""
    chance = random.Random(seed)
    tree = ast.parse(source)
    project = Project({"main": tree.body})
    for _ in range(chance.randint(1, 3)):
        chance.choice((_extract, _extract, _extract, _raise_methods, _move))(project, chance)
    if len(project.files) == 1:
        return None
    imports = [node for node in ast.parse(source).body if isinstance(node, _IMPORTS)]
    return {f"{name}.py": _written(name, project, imports) for name in project.files}


def joined(files: dict[str, str]) -> str:
    """The same program as one file again: each file's text, without the imports between them."""
    names = {name.removesuffix(".py") for name in files}
    body: list[str] = []
    for name in (*(name for name in files if name != "main.py"), "main.py"):
        for node in ast.parse(files[name]).body:
            text = ast.unparse(node)
            between = isinstance(node, ast.ImportFrom) and node.module in names
            if not between and not (isinstance(node, _IMPORTS) and text in body):
                body.append(text)
    return "\n".join(body) + "\n"


_IMPORTS = (ast.Import, ast.ImportFrom)


def _written(name: str, project: Project, imports: list[ast.stmt]) -> str:
    body = [node for node in project.files[name] if not isinstance(node, _IMPORTS)]
    used = {node.id for item in body for node in ast.walk(item) if isinstance(node, ast.Name)}
    lines = [ast.unparse(node) for node in imports if _binds(node) & used or _is_future(node)]
    for other, statements in project.files.items():
        names = sorted({node.name for node in statements if isinstance(node, _DEFS)} & used)
        if other != name and names:
            lines.append(f"from {other} import {', '.join(names)}")
    module = ast.fix_missing_locations(ast.Module(body, []))
    return "\n".join(lines) + "\n\n" + ast.unparse(module) + "\n"


_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _binds(node: ast.stmt) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}  # type: ignore[attr-defined]


# -- statements become a function --------------------------------------------------------------


def _extract(project: Project, chance: random.Random) -> None:
    candidates = [
        (name, owner, function, block)
        for name, statements in project.files.items()
        for owner, function in _functions(statements)
        for block in _blocks(function)
    ]
    chance.shuffle(candidates)
    for name, owner, function, block in candidates:
        runs = [(a, b) for a in range(len(block)) for b in range(a + 1, len(block) + 1)]
        runs = [(a, b) for a, b in runs if _has_event(block[a:b]) and b - a < len(block)]
        chance.shuffle(runs)
        for start, end in runs[:8]:
            if _extract_run(project, chance, name, owner, function, block, start, end):
                return


def _functions(statements: list[ast.stmt]) -> Iterator[tuple[ast.ClassDef | None, ast.AST]]:
    plain = [node for node in statements if not isinstance(node, (*_DEFS, *_IMPORTS))]
    if _has_event(plain):
        yield None, ast.Module(statements, [])
    for node in statements:
        if isinstance(node, ast.FunctionDef):
            yield None, node
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and not item.decorator_list:
                    yield node, item


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(function, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
            for statement in block:
                if not isinstance(statement, _SCOPES):
                    yield from _blocks(statement)


def _has_event(statements: list[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in EVENTS
        for statement in statements
        for node in ast.walk(statement)
    )


def _extract_run(project, chance, name, owner, function, block, start, end) -> bool:
    run = block[start:end]
    if any(_leaves(statement, False) for statement in run):
        return False
    own = _stored(function) | _parameters(function)
    inside, outside = _names(run), _outside(function, run)
    if any(isinstance(node, _SCOPES) for item in run for node in ast.walk(item)):
        return False
    if (inside.loads | inside.stores) & _nested_names(function):
        return False
    if inside.loads & _defined(project.files[name]):
        return False
    given = {n for n in (inside.loads & own) if n in outside.stores or n in _parameters(function)}
    results = {n for n in inside.stores if n in outside.loads}
    sure = {target for item in run for target in _targets(item)}
    for result in results - sure:
        if result not in outside.stores and result not in _parameters(function):
            return False
        given.add(result)
    given -= {n for n in sure - inside.early if n not in _parameters(function)}
    home, _ = _new_home(project, chance)
    fresh = f"part_{len(project.done)}"
    project.done.append(fresh)
    as_method = owner is not None and "self" in given and chance.random() < 0.5
    names = sorted(given - {"self"})
    chance.shuffle(names)
    outs = sorted(results)
    body = list(run)
    if outs:
        body.append(ast.Return(_tuple(outs, ast.Load())))
    first = ["self"] if as_method else ["trainer"] if "self" in given else []
    if "self" in given and not as_method:
        body = [_Rename().visit(item) for item in body]
    arguments = ast.arguments([], [ast.arg(n) for n in (*first, *names)], None, [], [], None, [])
    made = ast.FunctionDef(fresh, arguments, body, [], None)
    if as_method:
        owner.body.append(made)
        callee: ast.expr = ast.Attribute(ast.Name("self", ast.Load()), fresh, ast.Load())
        passed: list[ast.expr] = []
    else:
        project.files.setdefault(home, []).append(made)
        callee = ast.Name(fresh, ast.Load())
        passed = [ast.Name("self", ast.Load())] if "self" in given else []
    if chance.random() < 0.3:
        words = [ast.keyword(n, ast.Name(n, ast.Load())) for n in names]
        call = ast.Call(callee, passed, words)
    else:
        call = ast.Call(callee, [*passed, *(ast.Name(n, ast.Load()) for n in names)], [])
    new: ast.stmt = ast.Assign([_tuple(outs, ast.Store())], call) if outs else ast.Expr(call)
    block[start:end] = [ast.fix_missing_locations(ast.copy_location(new, run[0]))]
    return True


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name("trainer", node.ctx), node) if node.id == "self" else node


def _tuple(names: list[str], context: ast.expr_context) -> ast.expr:
    items: list[ast.expr] = [ast.Name(name, context) for name in names]
    return items[0] if len(items) == 1 else ast.Tuple(items, context)


def _leaves(node: ast.AST, in_loop: bool) -> bool:
    if isinstance(node, _LEAVES):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not in_loop
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "super":
        return True
    inner = in_loop or isinstance(node, _LOOPS)
    return any(_leaves(child, inner) for child in ast.iter_child_nodes(node))


@dataclass
class _Names:
    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)  # read before this code stores them


def _names(statements: list[ast.stmt]) -> _Names:
    found = _Names()
    for statement in statements:
        own = _Names()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                (own.loads if isinstance(node.ctx, ast.Load) else own.stores).add(node.id)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                own.loads.add(node.target.id)
        found.early |= own.loads - found.stores
        found.loads |= own.loads
        found.stores |= own.stores
    return found


def _outside(function: ast.AST, run: list[ast.stmt]) -> _Names:
    skipped = {id(node) for item in run for node in ast.walk(item)}
    found = _Names()
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Name):
            (found.loads if isinstance(node.ctx, ast.Load) else found.stores).add(node.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.loads.add(node.target.id)
        pending += ast.iter_child_nodes(node)
    return found


def _stored(function: ast.AST) -> set[str]:
    return {
        node.id
        for item in function.body  # type: ignore[attr-defined]
        if not isinstance(item, _DEFS)
        for node in ast.walk(item)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _parameters(function: ast.AST) -> set[str]:
    arguments = getattr(function, "args", None)
    if arguments is None:
        return set()
    return {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}


def _targets(statement: ast.stmt) -> set[str]:
    """Names that a statement surely binds."""
    if isinstance(statement, ast.Assign):
        return {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return {statement.target.id} if isinstance(statement.target, ast.Name) else set()
    if isinstance(statement, ast.With):
        return {name for item in statement.body for name in _targets(item)}
    return set()


def _nested_names(function: ast.AST) -> set[str]:
    """Names that nested functions of a function bind or define; they must not be cut off."""
    found: set[str] = set()
    for node in ast.walk(function):
        if node is not function and isinstance(node, _SCOPES):
            if not isinstance(function, ast.Module):
                found |= {getattr(node, "name", "")}
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Global, ast.Nonlocal)):
                    found |= set(inner.names)
    return found


def _defined(statements: list[ast.stmt]) -> set[str]:
    """What a file defines at its top level, imports excluded."""
    found = {node.name for node in statements if isinstance(node, _DEFS)}
    for node in statements:
        if not isinstance(node, (*_DEFS, *_IMPORTS)):
            found |= {
                n.id
                for n in ast.walk(node)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return found


# -- methods go to a base class, definitions to another file --------------------------------------


def _raise_methods(project: Project, chance: random.Random) -> None:
    classes = [
        (name, node)
        for name, statements in project.files.items()
        for node in statements
        if isinstance(node, ast.ClassDef)
        and not node.decorator_list
        and not node.name.endswith("Base")
    ]
    if not classes:
        return
    name, node = chance.choice(classes)
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    moved = [item for item in methods if chance.random() < 0.5]
    if not moved or len(moved) == len(node.body) or _uses_super(moved):
        return
    if _free(moved) & _defined(project.files[name]):
        return
    home, _ = _new_home(project, chance)
    base = ast.ClassDef(f"{node.name}Base", list(node.bases), [], list(moved), [])
    if _free([base]) & _defined(project.files[name]) - {base.name}:
        return
    node.body = [item for item in node.body if item not in moved]
    node.bases = [ast.Name(base.name, ast.Load())]
    project.files.setdefault(home, []).append(base)
    project.done.append(base.name)


def _uses_super(nodes: list[ast.stmt]) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id in ("super", "__class__")
        for node in nodes
        for part in ast.walk(node)
    )


def _move(project: Project, chance: random.Random) -> None:
    """A function or class, with everything of the file that it needs, goes to another file."""
    statements = project.files["main"]
    movable = [
        node
        for node in statements
        if isinstance(node, _DEFS) and node.name not in ("main",) and not node.name.endswith("Base")
    ]
    movable = [
        node
        for node in movable
        if not (_free([node]) - {node.name}) & _defined(statements) and not _has_global(node)
    ]
    if not movable:
        return
    node = chance.choice(movable)
    if len([item for item in statements if not isinstance(item, _IMPORTS)]) == 1:
        return
    home, _ = _new_home(project, chance)
    statements.remove(node)
    project.files.setdefault(home, []).append(node)
    project.done.append(node.name)


def _has_global(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Global) for part in ast.walk(node))


def _free(nodes: list[ast.stmt]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _new_home(project: Project, chance: random.Random) -> tuple[str, bool]:
    names = [f"module_{index}" for index in range(1, 3)]
    home = chance.choice(names)
    return home, home in project.files
