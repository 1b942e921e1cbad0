"""Lists and tables: what they always hold, and under which keys."""

from __future__ import annotations

import ast
from collections.abc import Callable

from amplint.code.dataflow import fills_of
from amplint.code.expressions import last_name, path_text
from amplint.code.module import Function
from amplint.values.provenance import Firmness, Found, Origin

#: Where a value comes from: an expression, the function that reads it, and the call of that one.
OriginsOf = Callable[..., Found]

#: Methods that take something out of a container.
_SHRINKS = frozenset({"pop", "popitem", "popleft", "remove", "clear"})


def fixed_display(found: Found) -> Origin | None:
    """The list, tuple or dict display that a place always holds, by where its values come from."""
    if len(found.origins) != 1 or not found.complete:
        return None
    (origin,) = found.origins
    is_display = isinstance(origin.expression, (ast.List, ast.Tuple, ast.Dict))
    return origin if is_display and not _may_change(origin) else None


def runs_once(loop: ast.AST, origins_of: Callable[[ast.expr], Found]) -> bool:
    """Whether a loop takes the only element out of a list: nothing in it is repeated."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    display: ast.expr | None = loop.iter
    if isinstance(display, (ast.Name, ast.Attribute)):
        origin = fixed_display(origins_of(display))
        display = None if origin is None else origin.expression
    if not isinstance(display, (ast.List, ast.Tuple)) or len(display.elts) != 1:
        return False
    return not isinstance(display.elts[0], ast.Starred)


def _may_change(origin: Origin) -> bool:
    """Whether a list is one of several, or some function of its file fills one at a place."""
    module = origin.function.module
    if origin.firmness is not Firmness.FIXED or origin.function is not module.body:
        return True
    names = {
        path_text(target)
        for statement in module.tree.body
        if isinstance(statement, ast.Assign) and statement.value is origin.expression
        for target in statement.targets
    }
    return not names or any(names & fills_of(other).keys() for other in module.functions)


def keys_held(origins_of: OriginsOf, node: ast.expr, function: Function) -> tuple[int | str, ...]:
    """The indices or keys under which a container has objects, and no others, however it was made.

    Returns:
        Numbers for a list or tuple, strings for a dict; none where a way is out of sight, where
        an entry may be no object, or where something puts elements in or takes them out again.
    """
    found = origins_of(node, function)
    each = {_entries(origins_of, origin) for origin in found.origins}
    if len(each) != 1 or not found.complete or _may_differ(node, function, found):
        return ()
    return each.pop()


def _entries(origins_of: OriginsOf, origin: Origin) -> tuple[int | str, ...]:
    """The indices or keys of a display, or of a comprehension over one, of calls."""
    made = origin.expression
    if isinstance(made, ast.Dict):
        return _keys_written(made) if _are_objects(origins_of, made.values, origin) else ()
    if isinstance(made, (ast.List, ast.Tuple)):
        return tuple(range(len(made.elts))) if _are_objects(origins_of, made.elts, origin) else ()
    if isinstance(made, ast.ListComp) and len(made.generators) == 1:
        (part,) = made.generators
        source = part.iter.elts if isinstance(part.iter, (ast.List, ast.Tuple)) else []
        if isinstance(made.elt, ast.Call) and not part.ifs and not _has_star(source):
            return tuple(range(len(source)))
    if isinstance(made, ast.DictComp) and isinstance(made.value, ast.Call):
        return _keys_kept(origins_of, made, origin)
    return ()


def _keys_kept(origins_of: OriginsOf, made: ast.DictComp, origin: Origin) -> tuple[str, ...]:
    """The keys of what a comprehension goes over, where it keeps each: `{k: f(v) for k, v in …}`."""
    part, key = made.generators[0], made.key
    if len(made.generators) != 1 or part.ifs:
        return ()
    source, name = part.iter, part.target
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
        if source.func.attr != "items" or not isinstance(name, ast.Tuple):
            return ()
        source, name = source.func.value, name.elts[0]
    if not isinstance(name, ast.Name) or not isinstance(key, ast.Name) or key.id != name.id:
        return ()
    found = origins_of(source, origin.function, origin.activation)
    each = {_keys_written(item.expression) for item in found.origins}
    if len(each) != 1 or not found.complete or _may_differ(source, origin.function, found):
        return ()
    return each.pop()


def _keys_written(made: ast.expr) -> tuple[str, ...]:
    """The names that a dict has for keys, or a list or tuple for elements, if it has no others."""
    if not isinstance(made, (ast.Dict, ast.List, ast.Tuple)):
        return ()
    written = made.keys if isinstance(made, ast.Dict) else made.elts
    values = [item.value for item in written if isinstance(item, ast.Constant)]
    names = tuple(value for value in values if isinstance(value, str))
    return names if len({*names}) == len(written) else ()


def _are_objects(origins_of: OriginsOf, entries: list[ast.expr], origin: Origin) -> bool:
    """Whether each entry is what some call has made, on every way."""
    if _has_star(entries):
        return False
    each = [origins_of(entry, origin.function, origin.activation) for entry in entries]
    return all(
        found.complete and all(isinstance(item.expression, ast.Call) for item in found.origins)
        for found in each
    )


def _has_star(entries: list[ast.expr]) -> bool:
    return any(isinstance(entry, ast.Starred) for entry in entries)


def _may_differ(node: ast.expr, function: Function, found: Found) -> bool:
    """Whether code in sight changes how much is in a container of this name."""
    modules = {function.module, *(origin.function.module for origin in found.origins)}
    functions = [other for module in modules for other in module.functions]
    name = last_name(node)
    return any(
        path.rpartition(".")[2] == name for other in functions for path in fills_of(other)
    ) or any(
        last_name(place) == name
        for other in functions
        for part in other.nodes
        for place in _shrunk_by(part)
    )


def _shrunk_by(node: ast.AST) -> list[ast.expr]:
    """The containers that a statement or call takes elements out of."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.value] if node.func.attr in _SHRINKS else []
    if isinstance(node, ast.Delete):
        return [item.value for item in node.targets if isinstance(item, ast.Subscript)]
    return []
