"""Walking over parsed code: as in `ast`, but without what nobody looks for, and faster."""

from __future__ import annotations

import ast

#: Contexts and operators: nearly half of the nodes of a tree, and nobody looks for them.
MARKS = frozenset(
    kind
    for base in (ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
    for kind in base.__subclasses__()
)
#: Nodes without other nodes below them.
LEAVES = frozenset({ast.Name, ast.Constant})
#: Fields that hold marks or plain text, in every node that has them.
_PLAIN = frozenset(
    (
        *("arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs"),
        *("level", "module", "op", "ops", "rest", "simple", "tag", "type_comment"),
    )
)
#: Code that does not run where it stands.
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
#: Expressions with names of their own.
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: `try` statements; those with `except*` came with Python 3.11.
TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that may hold other nodes, marks aside."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        self[kind] = found = tuple(name for name in kind._fields if name not in _PLAIN)
        return found


FIELDS = _Fields()


def children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, but without marks, and faster: this visits every node."""
    found: list[ast.AST] = []
    if type(node) in LEAVES:
        return found
    for name in FIELDS[type(node)]:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """As `ast.walk`, in the same order, but without contexts and operators, and faster."""
    found = [node]
    for each in found:
        found += children(each)
    return found
