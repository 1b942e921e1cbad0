"""Styles that spell the same imports in another way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from restyling.program import (
    DoesNotApplyError,
    Edit,
    Program,
    Source,
    codes_of_line,
    dotted_name,
)


@dataclass(frozen=True)
class Imported:
    """A name that a statement at the top of a file imports.

    Args:
        module: what stands behind `from`; empty for `import x`.
        name: what is imported, dotted for `import x.y`.
        local: the name in the file.
    """

    statement: ast.stmt
    module: str
    name: str
    local: str


def imported(source: Source) -> Iterator[Imported]:
    """The absolute imports at the top of a file, `__future__` and stars left out."""
    for statement in source.tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                local = alias.asname or alias.name.partition(".")[0]
                yield Imported(statement, "", alias.name, local)
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
            if statement.module == "__future__" or statement.names[0].name == "*":
                continue
            for alias in statement.names:
                yield Imported(
                    statement, statement.module or "", alias.name, alias.asname or alias.name
                )


def import_of(one: Imported) -> str:
    """A line that imports it under its local name."""
    renamed = one.local != (one.name if one.module else one.name.partition(".")[0])
    suffix = f" as {one.local}" if renamed else ""
    if one.module:
        return f"from {one.module} import {one.name}{suffix}\n"
    return f"import {one.name}{suffix}\n"


def _foreign(program: Program, source: Source) -> list[Imported]:
    """Imports of what is no file of the program, where nothing rebinds the name."""
    found = [
        one
        for one in imported(source)
        if program.module_of(one.module or one.name.partition(".")[0]) is None
        and program.module_of((one.module or one.name).partition(".")[0]) is None
        and program.module_of(f"{one.module}.{one.name}") is None
    ]
    bound_twice = {
        name
        for name in {one.local for one in found}
        if sum(other.local == name and bool(other.module) for other in imported(source)) > 1
    }
    return [
        one for one in found if one.local not in bound_twice and one.local not in _stored(source)
    ]


def _stored(source: Source) -> set[str]:
    """Names at the top of a file that are given another value."""
    top = source.scopes.by_node[source.tree]
    return {
        node.id
        for node, scope in source.scopes.binding.items()
        if scope is top and isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }


def _uses(source: Source, name: str) -> list[ast.Name]:
    """Where the imported name stands.

    Raises:
        DoesNotApplyError: inside an f-string, or somewhere that is not told by a position.
    """
    top = source.scopes.by_node[source.tree]
    uses = [
        node
        for node, scope in source.scopes.binding.items()
        if scope is top and isinstance(node, ast.Name) and node.id == name
    ]
    for node in uses:
        source.rename(node, name, name)
    if any(
        isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names
        for node in ast.walk(source.tree)
    ):
        raise DoesNotApplyError("global imports")
    return uses


def _without(source: Source, gone: list[Imported]) -> list[Edit]:
    """Edits that take imports out of their statements, and leave the rest of these."""
    edits = []
    for statement in dict.fromkeys(one.statement for one in gone):
        rest = [one for one in imported(source) if one.statement is statement and one not in gone]
        after = source.lines[statement.end_lineno - 1][statement.end_col_offset :].strip()
        if after and not after.startswith("#"):
            raise DoesNotApplyError("two statements in a line")
        edits.append(source.replace(statement, "".join(map(import_of, rest)).rstrip("\n")))
    return edits


def _modules_spelled(program: Program) -> Program:
    """`from a import b` becomes `import a`, and `b` becomes `a.b`."""

    def rewrite(source: Source, one: Imported) -> tuple[str, str] | None:
        if not one.module or one.module.split(".")[0] in _locals(source, one):
            return None
        return f"import {one.module}\n", f"{one.module}.{one.name}"

    return _each(program, rewrite)


def _locals(source: Source, besides: Imported) -> set[str]:
    """Names that a file binds, but for the packages that it imports as such."""
    names = {n for scope in source.scopes.by_node.values() for n in scope.names}
    packages = {
        o.name.partition(".")[0] for o in imported(source) if not o.module and o.local in o.name
    }
    return names - packages


def _aliased(program: Program) -> Program:
    """Every import gets another local name: `import torch as imported_torch`."""

    def rewrite(source: Source, one: Imported) -> tuple[str, str] | None:
        new = f"imported_{one.local}"
        if not one.module and "." in one.name and one.local == one.name.partition(".")[0]:
            return None
        line = f"from {one.module} import {one.name}" if one.module else f"import {one.name}"
        return f"{line} as {new}\n", new

    return _each(program, rewrite)


def _each(program: Program, rewrite) -> Program:
    changed = {}
    for source in program.python:
        edits: list[Edit] = []
        gone = []
        lines = []
        dotted = {o.local for o in imported(source) if not o.module and "." in o.name}
        for one in _foreign(program, source):
            if not one.module and one.local in dotted:
                continue
            spelled = rewrite(source, one)
            if spelled is None:
                continue
            uses = _uses(source, one.local)
            if not uses:
                continue
            gone.append(one)
            lines.append(spelled[0])
            edits += [source.replace(node, spelled[1]) for node in uses]
        if not gone:
            continue
        text = "".join(dict.fromkeys(lines))
        row = source.import_row()
        changed[source.name] = source.edited(
            [*_without(source, gone), source.before_row(row, text), *edits]
        )
    if not changed:
        raise DoesNotApplyError("no import at the top that could be spelled so")
    return program.with_texts(changed)


_PACKAGES = frozenset(
    {"amp", "autograd", "backends", "cuda", "distributed", "nn", "optim", "utils"}
)
_FLAT = re.compile(r"torch(\.(cuda|nn|optim|amp|autograd|utils))*\.\w+$|accelerate\.\w+$")


def _names_imported(program: Program) -> Program:
    """`import torch` and `torch.amp.GradScaler` become `from torch.amp import GradScaler`."""
    changed = {}
    for source in program.python:
        modules = {
            one.local
            for one in _foreign(program, source)
            if not one.module and one.local == one.name
        }
        bound = {n for scope in source.scopes.by_node.values() for n in scope.names}
        top = source.scopes.by_node[source.tree]
        chosen: dict[str, str] = {}
        edits = []
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            name = dotted_name(node)
            if not name or name.partition(".")[0] not in modules or not _FLAT.match(name):
                continue
            if name.count(".") == 1 and node.attr in _PACKAGES:
                continue
            if isinstance(source.parents[node], ast.Attribute) and _FLAT.match(
                dotted_name(source.parents[node])
            ):
                continue
            root = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if (
                source.scopes.binding.get(root) is not top
                or node.attr in bound
                or source.of(node) != name
            ):
                continue
            if chosen.setdefault(node.attr, name) != name:
                continue
            edits.append(source.replace(node, node.attr))
        if not chosen:
            continue
        if re.search(r"setattr\(|patch", source.text):
            raise DoesNotApplyError("functions of modules are replaced")
        lines = "".join(
            f"from {name.rpartition('.')[0]} import {name.rpartition('.')[2]}\n"
            for name in sorted(chosen.values())
        )
        changed[source.name] = source.edited(
            [source.before_row(source.import_row(), lines), *edits]
        )
    if not changed:
        raise DoesNotApplyError("no dotted name of torch")
    return program.with_texts(changed)


def _shared(program: Program, form: str) -> Program:
    """All imports come from another file of the program: by name, as a star or as attributes."""
    changed: dict[str, str] = {}
    lines: dict[str, str] = {}
    module = program.new_file("shared_names")
    for source in program.python:
        wanted = [
            one
            for one in _foreign(program, source)
            if not (not one.module and "." in one.name)
            and lines.get(one.local, import_of(one)) == import_of(one)
        ]
        used = [one for one in wanted if _uses(source, one.local)]
        if form == "star" and any(one.local.startswith("_") for one in used):
            used = []
        dotted = {o.local for o in imported(source) if not o.module and "." in o.name}
        used = [one for one in used if one.local not in dotted]
        if not used:
            continue
        for one in used:
            lines[one.local] = import_of(one)
        edits = _without(source, used)
        if form == "attribute":
            edits += [
                source.replace(node, f"{module}.{one.local}")
                for one in used
                for node in _uses(source, one.local)
            ]
            line = f"import {module}\n"
        elif form == "star":
            line = f"from {module} import *\n"
        else:
            line = f"from {module} import {', '.join(sorted(one.local for one in used))}\n"
        changed[source.name] = source.edited([*edits, source.before_row(source.import_row(), line)])
    if not changed:
        raise DoesNotApplyError("no import at the top that another file could hold")
    if form == "star" and _collides(program, changed, lines):
        raise DoesNotApplyError("a star would hide a name of the file")
    # A deprecated name may be reported where it is imported, too.
    note = "  # leads to *: AMP801\n" if _expects_deprecated(program) else "\n"
    text = "".join(line.replace("\n", note) for line in lines.values())
    return program.with_texts({**changed, f"{module}.py": text})


def _expects_deprecated(program: Program) -> bool:
    rows = (line for source in program.python for line in source.lines)
    return any("AMP801" in codes_of_line(row) for row in rows)


def _collides(program: Program, changed: dict[str, str], lines: dict[str, str]) -> bool:
    for source in program.python:
        if source.name in changed:
            own = {one.local for one in imported(source)}
            if (source.scopes.by_node[source.tree].names - own) & set(lines):
                return True
    return False


def import_module(program: Program) -> Program:
    """`from torch.amp import GradScaler` is `import torch.amp`, used as `torch.amp.GradScaler`."""
    return _modules_spelled(program)


def import_alias(program: Program) -> Program:
    """`import torch as imported_torch`, `from x import y as imported_y`."""
    return _aliased(program)


def import_names(program: Program) -> Program:
    """`torch.amp.GradScaler` is imported by its own name."""
    return _names_imported(program)


def import_reexport(program: Program) -> Program:
    """The names come through another file of the program."""
    return _shared(program, "names")


def import_star(program: Program) -> Program:
    """The names come through another file of the program, with a star."""
    return _shared(program, "star")


def import_attribute(program: Program) -> Program:
    """Another file of the program is imported, the names are its attributes."""
    return _shared(program, "attribute")
