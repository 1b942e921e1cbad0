"""Names that nothing binds: reading one raises a NameError, whatever the program is given.

`GradScaler()` in a file that never imports it makes no scaler. Of locals that are read too early
`code/unbound.py` knows.
"""

from __future__ import annotations

import ast

from amplint.code.layout import Layout, layout_of
from amplint.code.module import Function, Module
from amplint.code.tree import TRIES

#: Names that a tool, a translation or an older Python may provide.
_PROVIDED = frozenset(("_", "profile", "display", "unicode", "xrange", "raw_input"))
#: Names by which code may bind what its text does not show; an `eval` binds nothing.
_BINDING = frozenset(("exec", "globals", "locals", "vars", "builtins", "__builtins__"))
#: Names by which code may run what its text does not show.
UNSEEN = _BINDING | {"eval"}


def is_undefined(name: ast.Name, function: Function) -> bool:
    """Whether reading a name raises: nothing in its file binds it, and Python does not provide it.

    Not where a handler may take the error: its file expects that the name may be missing.
    """
    scopes = function.module.scopes
    if not isinstance(name.ctx, ast.Load) or scopes.stars:
        return False
    if name.id in _PROVIDED or name.id.startswith("__"):
        return False
    if scopes.resolve(name, function.node).kind != "unknown" or function.module.once(is_open):
        return False
    layout = layout_of(function)
    if name not in layout:
        return False
    return not (_is_annotation(name, layout) or _is_tried(name, layout))


def makes_nothing(call: ast.Call, function: Function) -> bool:
    """Whether a call raises, so that there is no value of it: a name that it needs is undefined."""
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and is_undefined(root, function)


def is_in_a_branch(node: ast.AST, function: Function) -> bool:
    """Whether some calls of a function may leave out a statement of it, by where it stands."""
    layout = layout_of(function)
    return layout.leaves_out(layout.statement(node)) is not function.node


def is_open(module: Module) -> bool:
    """Whether a file may bind names that its text does not show."""
    if "__getattr__" in module.scopes.module.bindings:
        return True
    used = {node for node in ast.walk(module.tree) if isinstance(node, ast.Name)}
    # `vars(options)` is the namespace of an object, not of the file.
    used -= {
        node.func
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name)
        if node.func.id == "vars"
    }
    return any(node.id in _BINDING for node in used)


def _is_annotation(name: ast.Name, layout: Layout) -> bool:
    """Whether a name stands in an annotation, which functions do not evaluate."""
    return any(
        isinstance(outer, ast.AnnAssign) and layout.holds(outer.annotation, name)
        for outer in layout.ancestors(name)
        if outer in layout
    )


def _is_tried(name: ast.Name, layout: Layout) -> bool:
    return any(isinstance(outer, TRIES) for outer in layout.ancestors(name))
