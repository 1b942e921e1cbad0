"""What the files of a project hand to libraries when they are imported: handlers of events.

`@bus.on("before_clip")` registers a function that the library calls later, and is given nothing then.
Nothing of that runs in a module that is only read, so it is told by the text.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amplint.probe.worker.context import Run
from amplint.probe.worker.effects import root_of
from amplint.probe.worker.sources import KEPT, ModuleSource, Project, rows_of

#: What the text of a handler says that may do something to a scaler, an optimizer or gradients.
_MATTERING = re.compile(r"scaler|optim|grad|unscale_|\.step\(|\.update\(", re.IGNORECASE)
#: Names in names that are followed to where a library comes in.
_DEPTH = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Registration:
    """A function, or a class, that a library is handed as its file is imported.

    Args:
        filename, first, last: its rows.
        packages: those from outside that may be who gets it.
    """

    filename: str
    first: int
    last: int
    packages: frozenset[str]


def packages_with_handlers(run: Run) -> frozenset[str]:
    """The packages from outside that may call what touches a scaler whenever they are called.

    What holds a row that the run is about is not called in the middle of itself.
    """
    rows, checked = run.plan.target_rows, run.project.checked
    found: set[str] = set()
    for handed in registrations(run.project):
        is_itself = handed.filename == checked and any(
            handed.first <= row <= handed.last for row in rows
        )
        found |= frozenset() if is_itself else handed.packages
    return frozenset(found)


@functools.lru_cache(maxsize=KEPT)
def registrations(project: Project) -> tuple[Registration, ...]:
    """What the files of a project hand to libraries that may touch a scaler."""
    return tuple(
        Registration(module.filename, *rows_of(node), packages)
        for module in project.modules_with(_MATTERING)
        for root, node in _handed(module)
        if _MATTERING.search(module.text_of(node))
        and (packages := frozenset(_packages(root, module, project, _DEPTH)))
    )


def _handed(module: ModuleSource) -> Iterator[tuple[str, ast.AST]]:
    """Who gets a function or class as the module is imported, and what."""
    for statement in module.statements:
        inner = statement.body if isinstance(statement, ast.ClassDef) else []
        for node in (statement, *inner):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                yield from ((root_of(decorator), node) for decorator in node.decorator_list)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            for given in _given(statement.value, module):
                yield root_of(statement.value), given


def _given(call: ast.Call, module: ModuleSource) -> Iterator[ast.AST]:
    """What a call gets: functions and classes of the same file, or something else."""
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        defined = module.definition(argument.id) if isinstance(argument, ast.Name) else None
        yield defined or argument


def _packages(name: str, module: ModuleSource, project: Project, depth: int) -> set[str]:
    """The packages from outside that a name of a module comes from."""
    found: set[str] = set()
    for index in module.bindings.get(name, ()) if depth else ():
        statement = module.statements[index]
        if isinstance(statement, ast.Import):
            found |= {
                alias.name.split(".")[0]
                for alias in statement.names
                if (alias.asname or alias.name.split(".")[0]) == name
                and project.find(alias.name, module.filename, 0) is None
            }
        elif isinstance(statement, ast.ImportFrom):
            found |= _imported(name, statement, module, project, depth)
        else:
            inner = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            for other in inner - {name}:
                found |= _packages(other, module, project, depth - 1)
    return found


def _imported(
    name: str, statement: ast.ImportFrom, module: ModuleSource, project: Project, depth: int
) -> set[str]:
    place = project.find(statement.module or "", module.filename, statement.level)
    if place is None:
        return {statement.module.split(".")[0]} if statement.module else set()
    source = project.module(place)
    if source is None:
        return set()
    original = next(a.name for a in statement.names if (a.asname or a.name) == name)
    return _packages(original, source, project, depth - 1)
