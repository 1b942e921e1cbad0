"""What a fix asks about the statements around a misuse, before it says in verbs what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amplint.amp.scaler_calls import scaler_calls
from amplint.code.dataflow import bindings_of, names_in, parameters
from amplint.code.expressions import path_text
from amplint.code.layout import layout_of
from amplint.code.module import CallSite, Function, enclosing_class
from amplint.code.statements import block_of
from amplint.fixing.verbs import Import
from amplint.rule import Misuse
from amplint.view import FileView


def is_unconditional(misuse: Misuse) -> bool:
    """Whether the path to a misuse assumes nothing, so that a fix suits every run of it."""
    return not any(step.kind == "assume" for step in misuse.path)


def own_statement(misuse: Misuse, view: FileView) -> ast.stmt | None:
    """The statement that consists of the offending call, or of a name given its result."""
    if misuse.function.module is not view.module or not isinstance(misuse.node, ast.Call):
        return None
    return statement_of(misuse.node, misuse.function)


def statement_of(call: ast.Call, function: Function) -> ast.stmt | None:
    """The statement that consists of a call, or of a name given its result."""
    layout = layout_of(function)
    statement = layout.statement(call) if call in layout else None
    is_it = isinstance(statement, (ast.Expr, ast.Assign)) and statement.value is call
    return statement if is_it else None


def beside(misuse: Misuse, statement: ast.stmt) -> list[ast.stmt]:
    """The statements beside one of the function, itself included."""
    return block_of(statement, layout_of(misuse.function).parents[statement])


def calls_on(view: FileView, misuse: Misuse, *methods: str) -> Iterator[CallSite]:
    """Calls of methods of the misuse's scaler in the same function, as the code writes it."""
    for site in scaler_calls(view, *methods, within=misuse.function):
        callee = site.node.func
        if isinstance(callee, ast.Attribute) and ast.unparse(callee.value) == misuse.scaler:
            yield site


def code_of(view: FileView, node: ast.AST) -> str:
    """The code of an expression, for what a fix writes: as in the file, but in one line."""
    text = ast.get_source_segment(view.module.source, node) or ""
    if len(text.splitlines()) == 1:
        return text
    code = ast.unparse(node)
    is_double = '"' in text and "'" not in text and '"' not in code
    return code.replace("'", '"') if is_double else code


def keyword_of(call: ast.Call, name: str | None) -> ast.keyword | None:
    """The argument that a call gives by a name; with None, what it unpacks."""
    return next((item for item in call.keywords if item.arg == name), None)


def torch_in(view: FileView) -> tuple[str, tuple[Import, ...]] | None:
    """How a file names torch, and what it has to import for that; None where the name is taken."""
    scopes = view.module.scopes
    for imported in scopes.imports:
        if imported.dotted == "torch" and scopes.is_global(imported):
            return None if scopes.rivals(imported) else (imported.name, ())
    taken = any("torch" in (*bindings_of(one), *parameters(one)) for one in view.module.functions)
    return None if taken else ("torch", (Import("torch"),))


def is_known_at(
    view: FileView, expression: ast.expr, here: Function, there: Function, place: ast.AST
) -> bool:
    """Whether an expression that one function reads has the same value at a place of another.

    Only names that are bound once count, and attributes of `self` between methods of one class.
    """
    if not all(isinstance(node, _READS) for node in ast.walk(expression)):
        return False
    path = path_text(expression) or ""
    if path.startswith("self."):
        is_set = not _bound_behind(path, there, place) and there.name != "__init__"
        return here is there or (enclosing_class(here) is enclosing_class(there) and is_set)
    own = [one for one in (here, there) if here is not there and one is not view.module.body]
    common = there if here is there else view.module.body
    return not any(
        name in (*bindings_of(one), *parameters(one))
        for name in names_in(expression)
        for one in own
    ) and not any(_bound_behind(name, common, place) for name in names_in(expression))


_READS = (ast.Name, ast.Attribute, ast.Constant, ast.Load)


def _bound_behind(path: str, function: Function, place: ast.AST) -> bool:
    """Whether a function binds a path behind a place, or twice."""
    bound = [item.statement for item in bindings_of(function).get(path, ())]
    layout = layout_of(function)
    before = [one for one in bound if place not in layout or layout.before(one, place)]
    return len(bound) > 1 or len(before) < len(bound)
