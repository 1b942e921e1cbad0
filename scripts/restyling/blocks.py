"""Styles that move statements: into a helper, a callback, an overridden method, a `with`, a `try`."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from restyling.imports import import_of, imported
from restyling.program import (
    DoesNotApplyError,
    Edit,
    Program,
    Source,
    arguments_of,
    codes_of_line,
    first_row,
)

_STOPS = (
    ast.Return,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.AsyncFor,
    ast.AsyncWith,
)
_TRAINING = re.compile(r"\.(backward|step|update|unscale_)\(|autocast|no_grad|\.half\(|GradScaler")


@dataclass(frozen=True)
class Block:
    """Consecutive statements of a function that can run elsewhere.

    Args:
        taken: local names that it reads, in their order.
        given: local names that it sets and that are read outside.
        codes: what its rows expect.
    """

    source: Source
    function: ast.FunctionDef
    statements: list[ast.stmt]
    taken: tuple[str, ...]
    given: tuple[str, ...]
    codes: tuple[str, ...]

    @property
    def rows(self) -> tuple[int, int]:
        """The first row and the last."""
        return first_row(self.statements[0]), self.statements[-1].end_lineno

    @property
    def indentation(self) -> str:
        """The blanks before its statements."""
        return " " * self.statements[0].col_offset

    @property
    def edit_of_self(self) -> list[Edit]:
        """`self` becomes `owner`, so that it can be handed to a method of another class."""
        return [
            self.source.rename(node, "self", "owner")
            for statement in self.statements
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and node.id == "self"
        ]

    def body(self, rename: dict[str, str] | None = None) -> str:
        """Its lines without indentation; other names for its locals where wanted."""
        start = self.source.row_start(self.rows[0])
        end = self.source.row_start(self.rows[1] + 1)
        edits = self.edit_of_self
        for old, new in (rename or {}).items():
            edits += [
                self.source.rename(node, old, new)
                for statement in self.statements
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and node.id == old
            ]
        head, tail = self.source.text[:start], self.source.text[end:]
        edited = self.source.edited(edits)
        text = edited[len(head) : len(edited) - len(tail)]
        return textwrap.dedent(text if text.endswith("\n") else text + "\n")

    @property
    def parameters(self) -> list[str]:
        """What the helper calls what it takes."""
        return ["owner" if name == "self" else name for name in self.taken]

    def definition(self, name: str, first: str = "", rename: dict[str, str] | None = None) -> str:
        """A function with its statements; `first` is a parameter in front."""
        names = rename or {}
        parameters = [names.get(one, one) for one in self.parameters]
        header = f"def {name}({', '.join([*filter(None, [first]), *parameters])}):\n"
        body = textwrap.indent(self.body(rename), "    ")
        given = ", ".join(names.get(one, one) for one in self.given)
        return header + body + (f"    return {given}\n" if self.given else "")

    def call(self, callee: str, name: str = "") -> str:
        """The statement that runs it instead; `name` is the class of a method that does."""
        target = f"{', '.join(self.given)} = " if self.given else ""
        return f"{target}{callee}({', '.join(self.taken)}){self.note(name or callee)}"

    def note(self, name: str) -> str:
        """The comment that says which findings in `name` a call leads to."""
        return f"  # leads to {name}: {' '.join(self.codes)}" if self.codes else ""

    def replaced(self, lines: list[str]) -> Edit:
        """Other lines in its place."""
        start = self.source.row_start(self.rows[0])
        end = self.source.row_start(self.rows[1] + 1)
        return Edit(start, end, "".join(f"{self.indentation}{line}\n" for line in lines))


def blocks(source: Source, shape: str = "run", single: bool = True) -> Iterator[Block]:
    """One block of each function that trains: a run of statements, or the body of a loop."""
    for function in source.functions():
        outer = source.parents[function]
        if single and not isinstance(outer, (ast.Module, ast.ClassDef)):
            continue
        if isinstance(outer, ast.ClassDef) and not isinstance(source.parents[outer], ast.Module):
            continue
        chosen = _block_of(source, function, shape)
        if chosen is not None:
            yield chosen


def _block_of(source: Source, function: ast.FunctionDef, shape: str) -> Block | None:
    for statements in _candidates(source, function, shape):
        found = extract(source, function, statements)
        if found is not None:
            return found
    return None


def _candidates(source: Source, function: ast.FunctionDef, shape: str) -> Iterator[list[ast.stmt]]:
    lists = list(_statement_lists(function))
    if shape == "loop":
        for node in ast.walk(function):
            if isinstance(node, (ast.For, ast.While)):
                yield node.body
    marked = [
        (statements, index)
        for statements in lists
        for index, statement in enumerate(statements)
        if any(map(codes_of_line, _own_lines(source, statement)))
    ]
    trained = [
        (statements, index)
        for statements in reversed(lists)
        for index, statement in enumerate(statements)
        if _TRAINING.search(source.of(statement))
    ]
    # The innermost statement first: its list is the last one that holds it.
    for statements, index in [*reversed(marked), *([] if marked else trained)]:
        start = index - 1 if index and not isinstance(statements[0], ast.Expr) else index
        yield statements[index:]
        yield statements[start : index + 1]
        yield statements[index : index + 2]
        yield statements[index : index + 1]


def _own_lines(source: Source, statement: ast.stmt) -> list[str]:
    return source.lines[first_row(statement) - 1 : statement.end_lineno]


def _statement_lists(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a function, outer ones first; those of inner functions left out."""
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(function, name, None)
        if isinstance(statements, list) and statements:
            yield statements
            for statement in statements:
                if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    yield from _statement_lists(statement)
    for handler in getattr(function, "handlers", []):
        yield from _statement_lists(handler)


def extract(
    source: Source, function: ast.FunctionDef, statements: list[ast.stmt], keep: bool = False
) -> Block | None:
    """The block, if its statements may run in another function; `keep` gives all it sets."""
    if not statements or not _stands_alone(source, statements):
        return None
    inside = {node for statement in statements for node in ast.walk(statement)}
    if any(isinstance(node, _STOPS) for node in inside) or _jumps_out(statements):
        return None
    taken: dict[str, None] = {}
    stored: set[str] = set()
    local = {
        node: scope
        for node, scope in source.scopes.binding.items()
        if scope is not None and scope.is_local
    }
    comprehensions = {source.scopes.by_node.get(node) for node in inside}
    definite = _definite(statements)
    for node in sorted((n for n in inside if n in local), key=lambda n: (n.lineno, n.col_offset)):
        if local[node] in comprehensions or isinstance(node, ast.arg):
            continue
        if isinstance(node.ctx, ast.Load):
            if not _is_caught(source, node, inside) and _read_first(node, statements, definite):
                taken[node.id] = None
        else:
            stored.add(node.id)
        try:
            source.rename(node, node.id, node.id)
        except DoesNotApplyError:
            if node.id == "self":
                return None
    every_store = {
        node.id
        for node in inside
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    if every_store & source.scopes.awkward or any(name.startswith("__") for name in taken):
        return None
    if re.search(
        r"\bsuper\b|\.__\w+[^_\W]\b(?!__)|\b__class__\b",
        source.text[source.start(statements[0]) : source.end(statements[-1])],
    ):
        return None
    for node in inside:
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", None) in stored:
            taken[node.target.id] = None
    read_outside = {
        node.id
        for node, scope in local.items()
        if isinstance(node, ast.Name)
        and node not in inside
        and isinstance(node.ctx, ast.Load)
        and scope is source.scopes.by_node[function]
    }
    given = {name for name in stored if keep or name in read_outside or name in taken}
    for name in sorted(given - definite):
        taken[name] = None
    available = _available(source, function, statements[0])
    free = {
        node.id
        for node, scope in local.items()
        if isinstance(node, ast.Name)
        and node in inside
        and scope is not source.scopes.by_node[function]
        and scope not in comprehensions
    }
    if any(name not in available and name not in free - stored for name in taken):
        return None
    if given and _in_try(source, statements[0]):
        return None
    rows = source.lines[first_row(statements[0]) - 1 : statements[-1].end_lineno]
    codes = [code for line in rows for code in codes_of_line(line)]
    return Block(
        source,
        function,
        statements,
        tuple(taken),
        tuple(sorted(given)),
        tuple(dict.fromkeys(codes)),
    )


def _stands_alone(source: Source, statements: list[ast.stmt]) -> bool:
    first, last = statements[0], statements[-1]
    row = source.lines[first_row(first) - 1]
    after = source.lines[last.end_lineno - 1].encode()[last.end_col_offset :].decode().strip()
    if row[: first.col_offset].strip() or (after and not after.startswith("#")):
        return False
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return False
    rows = range(first_row(first), last.end_lineno + 1)
    return not any(row in source.rows_in_strings for row in rows)


def _jumps_out(statements: list[ast.stmt]) -> bool:
    def jumps(node: ast.AST) -> bool:
        if isinstance(node, (ast.Break, ast.Continue)):
            return True
        if isinstance(node, (ast.For, ast.While)):
            return any(map(jumps, node.orelse))
        return any(map(jumps, ast.iter_child_nodes(node)))

    return any(map(jumps, statements))


def _definite(statements: list[ast.stmt]) -> set[str]:
    """Names that are set whenever the statements end."""
    names: set[str] = set()
    for statement in statements:
        names |= _sets(statement)
        if isinstance(statement, ast.With):
            names |= _definite(statement.body)
        if isinstance(statement, ast.If) and statement.orelse:
            names |= _definite(statement.body) & _definite(statement.orelse)
    return names


def _sets(statement: ast.stmt) -> set[str]:
    targets: list[ast.AST] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
        targets = [statement.target]
    elif isinstance(statement, ast.With):
        targets = [item.optional_vars for item in statement.items if item.optional_vars]
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    elif isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    return {
        node.id
        for target in targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _read_first(node: ast.Name, statements: list[ast.stmt], definite: set[str]) -> bool:
    """Whether a name may be read before the block sets it."""
    if node.id not in definite:
        return True
    for index, statement in enumerate(statements):
        if node in set(ast.walk(statement)):
            before = _definite(statements[:index])
            if isinstance(statement, ast.With):
                before |= _definite(_before(statement.body, node))
            return node.id not in before
    return True


def _before(statements: list[ast.stmt], node: ast.AST) -> list[ast.stmt]:
    for index, statement in enumerate(statements):
        if node in set(ast.walk(statement)):
            return statements[:index]
    return []


def _is_caught(source: Source, node: ast.Name, inside: set[ast.AST]) -> bool:
    """Whether a handler of the block gives the name its value."""
    around: ast.AST = node
    while around in inside:
        if isinstance(around, ast.ExceptHandler) and around.name == node.id:
            return True
        around = source.parents[around]
    return False


def _available(source: Source, function: ast.FunctionDef, statement: ast.stmt) -> set[str]:
    """Names that are set for certain when a statement is reached."""
    names = {given.arg for given in arguments_of(function)}
    node: ast.AST = statement
    while node is not function:
        parent = source.parents[node]
        for field in ("body", "orelse", "finalbody"):
            siblings = getattr(parent, field, [])
            if isinstance(siblings, list) and node in siblings:
                names |= _definite(siblings[: siblings.index(node)])
        if isinstance(parent, ast.For):
            names |= {n.id for n in ast.walk(parent.target) if isinstance(n, ast.Name)}
        if isinstance(parent, ast.With):
            names |= _sets(parent)
        node = parent
    return names


def _in_try(source: Source, statement: ast.stmt) -> bool:
    node: ast.AST = statement
    while node in source.parents:
        node = source.parents[node]
        if isinstance(node, ast.Try):
            return True
    return False


def _top_row(source: Source, node: ast.AST) -> int:
    while not isinstance(source.parents[node], ast.Module):
        node = source.parents[node]
    return first_row(node)


def _rewritten(
    program: Program,
    shape: str,
    make: Callable[[Block, int], tuple[str, list[str]]],
) -> Program:
    """Each block becomes what `make` gives: definitions above the function, lines in its place."""
    changed = {}
    number = 0
    for source in program.python:
        edits = []
        for block in blocks(source, shape):
            number += 1
            definition, lines = make(block, number)
            edits.append(block.replaced(lines))
            edits.append(source.before_row(_top_row(source, block.function), definition + "\n\n"))
        if edits:
            changed[source.name] = source.edited(edits)
    if not changed:
        raise DoesNotApplyError("no block that could run elsewhere")
    return program.with_texts(changed)


def helper_here(program: Program) -> Program:
    """A run of statements becomes a function of the same file."""
    return _rewritten(
        program,
        "run",
        lambda block, number: (block.definition(f"part_{number}"), [block.call(f"part_{number}")]),
    )


def callback(program: Program) -> Program:
    """The body of a loop becomes a method of an object in a list, called by a loop over it."""

    def make(block: Block, number: int) -> tuple[str, list[str]]:
        method = textwrap.indent(block.definition("on_batch", "self"), "    ")
        definition = (
            f"class Callback{number}:\n{method}\n\nCALLBACKS_{number} = [Callback{number}()]"
        )
        name = f"Callback{number}"
        lines = [
            f"for listener in CALLBACKS_{number}:",
            "    " + block.call("listener.on_batch", name),
        ]
        return definition, lines

    return _rewritten(program, "loop", make)


def overridden_method(program: Program) -> Program:
    """The body of a loop becomes a method that a subclass overrides and a base class calls."""

    def make(block: Block, number: int) -> tuple[str, list[str]]:
        method = textwrap.indent(block.definition("part", "self"), "    ")
        names = ", ".join(block.parameters)
        given = f"self, {names}" if names else "self"
        definition = (
            f"class Base{number}:\n"
            f"    def run({given}):\n        return self.part({names})\n\n"
            f"    def part({given}):\n        raise NotImplementedError\n\n\n"
            f"class Derived{number}(Base{number}):\n{method}"
        )
        return definition, [block.call(f"Derived{number}().run", f"Derived{number}")]

    return _rewritten(program, "loop", make)


def helper_elsewhere(program: Program) -> Program:
    """A run of statements becomes a function of another file."""
    return _elsewhere(program, "run", neutral=False)


def plain_second_file(program: Program) -> Program:
    """The same, and nothing in the other file speaks of AMP: its parameters are p1, p2 and so on."""
    return _elsewhere(program, "run", neutral=True)


def _elsewhere(program: Program, shape: str, neutral: bool) -> Program:
    module = program.new_file("moved_parts")
    changed: dict[str, str] = {}
    lines: dict[str, str] = {}
    definitions: list[str] = []
    for source in program.python:
        edits = []
        names = []
        for block in blocks(source, shape):
            needed = _needed(program, source, block)
            if needed is None or any(lines.get(k, v) != v for k, v in needed.items()):
                continue
            rename = _neutral(block) if neutral else {}
            if neutral and not _is_plain(block.definition("part", "", rename), needed):
                continue
            lines.update(needed)
            name = f"part_{len(definitions) + 1}"
            names.append(name)
            definitions.append(block.definition(name, "", rename))
            edits.append(block.replaced([block.call(name)]))
        if names:
            line = f"from {module} import {', '.join(names)}\n"
            edits.append(source.before_row(source.import_row(), line))
            changed[source.name] = source.edited(edits)
    if not definitions:
        raise DoesNotApplyError("no block that needs nothing of its file")
    text = "".join(lines.values()) + "\n\n" + "\n\n".join(definitions)
    return program.with_texts({**changed, f"{module}.py": text})


def _neutral(block: Block) -> dict[str, str]:
    names = dict.fromkeys([*block.parameters, *block.given, *sorted(_stored_in(block))])
    names.pop("owner", None)
    return {name: f"p{number}" for number, name in enumerate(names, start=1)}


def _stored_in(block: Block) -> set[str]:
    return {
        node.id
        for statement in block.statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _is_plain(text: str, needed: dict[str, str]) -> bool:
    from amplint.source.screen import mentions_amp

    return not mentions_amp(_CODES_IN_COMMENTS.sub("", text + "".join(needed.values())).encode())


_CODES_IN_COMMENTS = re.compile(r"#.*")


def _needed(program: Program, source: Source, block: Block) -> dict[str, str] | None:
    """Lines that import what a block uses of its file, by name; None where it uses its own.

    What comes from other files of the program is left alone: these may import this one.
    """
    top = source.scopes.by_node[source.tree]
    by_name = {one.local: one for one in imported(source)}
    dotted = [one for one in imported(source) if not one.module and "." in one.name]
    inside = {node for statement in block.statements for node in ast.walk(statement)}
    lines = {}
    for node in inside:
        if isinstance(node, ast.Name) and source.scopes.binding.get(node) is top:
            if node.id not in by_name:
                return None
            if program.module_of(by_name[node.id].module or by_name[node.id].name):
                return None
            same = [one for one in dotted if one.local == node.id]
            every = dict.fromkeys(map(import_of, [*same, by_name[node.id]]))
            lines[node.id] = "".join(every)
    return dict(sorted(lines.items()))


def in_with(program: Program) -> Program:
    """The body of every function that trains stands in a `with` that does nothing."""
    return _wrapped(program, "import contextlib\n", "with contextlib.nullcontext():", "")


def in_try(program: Program) -> Program:
    """The body of every function that trains stands in a `try` with a `finally`."""
    return _wrapped(program, "import gc\n", "try:", "finally:\n    gc.get_count()\n")


def _wrapped(program: Program, needs: str, before: str, after: str) -> Program:
    changed = {}
    for source in program.python:
        edits = []
        for function in source.functions():
            if isinstance(source.parents[function], (ast.Module, ast.ClassDef)):
                edits += _wrap(source, function, before, after)
        if edits:
            row = source.import_row()
            changed[source.name] = source.edited([source.before_row(row, needs), *edits])
    if not changed:
        raise DoesNotApplyError("no function that trains")
    return program.with_texts(changed)


def _wrap(source: Source, function: ast.FunctionDef, before: str, after: str) -> list[Edit]:
    statements = function.body
    if ast.get_docstring(function, clean=False) is not None:
        statements = statements[1:]
    if not statements or not _stands_alone(source, statements):
        return []
    if not any(_TRAINING.search(source.of(statement)) for statement in statements):
        return []
    first, last = first_row(statements[0]), statements[-1].end_lineno
    blanks = " " * statements[0].col_offset
    edits = [source.before_row(first, f"{blanks}{before}\n")]
    edits += [
        source.before_row(row, "    ")
        for row in range(first, last + 1)
        if source.lines[row - 1].strip()
    ]
    if after:
        edits.append(source.before_row(last + 1, textwrap.indent(after, blanks)))
    return edits
